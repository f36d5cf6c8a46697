"""Turns whatever a tool answers into JSON: what has no JSON form is marked in its place, never dropped.

Bounded in depth, nodes and text. Never raises, and never reads marks back.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from interlock.canonical import DEPTH_MAX, INTEGER_MAX, Json, is_json_text, one_form

_MARK = "$interlock"


class _Marker:
    """Turns one Python value into JSON within a budget of nodes; used once."""

    def __init__(self, nodes_max: int, text_max: int) -> None:
        self._nodes_left = nodes_max
        self._text_max = text_max

    def mark(self, value: object, depth: int) -> Json:
        self._nodes_left -= 1
        if self._nodes_left < 0 or depth < 0:
            return {_MARK: "cut", "value": "too many values" if depth >= 0 else "too deep"}
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (int, float)):
            return _number_marked(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._bytes(bytes(value))
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple)):
            return self._items(value, depth)
        return {_MARK: "no_json_form", "value": type(value).__name__[:128]}

    def _text(self, text: str) -> Json:
        if is_json_text(text):
            return str(text)
        escaped = text[: self._text_max].encode("unicode_escape").decode("ascii")
        return {_MARK: "text", "value": escaped, "characters": len(text)}

    def _bytes(self, data: bytes) -> Json:
        kept = base64.b64encode(data[: self._text_max]).decode("ascii")
        return {_MARK: "bytes", "value": kept, "size_bytes": len(data)}

    def _mapping(self, value: Mapping[object, object], depth: int) -> Json:
        plain = all(isinstance(key, str) and isinstance(self._text(key), str) for key in value)
        if plain and _MARK not in value:
            return {
                str(key): self.mark(item, depth - 1) for key, item in value.items() if self._nodes_left >= 0
            }
        # Entries also keep a tool from forging a mark by answering with our own key.
        entries = self._items([list(entry) for entry in value.items()], depth)
        return {_MARK: "object", "entries": entries}

    def _items(self, items: list[object] | tuple[object, ...], depth: int) -> Json:
        marked: list[Json] = []
        for item in items:
            marked.append(self.mark(item, depth - 1))
            if self._nodes_left < 0:
                break
        return marked


def _number_marked(value: int | float) -> Json:
    if isinstance(value, int):
        if -INTEGER_MAX <= value <= INTEGER_MAX:
            return int(value)
        return {_MARK: "integer", "value": hex(value) if value.bit_length() <= 4096 else "too large"}
    if value != value:
        return {_MARK: "not_finite", "value": "NaN"}
    if value in (float("inf"), float("-inf")):
        return {_MARK: "not_finite", "value": "Infinity" if value > 0 else "-Infinity"}
    return one_form(float(value))


def mark_non_finite(
    value: object, *, depth_max: int = DEPTH_MAX, nodes_max: int = 100_000, text_max: int = 65_536
) -> Json:
    """Any Python value as valid JSON, with what has no JSON form marked in its place.

    A mark is an object with the key `$interlock`: `not_finite`, `integer` (in hexadecimal), `text` (escaped),
    `bytes` (base64), `object` (entries, where a key is no plain string), `no_json_form`, or `cut` at a bound.
    Never raises for what a tool may answer.
    """
    return _Marker(nodes_max, text_max).mark(value, depth_max)

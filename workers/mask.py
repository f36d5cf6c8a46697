"""Takes the true values of sensitive parameters out of whatever is recorded of an execution. Pure.

A tool may answer with what it was given; what is sealed at rest must not stand beside it in the clear.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from interlock.canonical import Json

MASK = "[masked]"
FRAGMENT_LENGTH_MIN = 4
"""Shorter secrets are masked where they are a whole value: within text they would hit everything."""


class Masking:
    """Masks the values that stand at these JSON Pointers of the arguments."""

    def __init__(self, arguments: Any, pointers: Sequence[str]) -> None:
        found = [_at(arguments, pointer) for pointer in pointers]
        leaves = [leaf for value in found for leaf in _leaves(value)]
        self._whole = [leaf for leaf in leaves if not isinstance(leaf, bool) and leaf is not None]
        texts = {form for leaf in self._whole for form in _forms(leaf)}
        self._fragments = sorted(
            (text for text in texts if len(text) >= FRAGMENT_LENGTH_MIN), key=len, reverse=True
        )

    def masked(self, value: Json) -> Json:
        """A copy in which no secret stands."""
        if not self._whole:
            return value
        if isinstance(value, dict):
            return {self.text(key): self.masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.masked(item) for item in value]
        if any(type(value) is type(secret) and value == secret for secret in self._whole):
            return MASK
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Text in which no secret stands."""
        for fragment in self._fragments:
            text = text.replace(fragment, MASK)
        return text

    def raw(self, data: bytes) -> bytes:
        """Bytes in which no secret stands as UTF-8."""
        for fragment in self._fragments:
            data = data.replace(fragment.encode(), MASK.encode())
        return data


def _at(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, (list, tuple)):
            value = value[int(key)] if key.isdecimal() and int(key) < len(value) else None
        else:
            value = value.get(key) if hasattr(value, "get") else None
    return value


def _leaves(value: Any) -> Iterable[Any]:
    if hasattr(value, "values"):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _forms(leaf: Any) -> Iterable[str]:
    """A value as text, and as it stands inside JSON that a tool wrote itself."""
    text = str(leaf)
    yield text
    if isinstance(leaf, str):
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]

"""Sensitive parameters: found by the schema's `sensitive: true`, sealed at rest, masked where shown.

The hash of the arguments is always taken over their true values. Holds no key; sealing is a port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from interlock.canonical import Json, JsonObject, canonical, parse_json

SEALED = "$sealed"
MASK = "[masked]"


class Sealer(Protocol):
    """Encryption under a key of the installation."""

    def seal(self, plain: bytes, context: bytes) -> str:
        """Sealed text; opens only with the same context."""
        ...

    def open(self, sealed: str, context: bytes) -> bytes:
        """What was sealed; raises ValueError when it was changed or the context differs."""
        ...


def sensitive_pointers(schema: Any, value: Json) -> tuple[str, ...]:
    """JSON Pointers to the values that the schema marks sensitive, sorted."""
    return tuple(sorted(set(_walk(schema, value, "", schema, 0))))


def marks_sensitive(schema: Any) -> bool:
    """Whether anything in the schema, wherever it is, is marked sensitive: if not, no value ever is."""
    if isinstance(schema, Mapping):
        return schema.get("sensitive") is True or any(map(marks_sensitive, schema.values()))
    return isinstance(schema, (list, tuple)) and any(map(marks_sensitive, schema))


def _walk(schema: Any, value: Json, pointer: str, root: Any, depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth > 64:
        return
    if schema.get("sensitive") is True:
        yield pointer
        return
    for branch in _same_place(schema, root):
        yield from _walk(branch, value, pointer, root, depth + 1)
    for part, child, branch in _children(schema, value):
        yield from _walk(branch, child, f"{pointer}/{_escaped(part)}", root, depth + 1)


def _same_place(schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(keyword, ())
    yield from (schema[keyword] for keyword in ("if", "then", "else") if keyword in schema)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        yield _at(root, reference[1:])


def _children(schema: Mapping[str, Any], value: Json) -> Iterator[tuple[str, Json, Any]]:
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for key, child in value.items():
            if key in known:
                yield key, child, known[key]
            elif isinstance(schema.get("additionalProperties"), Mapping):
                yield key, child, schema["additionalProperties"]
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        for position, child in enumerate(value):
            yield str(position), child, first[position] if position < len(first) else schema.get("items")


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _at(value: Any, pointer: str) -> Any:
    for part in _parts(pointer):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def _replaced(value: Any, parts: Sequence[str], change: Callable[[Any], Any]) -> Any:
    """A copy of JSON with the value at one place changed."""
    if not parts:
        return change(value)
    if isinstance(value, list):
        return [
            _replaced(item, parts[1:], change) if str(at) == parts[0] else item
            for at, item in enumerate(value)
        ]
    return {
        key: _replaced(item, parts[1:], change) if key == parts[0] else item for key, item in value.items()
    }


def _seal(sealer: Sealer, context: bytes, value: Json) -> Json:
    return {SEALED: sealer.seal(canonical(value), context)}


def _open(sealer: Sealer, context: bytes, value: Any) -> Json:
    return parse_json(sealer.open(value[SEALED], context))


def sealed_arguments(
    arguments: JsonObject, pointers: Sequence[str], sealer: Sealer, invocation_id: str
) -> JsonObject:
    """The arguments as they are stored: each sensitive value sealed for this invocation and place."""
    for pointer in pointers:
        context = f"{invocation_id}{pointer}".encode()
        arguments = _replaced(arguments, _parts(pointer), partial(_seal, sealer, context))
    return arguments


def opened_arguments(
    stored: JsonObject, pointers: Sequence[str], sealer: Sealer, invocation_id: str
) -> JsonObject:
    """The true arguments of a stored invocation; raises ValueError when a seal does not open."""
    for pointer in pointers:
        context = f"{invocation_id}{pointer}".encode()
        stored = _replaced(stored, _parts(pointer), partial(_open, sealer, context))
    return stored


def masked_arguments(stored: JsonObject, pointers: Sequence[str]) -> JsonObject:
    """The arguments as people see them."""
    for pointer in pointers:
        stored = _replaced(stored, _parts(pointer), lambda _value: MASK)
    return stored

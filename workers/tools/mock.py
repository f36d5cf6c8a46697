"""The mock executor: answers for contracts without code, from name and arguments' digest alone.

Deterministic, without effect, and it says so: the metric `mock` is 1, the sandbox `none`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from workers.supervisor.port import Completed

_DEPTH_MAX = 16
_PLAIN_KEYS = frozenset(
    {
        "$schema", "$id", "$comment", "title", "description", "examples", "default", "type", "enum", "const",
        "properties", "required", "additionalProperties", "unevaluatedProperties", "items", "minItems",
        "maxItems", "minLength", "maxLength", "minimum", "maximum",
    }
)  # fmt: skip


class _NotSimpleError(Exception):
    """The schema asks for more than this module can build."""


def run_mock(tool: str, arguments_digest: str, output_schema: Mapping[str, Any]) -> Completed:
    """The same answer for the same values, always. Metric `fits_schema` is 0 when it is a stand-in."""
    seed = hashlib.sha256(f"{tool}\n{arguments_digest}".encode()).digest()
    try:
        output, fits = _built(output_schema, seed, 0), 1
        if not isinstance(output, dict):
            raise _NotSimpleError
    except _NotSimpleError:
        output, fits = {"mock": True, "tool": tool, "arguments_digest": arguments_digest}, 0
    return Completed(0, output, metrics={"mock": 1, "fits_schema": fits})


def _built(schema: Any, seed: bytes, depth: int) -> Any:
    if not isinstance(schema, Mapping) or not schema.keys() <= _PLAIN_KEYS or depth > _DEPTH_MAX:
        raise _NotSimpleError
    if "const" in schema:
        return _plain(schema["const"])
    if "enum" in schema:
        return _plain(schema["enum"][_number(seed) % len(schema["enum"])])
    kinds = schema.get("type", "object")
    kind = kinds if isinstance(kinds, str) else kinds[0]
    return _of_kind(kind, schema, seed, depth)


def _of_kind(kind: str, schema: Mapping[str, Any], seed: bytes, depth: int) -> Any:
    match kind:
        case "object":
            return _object(schema, seed, depth)
        case "array":
            return _array(schema, seed, depth)
        case "string":
            return _string(schema, seed)
        case "integer" | "number":
            return _integer(schema, seed)
        case "boolean":
            return bool(_number(seed) % 2)
        case "null":
            return None
        case _:
            raise _NotSimpleError


def _object(schema: Mapping[str, Any], seed: bytes, depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    names = schema.get("required", ())
    if any(name not in properties for name in names):
        raise _NotSimpleError
    return {name: _built(properties[name], _below(seed, name), depth + 1) for name in names}


def _array(schema: Mapping[str, Any], seed: bytes, depth: int) -> list[Any]:
    count = schema.get("minItems", 0)
    if count > 64:
        raise _NotSimpleError
    return [_built(schema.get("items"), _below(seed, str(place)), depth + 1) for place in range(count)]


def _string(schema: Mapping[str, Any], seed: bytes) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 16)
    if least > 4096:
        raise _NotSimpleError
    text: str = seed.hex() * (least // 64 + 1)
    return text[: max(least, min(most, 16))]


def _integer(schema: Mapping[str, Any], seed: bytes) -> int:
    least = schema.get("minimum", schema.get("maximum", 999) - 999)
    most = schema.get("maximum", least + 999)
    if not isinstance(least, int) or not isinstance(most, int) or most < least:
        raise _NotSimpleError
    return least + _number(seed) % (most - least + 1)


def _number(seed: bytes) -> int:
    return int.from_bytes(seed[:6], "big")


def _below(seed: bytes, name: str) -> bytes:
    return hashlib.sha256(seed + name.encode()).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value

"""Writes JSON in its one canonical form (RFC 8785), on which every digest rests, and reads that back.

What is not I-JSON is refused by a stable code, never mended. Values are data; nothing here does I/O.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import orjson
import rfc8785

from interlock.errors import NotJsonError
from interlock.strict_json import DEPTH_MAX as DEPTH_MAX
from interlock.strict_json import INTEGER_MAX as INTEGER_MAX
from interlock.strict_json import SIZE_BYTES_MAX as SIZE_BYTES_MAX
from interlock.strict_json import FrozenJson as FrozenJson
from interlock.strict_json import Json as Json
from interlock.strict_json import JsonObject as JsonObject
from interlock.strict_json import JsonScalar as JsonScalar
from interlock.strict_json import is_json_text as is_json_text
from interlock.strict_json import one_form as one_form
from interlock.strict_json import parse_json as parse_json
from interlock.strict_json import require_text

# Arguments are wrapped by requests, events and receipts, which must stay writable and readable.
CANONICAL_DEPTH_MAX = 128

_CONTAINERS = frozenset((dict, MappingProxyType, list, tuple))


def read_stored(data: bytes) -> JsonObject:
    """The object of bytes that `canonical` wrote; `canonical(read_stored(data)) == data`.

    For bytes of our own whose digest is kept, never for what comes from outside: keys are not compared.
    Raises `NotJsonError` for what is no JSON object at all.
    """
    try:
        value: Json = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotJsonError("JSON_SYNTAX", str(error)) from None
    if not isinstance(value, dict):
        raise NotJsonError("JSON_TYPE", "what was stored is no object")
    if _may_hold_long_number(data) and _LONG_NUMBER.search(data):
        return {key: _doubles_restored(item) for key, item in value.items()}
    return value


# A double of 2^53 (which begins with a 9) and above is written without a point, and must come back as a
# double. A number follows one of these signs; digests are full of digits, and moments have sixteen of them.
_LONG_NUMBER = re.compile(rb"[:,\[\s]-?(?:9[0-9]{15}|[0-9]{17})")
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
_SIGNS_ALIKE = bytes.maketrans(b":,[-\t\n\r", b" " * 7)
_LONG_RUN = b"0" * 17


def _may_hold_long_number(data: bytes) -> bool:
    """Whether the search is worth its price: it costs more than reading what it looks through."""
    return _LONG_RUN in data.translate(_DIGITS_ALIKE) or b" 9" in data.translate(_SIGNS_ALIKE)


def _doubles_restored(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _doubles_restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_doubles_restored(item) for item in value]
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        return float(value)
    return value


def canonical(value: Json | FrozenJson) -> bytes:
    """The RFC 8785 bytes of a value, frozen or not. Raises `NotJsonError` for what is not I-JSON."""
    written = quickly_written(value, CANONICAL_DEPTH_MAX)
    return rfc8785.dumps(_checked(value, CANONICAL_DEPTH_MAX)) if written is None else written


def quickly_written(value: Json | FrozenJson, depth_max: int) -> bytes | None:
    """The canonical bytes of any value, where orjson provably writes them; None leaves it to `canonical`."""
    return plainly_written(value, MappingProxyType.copy) if _orjson_is_canonical(value, depth_max) else None


def plainly_written(value: Any, default: Callable[[Any], Any] | None = None) -> bytes | None:
    """The canonical bytes of what holds, as its types say, no double and no key beyond ASCII.

    Unlike `canonical` it looks at no value one by one. `default` gives what orjson cannot write by itself;
    `Fragment`s stand for what is canonical already. None where U+0000, a lone surrogate, a large integer or
    something without a plain form is in it: the exact writer says what is wrong with it, if anything is.
    """
    try:
        written = orjson.dumps(value, default, _PLAIN)
    except orjson.JSONEncodeError:
        return None
    return None if b"\\u0000" in written else written


Fragment = orjson.Fragment
"""Canonical bytes that stand for their value within a larger one."""
_PLAIN = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def _orjson_is_canonical(value: Any, depth: int) -> bool:
    """Whether orjson provably writes the canonical bytes: exact types, ASCII keys, plain numbers.

    ASCII keys sort alike by bytes and by UTF-16; a double that is not integral and lies between 1e-3 and
    2^53 has the same shortest digits everywhere and no exponent. It goes level by level: it is asked often.
    """
    level: list[Any] = [value]
    for left in range(depth, -1, -1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if not left and kind in _CONTAINERS:
                return False
            if kind is dict or kind is MappingProxyType:
                for key in item:
                    if type(key) is not str or not key.isascii():
                        return False
                below += item.values()
            elif kind is list or kind is tuple:
                below += item
            elif not _is_plain_number(kind, item):
                return False
        if not below:
            return True
        level = below
    return False


def _is_plain_number(kind: type, value: Any) -> bool:
    if kind is int:
        return bool(-INTEGER_MAX <= value <= INTEGER_MAX)
    return kind is float and 1e-3 <= abs(value) < INTEGER_MAX and not value.is_integer()


def _checked(value: object, depth: int) -> Json:
    """A plain copy for the exact writer; every number, string and key is looked at."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        require_text(value)
        return value
    if isinstance(value, int):
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise NotJsonError("JSON_NUMBER_RANGE", "integer beyond ±(2^53 - 1)")
        return value
    if isinstance(value, float):
        return _finite(value)
    if depth == 0:
        raise NotJsonError("JSON_DEPTH", f"nested deeper than {CANONICAL_DEPTH_MAX}")
    if isinstance(value, Mapping):
        return {_key(key): _checked(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_checked(item, depth - 1) for item in value]
    raise NotJsonError("JSON_TYPE", f"a {type(value).__name__} has no JSON form")


def _finite(value: float) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise NotJsonError("JSON_NOT_FINITE", "NaN and Infinity are not JSON")
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise NotJsonError("JSON_TYPE", "a key is not a string")
    require_text(key)
    return key


def sha256_hex(data: bytes) -> str:
    """SHA-256 as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Json | FrozenJson) -> str:
    """SHA-256 of the canonical bytes as 64 lower-case hexadecimal digits, without a prefix."""
    return sha256_hex(canonical(value))


def freeze(value: Json | FrozenJson) -> FrozenJson:
    """A deeply immutable copy: read-only mappings and tuples all the way down."""
    return _frozen(value, CANONICAL_DEPTH_MAX)


def _frozen(value: Json | FrozenJson, depth: int) -> FrozenJson:
    if type(value) in _SCALARS:
        return value  # type: ignore[return-value]  # the look at exact types is the quick way
    if depth == 0:
        raise NotJsonError("JSON_DEPTH", f"nested deeper than {CANONICAL_DEPTH_MAX}")
    if isinstance(value, (dict, Mapping)):
        return MappingProxyType({key: _frozen(item, depth - 1) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple([_frozen(item, depth - 1) for item in value])
    if isinstance(value, (str, int, float)):
        return value
    raise NotJsonError("JSON_TYPE", f"a {type(value).__name__} has no JSON form")


def thaw(frozen: FrozenJson | Json) -> Json:
    """A fresh mutable copy of dicts and lists that shares nothing with what it was made of."""
    if type(frozen) in _SCALARS:
        return frozen  # type: ignore[return-value]  # the look at exact types is the quick way
    if isinstance(frozen, (dict, MappingProxyType, Mapping)):
        return {key: thaw(item) for key, item in frozen.items()}
    if isinstance(frozen, (list, tuple)):
        return [thaw(item) for item in frozen]
    return frozen


_SCALARS = frozenset((str, int, float, bool, type(None)))

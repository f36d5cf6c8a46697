"""Reads strict JSON and writes it in its one canonical form (RFC 8785), on which every digest rests.

What is not I-JSON is refused by a stable code, never mended: no NaN, no key twice, no integer beyond
±(2^53 - 1), no lone surrogate, no NUL, bounded size and depth. Values are data; nothing here does I/O.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, Union

import orjson
import rfc8785

from interlock.errors import NotJsonError

JsonScalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = Union[JsonScalar, "list[Json]", "dict[str, Json]"]
JsonObject: TypeAlias = dict[str, Json]
FrozenJson: TypeAlias = Union[JsonScalar, "tuple[FrozenJson, ...]", "Mapping[str, FrozenJson]"]

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 64
SIZE_BYTES_MAX = 1_048_576
# Arguments are wrapped by requests, events and receipts, which must stay writable and readable.
CANONICAL_DEPTH_MAX = 128

_DIGITS_MAX = len(str(INTEGER_MAX)) + 1  # and a sign

# A string as the parser sees it (an unterminated one reaches to the end, so this stays linear), or a bracket.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_json(raw: bytes | str, *, depth_max: int = DEPTH_MAX, size_bytes_max: int = SIZE_BYTES_MAX) -> Json:
    """The value of strict JSON text, in the one form a number has.

    A number with a point or an exponent is the nearest double; where that is integral and within
    ±(2^53 - 1) it becomes the int, so 60.0 and 6e1 are 60 and -0.0 is 0. Raises `NotJsonError`.
    """
    if type(raw) is bytes and len(raw) <= size_bytes_max:
        read = _quickly_read(raw, depth_max)
        if read is not None:
            return read
    text = _decoded(raw, size_bytes_max)
    if text.count("[") + text.count("{") > depth_max:
        _refuse_depth(text, depth_max)
    try:
        value: Json = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        _refuse_syntax(error, text)
    if "\\u" in text:
        # Without this escape a decoded text can hold neither a surrogate nor a NUL.
        _refuse_bad_text(value)
    return value


def _quickly_read(raw: bytes, depth_max: int) -> Json:
    """The value where orjson provably reads what the exact reader does; None leaves it to that one.

    Without a backslash every quotation mark begins or ends a string, so the marks tell how many strings and
    keys the text has. A key that came twice is in the value once, so that less is found there. Without
    doubles and large integers there is one form of each number, and without escapes no NUL or surrogate.
    """
    if b"\\" in raw or raw.count(b"[") + raw.count(b"{") > depth_max:
        return None
    try:
        value: Json = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if type(value) not in _CONTAINERS or 2 * _plain_strings(value) != raw.count(b'"'):
        return None
    return value


def _plain_strings(value: Any) -> int:
    """How many strings and keys a value holds; -1 where it holds a number that is not plain."""
    found = 0
    level: list[Any] = [value]
    while level:
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                found += 1
            elif kind is dict:
                found += len(item)
                below += item.values()
            elif kind is list:
                below += item
            elif kind is float or (kind is int and not -INTEGER_MAX <= item <= INTEGER_MAX):
                return -1
        level = below
    return found


def _decoded(raw: bytes | str, size_bytes_max: int) -> str:
    if len(raw) > size_bytes_max:
        raise NotJsonError("JSON_SIZE", f"more than {size_bytes_max} bytes")
    if isinstance(raw, str):
        text = raw
        _require_encodable(text, size_bytes_max)
    else:
        try:
            text = bytes(raw).decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotJsonError("JSON_ENCODING", "not UTF-8", error.start) from None
    if text.startswith("\ufeff"):
        raise NotJsonError("JSON_ENCODING", "begins with a byte order mark", 0)
    return text


def _require_encodable(text: str, size_bytes_max: int) -> None:
    if text.isascii():
        return
    try:
        size_bytes = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        offset = len(text[: error.start].encode("utf-8"))
        raise NotJsonError("JSON_UNICODE", "lone surrogate", offset) from None
    if size_bytes > size_bytes_max:
        raise NotJsonError("JSON_SIZE", f"more than {size_bytes_max} bytes")


def _refuse_depth(text: str, depth_max: int) -> None:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        token = match.group()
        if token in ("[", "{"):
            depth += 1
            if depth > depth_max:
                offset = len(text[: match.start()].encode("utf-8"))
                raise NotJsonError("JSON_DEPTH", f"nested deeper than {depth_max}", offset)
        elif token in ("]", "}"):
            depth -= 1


def _refuse_syntax(error: json.JSONDecodeError, text: str) -> NoReturn:
    offset = len(text[: error.pos].encode("utf-8"))
    raise NotJsonError("JSON_SYNTAX", error.msg[:1].lower() + error.msg[1:], offset) from None


def _refuse_bad_text(value: Json) -> None:
    pending: list[Json] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            _require_text(item)
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def is_json_text(text: str) -> bool:
    """Whether a string may stand in I-JSON: no NUL, no lone surrogate."""
    return "\x00" not in text and (text.isascii() or not _SURROGATE.search(text))


def _require_text(text: str) -> None:
    if is_json_text(text):
        return
    if "\x00" in text:
        raise NotJsonError("JSON_NUL", "U+0000 in a string or key")
    raise NotJsonError("JSON_UNICODE", "lone surrogate in a string or key")


def _integer(token: str) -> int:
    # The length is looked at first: Python is slow at, and limits, the conversion of long integers.
    if len(token) <= _DIGITS_MAX:
        value = int(token)
        if -INTEGER_MAX <= value <= INTEGER_MAX:
            return value
    raise NotJsonError("JSON_NUMBER_RANGE", "integer beyond ±(2^53 - 1)")


def _double(token: str) -> int | float:
    value = float(token)
    if value in (float("inf"), float("-inf")):
        raise NotJsonError("JSON_NUMBER_RANGE", "number is not representable as a double")
    return one_form(value)


def one_form(value: float) -> int | float:
    """The one form of a finite number: the int where it is integral and within ±(2^53 - 1)."""
    if value.is_integer() and -INTEGER_MAX <= value <= INTEGER_MAX:
        return int(value)
    return value


def _constant(token: str) -> NoReturn:
    raise NotJsonError("JSON_NOT_FINITE", f"{token} is not JSON")


def _object(pairs: list[tuple[str, Json]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotJsonError("JSON_DUPLICATE_KEY", f"key {key[:64]!a} twice in one object")
            seen.add(key)
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_double, parse_constant=_constant
)


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


_CONTAINERS = frozenset((dict, MappingProxyType, list, tuple))


def _is_plain_number(kind: type, value: Any) -> bool:
    if kind is int:
        return bool(-INTEGER_MAX <= value <= INTEGER_MAX)
    return kind is float and 1e-3 <= abs(value) < INTEGER_MAX and not value.is_integer()


def _checked(value: object, depth: int) -> Json:
    """A plain copy for the exact writer; every number, string and key is looked at."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        _require_text(value)
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
    _require_text(key)
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

"""Reads strict JSON (I-JSON), and names what a JSON value is in this product.

What is not I-JSON is refused by a stable code, never mended: no NaN, no key twice, no integer beyond
±(2^53 - 1), no lone surrogate, no NUL, bounded size and depth. Values are data; nothing here does I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias, Union

import orjson

from interlock.errors import NotJsonError

JsonScalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = Union[JsonScalar, "list[Json]", "dict[str, Json]"]
JsonObject: TypeAlias = dict[str, Json]
FrozenJson: TypeAlias = Union[JsonScalar, "tuple[FrozenJson, ...]", "Mapping[str, FrozenJson]"]

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 64
SIZE_BYTES_MAX = 1_048_576

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
    if not isinstance(value, (dict, list)) or 2 * _plain_strings(value) != raw.count(b'"'):
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
            require_text(item)
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def is_json_text(text: str) -> bool:
    """Whether a string may stand in I-JSON: no NUL, no lone surrogate."""
    return "\x00" not in text and (text.isascii() or not _SURROGATE.search(text))


def require_text(text: str) -> None:
    """Raises `NotJsonError` for a string that may not stand in I-JSON."""
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

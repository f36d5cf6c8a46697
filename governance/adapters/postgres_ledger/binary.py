"""Columns of values as PostgreSQL's binary arrays, made at once rather than value by value.

One array a column and one statement a step: that is what makes a batch cheap.
Never looks at a value's meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format

_HEADER = struct.Struct(">iiiii")  # dimensions, has nulls, type of the elements, length, first index
_LENGTH_BYTES = 4


class Packed:
    """A value that is in the binary form of its type already."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class TextArray(Packed):
    """text[]"""


class NumberArray(Packed):
    """bigint[]"""


class FlagArray(Packed):
    """boolean[]"""


class BytesArray(Packed):
    """bytea[]"""


class XidArray(Packed):
    """xid8[]"""


class Number(Packed):
    """bigint"""


class Xid(Packed):
    """xid8"""


def number(value: int) -> Number:
    """One bigint, whatever its size: the statement's type must not hang on it."""
    return Number(_packed(">q", value))


def xid(value: int) -> Xid:
    """One transaction id."""
    return Xid(_packed(">Q", value))


def texts(values: Sequence[str]) -> TextArray:
    """Raises UnicodeEncodeError for lone surrogates."""
    if _is_one(values):
        return TextArray(_array(25, len(values), _framed(values[0].encode()) * len(values)))
    return TextArray(_array(25, len(values), _joined([value.encode() for value in values])))


def blobs(values: Sequence[bytes]) -> BytesArray:
    return BytesArray(_array(17, len(values), _joined(values)))


def numbers(values: Sequence[int]) -> NumberArray:
    return NumberArray(_array(20, len(values), _interleaved("q", values)))


def xids(values: Sequence[int]) -> XidArray:
    return XidArray(_array(5069, len(values), _interleaved("Q", values)))


def flags(values: Sequence[bool]) -> FlagArray:
    body = b"".join([b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in values])
    return FlagArray(_array(16, len(values), body))


def column(kind: str, values: Sequence[Any]) -> Packed:
    """The array of a column of this type (`text`, `bigint`, `boolean`)."""
    if kind == "text":
        return texts(values)
    return numbers(values) if kind == "bigint" else flags(values)


def teach(connection: psycopg.Connection[Any]) -> None:
    """Let a connection take packed values, and read transaction ids as numbers."""
    for packed, dumper in _DUMPERS:
        connection.adapters.register_dumper(packed, dumper)
    connection.adapters.register_loader("xid8", _XidLoader)


class _PackedDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Packed) -> Buffer | None:
        return obj.data


def _dumper(name: str, type_oid: int) -> type[Dumper]:
    return type(name, (_PackedDumper,), {"oid": type_oid})


_DUMPERS: tuple[tuple[type[Packed], type[Dumper]], ...] = (
    (TextArray, _dumper("TextArrayDumper", 1009)),
    (NumberArray, _dumper("NumberArrayDumper", 1016)),
    (FlagArray, _dumper("FlagArrayDumper", 1000)),
    (BytesArray, _dumper("BytesArrayDumper", 1001)),
    (XidArray, _dumper("XidArrayDumper", 271)),
    (Number, _dumper("NumberDumper", 20)),
    (Xid, _dumper("XidDumper", 5069)),
)


class _XidLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, "big")


def _array(element: int, count: int, body: bytes) -> bytes:
    if count == 0:
        return struct.pack(">iii", 0, 0, element)
    return _HEADER.pack(1, 0, element, count, 1) + body


def _is_one(values: Sequence[object]) -> bool:
    """Whether all are the same: a batch often speaks of one tenant, one actor, one phase."""
    return bool(values) and values.count(values[0]) == len(values)


def _framed(value: bytes) -> bytes:
    return len(value).to_bytes(_LENGTH_BYTES, "big") + value


def _joined(values: Sequence[bytes]) -> bytes:
    parts: list[bytes] = [b""] * (2 * len(values))
    parts[0::2] = [len(value).to_bytes(_LENGTH_BYTES, "big") for value in values]
    parts[1::2] = values
    return b"".join(parts)


def _interleaved(code: str, values: Sequence[int]) -> bytes:
    parts = [8] * (2 * len(values))
    parts[1::2] = values
    return _packed(">" + f"i{code}" * len(values), *parts)


def _packed(form: str, *values: int) -> bytes:
    try:
        return struct.pack(form, *values)
    except struct.error as error:
        raise ValueError(f"the ledger refuses a number: {error}") from error

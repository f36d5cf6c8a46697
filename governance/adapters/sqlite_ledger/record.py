"""The raw rows of the ledger on SQLite, for `verify`: short readings, page by page. Never writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

from governance.adapters.sqlite_ledger.connection import Database
from governance.adapters.sqlite_ledger.reading import SqliteView, event_from, head_from
from governance.adapters.sqlite_ledger.schema import EVENT_COLUMNS, HEAD_COLUMNS
from governance.ledger import Due
from governance.verification.record import EventRecord, StreamRecord
from interlock.event import StoredEvent, Stream

_COLUMNS = ", ".join(EVENT_COLUMNS)
_LOWEST = -(2**63)
_EVENT_TYPES = (int, str, str, int, str, int, int, str, str, str, str, int, bytes, bytes)
_HASH_BYTES = 32


class SqliteRecords:
    """Raw rows of one ledger."""

    def __init__(self, database: Database, incarnation: str) -> None:
        self._database = database
        self._incarnation = incarnation

    @property
    def incarnation(self) -> str:
        return self._incarnation

    def issued_seq(self) -> int:
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'tool_event'", ())
        return int(rows[0][0]) if rows else 0

    def events(self, after: int | None, limit: int) -> list[EventRecord]:
        sql = f"SELECT {_COLUMNS}, payload_sha FROM tool_event WHERE ord > ? ORDER BY ord LIMIT ?"
        rows = self._rows(sql, (_LOWEST if after is None else after, limit))
        return [EventRecord(row[0], _readable(row[:-1]), _hex(row[-1])) for row in rows]

    def headless(self, streams: Collection[Stream]) -> set[Stream]:
        with self._database.reading() as connection:
            return set(streams) - set(SqliteView(connection, 0).heads(streams))

    def streams(self, after: Stream | None, limit: int) -> list[StreamRecord]:
        columns = ", ".join(HEAD_COLUMNS)
        sql = f"SELECT {columns} FROM head WHERE (kind, id) > (?, ?) ORDER BY kind, id LIMIT ?"
        with self._database.reading() as connection:
            rows = connection.execute(sql, (*(after or ("", "")), limit)).fetchall()
            heads = [head_from(row) for row in rows]
            dues = SqliteView(connection, 0).due_of(head.stream for head in heads)
            return [
                StreamRecord(head, _events_of(connection, head.stream), dues.get(head.stream))
                for head in heads
            ]

    def dues(self, after: Stream | None, limit: int) -> list[Due]:
        sql = "SELECT kind, id, what, at_us FROM due WHERE (kind, id) > (?, ?) ORDER BY kind, id LIMIT ?"
        return [Due(*row) for row in self._rows(sql, (*(after or ("", "")), limit))]

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._database.reading() as connection:
            return connection.execute(sql, values).fetchall()


def _events_of(connection: sqlite3.Connection, stream: Stream) -> list[StoredEvent]:
    sql = f"SELECT {_COLUMNS} FROM tool_event WHERE kind = ? AND stream = ? ORDER BY version"
    found = (_readable(row) for row in connection.execute(sql, stream))
    return [event for event in found if event is not None]


def _readable(row: tuple[Any, ...]) -> StoredEvent | None:
    """The event in a row, None where somebody put something else there."""
    if any(type(value) is not kind for value, kind in zip(row, _EVENT_TYPES, strict=True)):
        return None
    return event_from(row) if len(row[-1]) == _HASH_BYTES else None


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else ""

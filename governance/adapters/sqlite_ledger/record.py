"""The raw rows of the ledger on SQLite, for `verify`: short readings, page by page. Never writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from governance.adapters.sqlite_ledger.connection import Database
from governance.adapters.sqlite_ledger.reading import SqliteView, event_from, head_from
from governance.adapters.sqlite_ledger.schema import EVENT_COLUMNS, HEAD_COLUMNS, OPEN
from governance.ledger import Due, Head, KeyName, KeyOwner
from governance.verification.record import EventRecord, StreamRecord
from interlock.event import StoredEvent, Stream, StreamKind

_COLUMNS = ", ".join(EVENT_COLUMNS)
_OWNER = "tenant, client, key, invocation_id, request_digest"
_LOWEST = -(2**63)
_EVENT_TYPES = (int, str, str, int, str, int, int, str, str, str, str, int, bytes, bytes)
_HASH_BYTES = 32
_VERSION = EVENT_COLUMNS.index("version")


class SqliteRecords:
    """Raw rows of one ledger."""

    def __init__(self, database: Database, incarnation: str) -> None:
        self._database = database
        self._incarnation = incarnation

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A reading in which bytes that are no text are shown as such, rather than blind it to all others."""
        with self._database.reading() as connection:
            connection.text_factory = _text
            try:
                yield connection
            finally:
                connection.text_factory = str

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

    def unsequenced(self, limit: int) -> list[StoredEvent]:  # noqa: ARG002 - the port's
        """None: the appending transaction numbers its events."""
        return []

    def headless(self, streams: Collection[Stream]) -> set[Stream]:
        with self._reading() as connection:
            return set(streams) - set(SqliteView(connection, 0).heads(streams))

    def streams(self, after: Stream | None, limit: int) -> list[StreamRecord]:
        columns = ", ".join(HEAD_COLUMNS)
        sql = f"SELECT {columns} FROM head WHERE (kind, id) > (?, ?) ORDER BY kind, id LIMIT ?"
        with self._reading() as connection:
            rows = connection.execute(sql, (*(after or ("", "")), limit)).fetchall()
            heads = [head_from(row) for row in rows]
            dues = SqliteView(connection, 0).due_of(head.stream for head in heads)
            return [
                StreamRecord(
                    head,
                    [] if head.kind == StreamKind.EVIDENCE else _events_of(connection, head.stream),
                    dues.get(head.stream),
                    _before(connection, head) if head.ready else None,
                )
                for head in heads
            ]

    def events_of_stream(self, stream: Stream, after_version: int | None, limit: int) -> list[StoredEvent]:
        sql = f"""SELECT {_COLUMNS} FROM tool_event WHERE kind = ? AND stream = ? AND version > ?
            ORDER BY version LIMIT ?"""
        after = _LOWEST if after_version is None else after_version
        while rows := self._rows(sql, (*stream, after, limit)):
            found = [event for row in rows if (event := _readable(row)) is not None]
            if found:
                return found
            after = rows[-1][_VERSION]
        return []

    def dues(self, after: Stream | None, limit: int) -> list[Due]:
        sql = "SELECT kind, id, what, at_us FROM due WHERE (kind, id) > (?, ?) ORDER BY kind, id LIMIT ?"
        return [Due(*row) for row in self._rows(sql, (*(after or ("", "")), limit))]

    def epoch(self) -> int:
        rows = self._rows("SELECT epoch FROM control", ())
        return int(rows[0][0]) if rows else 0

    def events_of(self, streams: Collection[Stream]) -> dict[Stream, list[StoredEvent]]:
        with self._reading() as connection:
            found = {stream: _events_of(connection, stream) for stream in streams}
        return {stream: events for stream, events in found.items() if events}

    def contracts_of(self, digests: Collection[str]) -> dict[str, bytes]:
        with self._reading() as connection:
            return SqliteView(connection, 0).contracts(digests)

    def contracts(self, after: str | None, limit: int) -> list[tuple[str, bytes]]:
        sql = "SELECT digest, body FROM contract WHERE ? IS NULL OR digest > ? ORDER BY digest LIMIT ?"
        return [(row[0], row[1]) for row in self._rows(sql, (after, after, limit))]

    def denials_of(self, action_digests: Collection[str]) -> dict[str, str]:
        with self._reading() as connection:
            return SqliteView(connection, 0).denials(action_digests)

    def denials(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        sql = """SELECT action_digest, invocation_id FROM denial WHERE ? IS NULL OR action_digest > ?
            ORDER BY action_digest LIMIT ?"""
        return [(row[0], row[1]) for row in self._rows(sql, (after, after, limit))]

    def owners_of(self, keys: Collection[KeyName]) -> dict[KeyName, KeyOwner]:
        sql = f"SELECT {_OWNER} FROM idempotency WHERE (tenant, client, key) = (?, ?, ?)"
        with self._reading() as connection:
            rows = [row for key in keys for row in connection.execute(sql, key)]
        return dict(map(_owner, rows))

    def owners(self, after: KeyName | None, limit: int) -> list[tuple[KeyName, KeyOwner]]:
        where = "" if after is None else "WHERE (tenant, client, key) > (?, ?, ?)"
        sql = f"SELECT {_OWNER} FROM idempotency {where} ORDER BY tenant, client, key LIMIT ?"
        return [_owner(row) for row in self._rows(sql, (*(after or ()), limit))]

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(sql, values).fetchall()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _owner(row: tuple[Any, ...]) -> tuple[KeyName, KeyOwner]:
    return KeyName(*row[:3]), KeyOwner(*row[3:])


def _before(connection: sqlite3.Connection, head: Head) -> str | None:
    sql = f"""SELECT id FROM head WHERE {OPEN} AND tenant = ? AND session = ? AND stage = ?
        AND accepted_seq < ? ORDER BY accepted_seq LIMIT 1"""
    row = connection.execute(sql, (*head.stage_key, head.accepted_seq)).fetchone()
    return None if row is None else str(row[0])


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

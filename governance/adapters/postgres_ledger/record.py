"""The raw rows of the ledger on PostgreSQL, for `verify`: short readings, page by page. Never writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from governance.adapters.postgres_ledger.binary import number
from governance.adapters.postgres_ledger.connection import Connection, Database
from governance.adapters.postgres_ledger.reading import EVENT, HEAD, NUMBER, PostgresView, event_from
from governance.adapters.postgres_ledger.schema import OPEN
from governance.ledger import Due, Head, KeyName, KeyOwner, head_with
from governance.verification.record import EventRecord, StreamRecord
from interlock.event import StoredEvent, Stream, StreamKind

UNSEQUENCED_MAX_US = 60_000_000
"""How long an event may wait for its number before that is a fault."""

UNNUMBERED = 2**52
"""What an event without a number shows here: later than all that have one, in the order of its stream."""

_LOWEST = -(2**63)
_HASH_BYTES = 32
_OWNER = "tenant, client, key, invocation_id, request_digest"
_EVENTS = f"""SELECT {EVENT}, e.payload_sha FROM event_seq s
    LEFT JOIN LATERAL (SELECT * FROM tool_event WHERE xid = s.xid AND ord = s.ord OFFSET 0) e ON true
    WHERE s.seq > %b ORDER BY s.seq LIMIT %b"""
_OF_STREAM = f"""SELECT {EVENT} FROM tool_event e {NUMBER}
    WHERE e.kind = %b AND e.stream = %b AND e.version > %b ORDER BY e.version LIMIT %b"""
_ISSUED = "SELECT greatest((SELECT max(seq) FROM sequencer), (SELECT max(seq) FROM event_seq))"
_STREAMS = f"SELECT {HEAD} FROM head h WHERE (h.kind, h.id) > (%b, %b) ORDER BY h.kind, h.id LIMIT %b"
_BEFORE = f"""SELECT id FROM head WHERE {OPEN} AND tenant = %b AND session = %b AND stage = %b
    AND accepted_seq < %b ORDER BY accepted_seq LIMIT 1"""
_ORD = "SELECT ord FROM tool_event WHERE kind = %b AND stream = %b AND version = 1"
# Behind the cursor everything has its number: what has none there never gets one, however young it is.
_UNSEQUENCED = f"""SELECT {EVENT} FROM tool_event e {NUMBER}
    WHERE s.seq IS NULL AND (e.at_us < %b
        OR (e.xid, e.ord) <= (SELECT xid, ord FROM sequencer WHERE name = 'relay'))
    ORDER BY e.xid, e.ord LIMIT %b"""
_DUES = "SELECT kind, id, what, at_us FROM due WHERE (kind, id) > (%b, %b) ORDER BY kind, id LIMIT %b"
_OWNERS = f"""SELECT {_OWNER} FROM idempotency WHERE (tenant, client, key) > (%b, %b, %b)
    ORDER BY tenant, client, key LIMIT %b"""


class PostgresRecords:
    """Raw rows of one ledger."""

    def __init__(self, database: Database, incarnation: str) -> None:
        self._database = database
        self._incarnation = incarnation

    @property
    def incarnation(self) -> str:
        return self._incarnation

    def issued_seq(self) -> int:
        return int(self._rows(_ISSUED, ())[0][0] or 0)

    def events(self, after: int | None, limit: int) -> list[EventRecord]:
        rows = self._rows(_EVENTS, (number(_LOWEST if after is None else after), number(limit)))
        return [EventRecord(row[0], _readable(row[:-1]), _hex(row[-1])) for row in rows]

    def unsequenced(self, limit: int, older_than_us: int = UNSEQUENCED_MAX_US) -> list[StoredEvent]:
        """Events that wait for their number longer than this, or in vain; they have seq 0, hash ""."""
        with self._database.reading() as (connection, now_us):
            values = (number(now_us - older_than_us), number(limit))
            return [event_from(row) for row in _all(connection, _UNSEQUENCED, values)]

    def headless(self, streams: Collection[Stream]) -> set[Stream]:
        with self._database.reading() as (connection, now_us):
            return set(streams) - set(PostgresView(connection, now_us).heads(streams))

    def streams(self, after: Stream | None, limit: int) -> list[StreamRecord]:
        """Each head with its events; those without a number stand behind all others, from UNNUMBERED on.

        `accepted_seq` is shown as the sequence number of the request, where it is the request's own row.
        """
        with self._database.reading() as (connection, now_us):
            view = PostgresView(connection, now_us)
            rows = _all(connection, _STREAMS, (*(after or ("", "")), number(limit)))
            heads = [Head(*row) for row in rows]
            streams = [head.stream for head in heads]
            read = [stream for stream in streams if stream.kind != StreamKind.EVIDENCE]
            dues, events = view.due_of(streams), _numbered(view.events(read))
            return [
                StreamRecord(
                    _shown(connection, head, events.get(head.stream, [])),
                    events.get(head.stream, []),
                    dues.get(head.stream),
                    _before(connection, head) if head.ready else None,
                )
                for head in heads
            ]

    def events_of_stream(self, stream: Stream, after_version: int | None, limit: int) -> list[StoredEvent]:
        after = _LOWEST if after_version is None else after_version
        rows = self._rows(_OF_STREAM, (*stream, number(after), number(limit)))
        return _numbered({stream: [event_from(row) for row in rows]})[stream]

    def dues(self, after: Stream | None, limit: int) -> list[Due]:
        return [Due(*row) for row in self._rows(_DUES, (*(after or ("", "")), number(limit)))]

    def epoch(self) -> int:
        rows = self._rows("SELECT epoch FROM control", ())
        return int(rows[0][0]) if rows else 0

    def events_of(self, streams: Collection[Stream]) -> dict[Stream, list[StoredEvent]]:
        with self._database.reading() as (connection, now_us):
            return _numbered(PostgresView(connection, now_us).events(streams))

    def contracts_of(self, digests: Collection[str]) -> dict[str, bytes]:
        with self._database.reading() as (connection, now_us):
            return PostgresView(connection, now_us).contracts(digests)

    def contracts(self, after: str | None, limit: int) -> list[tuple[str, bytes]]:
        where, values = _after(after, "digest")
        sql = f"SELECT digest, body FROM contract {where} ORDER BY digest LIMIT %b"
        return [(row[0], row[1]) for row in self._rows(sql, (*values, number(limit)))]

    def denials_of(self, action_digests: Collection[str]) -> dict[str, str]:
        with self._database.reading() as (connection, now_us):
            return PostgresView(connection, now_us).denials(action_digests)

    def denials(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        where, values = _after(after, "action_digest")
        sql = f"SELECT action_digest, invocation_id FROM denial {where} ORDER BY action_digest LIMIT %b"
        return [(row[0], row[1]) for row in self._rows(sql, (*values, number(limit)))]

    def owners_of(self, keys: Collection[KeyName]) -> dict[KeyName, KeyOwner]:
        sql = f"SELECT {_OWNER} FROM idempotency WHERE tenant = %b AND client = %b AND key = %b"
        with self._database.reading() as (connection, _):
            return dict(_owner(row) for key in keys for row in _all(connection, sql, key))

    def owners(self, after: KeyName | None, limit: int) -> list[tuple[KeyName, KeyOwner]]:
        return [_owner(row) for row in self._rows(_OWNERS, (*(after or ("", "", "")), number(limit)))]

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._database.reading() as (connection, _):
            return _all(connection, sql, values)


def _numbered(streams: Mapping[Stream, list[StoredEvent]]) -> dict[Stream, list[StoredEvent]]:
    return {
        stream: [event if event.seq else event._replace(seq=UNNUMBERED + event.version) for event in events]
        for stream, events in streams.items()
    }


def _all(connection: Connection, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(sql, values, binary=True).fetchall()


def _after(last: str | None, name: str) -> tuple[str, tuple[str, ...]]:
    return ("", ()) if last is None else (f"WHERE {name} > %b", (last,))


def _owner(row: tuple[Any, ...]) -> tuple[KeyName, KeyOwner]:
    return KeyName(*row[:3]), KeyOwner(*row[3:])


def _before(connection: Connection, head: Head) -> str | None:
    rows = _all(connection, _BEFORE, (*head.stage_key, number(head.accepted_seq)))
    return str(rows[0][0]) if rows else None


def _shown(connection: Connection, head: Head, events: Sequence[StoredEvent]) -> Head:
    """The head with the request's sequence number for its row's, where the two belong together."""
    if head.kind != "invocation" or not events or events[0].version != 1:
        return head
    [row] = _all(connection, _ORD, head.stream)
    return head_with(head, accepted_seq=events[0].seq if row[0] == head.accepted_seq else -1)


def _readable(row: tuple[Any, ...]) -> StoredEvent | None:
    """The event in a row, None where there is none under this number."""
    if row[1] is None or len(row[-1]) != _HASH_BYTES:
        return None
    return event_from(row)


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else ""

"""One consistent reading of the ledger on PostgreSQL: every question of the port as one statement.

Each question is answered from an index that holds only what it asks for. Never writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from governance.adapters.postgres_ledger.binary import number, texts, xid
from governance.adapters.postgres_ledger.connection import Connection
from governance.adapters.postgres_ledger.schema import EVENT_COLUMNS, HEAD_COLUMNS, OPEN, READY, TWIN
from governance.append import key_is_live
from governance.ledger import Boot, Due, Head, KeyName, KeyOwner, StageKey
from interlock.event import StoredEvent, Stream
from interlock.workspace import DEFAULT_TENANT

Row = tuple[Any, ...]

HEAD = ", ".join(f"h.{column}" for column in HEAD_COLUMNS)
EVENT = f"s.seq, {', '.join(f'e.{column}' for column in EVENT_COLUMNS)}, s.hash"
# OFFSET 0 keeps a question a look-up for each row. As a plain join, a planner that knows the table as small
# reads a whole index for every statement, and its plan is kept when the table has grown.
NUMBERED = """event_seq s CROSS JOIN LATERAL (
        SELECT * FROM tool_event WHERE xid = s.xid AND ord = s.ord OFFSET 0) e"""
NUMBER = "LEFT JOIN LATERAL (SELECT seq, hash FROM event_seq WHERE ord = e.ord OFFSET 0) s ON true"
_ASKED = "unnest(%b, %b) a(kind, id)"


def found_by(names: Sequence[str], row: str, asked: str) -> str:
    """Equality of these columns, said so that no join can be made of it but a look-up by the index of them.

    For statements whose own table is looked up: they change or hold it.
    """
    return " AND ".join(f"{row}.{name} = ANY (ARRAY[{asked}.{name}])" for name in names)


_DUE = "d.kind, d.id, d.what, d.at_us"

_HEADS = f"""SELECT {HEAD} FROM {_ASKED} CROSS JOIN LATERAL (
        SELECT * FROM head WHERE kind = a.kind AND id = a.id OFFSET 0) h"""
_EVENTS = f"""SELECT {EVENT} FROM {_ASKED} CROSS JOIN LATERAL (
        SELECT * FROM tool_event WHERE kind = a.kind AND stream = a.id OFFSET 0) e {NUMBER}
    ORDER BY e.kind, e.stream, e.version"""
_RANGE = f"SELECT {EVENT} FROM {NUMBERED} WHERE s.seq > %b ORDER BY s.seq LIMIT %b"
# A page lies together in the log, nearly: to read that stretch costs a third of a look-up for each event.
_NUMBERS = "SELECT s.seq, s.xid, s.ord, s.hash FROM event_seq s WHERE s.seq > %b ORDER BY s.seq LIMIT %b"
_STRETCH = f"""SELECT e.ord, {", ".join(f"e.{column}" for column in EVENT_COLUMNS)} FROM tool_event e
    WHERE (e.xid, e.ord) >= (%b, %b) AND (e.xid, e.ord) <= (%b, %b) ORDER BY e.xid, e.ord LIMIT %b"""
FEW = 32
"""Up to so many events of a page are looked up one by one."""
# Numbers first, from indexes alone; then only the rows of this page.
_SESSION = f"""SELECT {EVENT} FROM (
        SELECT n.seq, n.xid, n.ord, n.hash FROM tool_event f
        CROSS JOIN LATERAL (SELECT ord FROM tool_event WHERE kind = f.kind AND stream = f.stream OFFSET 0) o
        CROSS JOIN LATERAL (SELECT * FROM event_seq WHERE ord = o.ord OFFSET 0) n
        WHERE f.session = %b AND f.tenant = %b AND f.version = 1 AND n.seq > %b ORDER BY n.seq LIMIT %b
    ) s CROSS JOIN LATERAL (SELECT * FROM tool_event WHERE xid = s.xid AND ord = s.ord OFFSET 0) e
    ORDER BY s.seq"""
_KEYS = """SELECT i.tenant, i.client, i.key, i.invocation_id, i.request_digest, h.phase, h.at_us
    FROM unnest(%b, %b, %b) a(tenant, client, key)
    CROSS JOIN LATERAL (SELECT * FROM idempotency
        WHERE tenant = a.tenant AND client = a.client AND key = a.key OFFSET 0) i
    LEFT JOIN LATERAL (SELECT phase, at_us FROM head
        WHERE kind = 'invocation' AND id = i.invocation_id OFFSET 0) h ON true"""
_LINES = f"""SELECT {HEAD} FROM unnest(%b, %b, %b) a(tenant, session, stage) CROSS JOIN LATERAL (
        SELECT * FROM head WHERE {OPEN} AND tenant = a.tenant AND session = a.session AND stage = a.stage
        ORDER BY accepted_seq LIMIT %b
    ) h ORDER BY h.accepted_seq"""
_TWINS = f"""SELECT h.action_digest, min(h.id) FROM unnest(%b) a(digest) CROSS JOIN LATERAL (
        SELECT action_digest, id FROM head WHERE action_digest = a.digest AND {TWIN} OFFSET 0) h GROUP BY 1"""
_DENIALS = """SELECT d.action_digest, d.invocation_id FROM unnest(%b) a(digest)
    CROSS JOIN LATERAL (SELECT * FROM denial WHERE action_digest = a.digest OFFSET 0) d"""
_CONTRACTS = """SELECT c.digest, c.body FROM unnest(%b) a(digest)
    CROSS JOIN LATERAL (SELECT * FROM contract WHERE digest = a.digest OFFSET 0) c"""
_PUBLISHED = f"SELECT pool, count(*) FROM head WHERE {READY} AND published_us > 0 GROUP BY pool"
NEXT_READY = f"""SELECT {HEAD} FROM head h WHERE {READY} AND published_us = 0 AND pool = %b
    ORDER BY priority, accepted_seq LIMIT %b"""
_DUE_BEFORE = f"SELECT {_DUE} FROM due d WHERE d.at_us <= %b ORDER BY d.at_us, d.kind, d.id LIMIT %b"
_DUE_AFTER = f"""SELECT {_DUE} FROM due d WHERE d.at_us > %b
    ORDER BY d.at_us DESC, d.kind DESC, d.id DESC LIMIT %b"""
_DUE_OF = f"""SELECT {_DUE} FROM {_ASKED} CROSS JOIN LATERAL (
        SELECT * FROM due WHERE kind = a.kind AND id = a.id OFFSET 0) d"""
_BOOTS = """SELECT boot_id, role, host, pid, counter, started_us, stopped FROM boot
    WHERE NOT stopped ORDER BY boot_id"""
_COUNTS = f"SELECT phase, count(*) FROM head WHERE {OPEN} GROUP BY phase"
_ACCEPTED = "SELECT count(*) FROM tool_event WHERE version = 1 AND kind = 'invocation'"


class PostgresView:
    """What a transaction sees; worthless after its end."""

    def __init__(self, connection: Connection, now_us: int) -> None:
        # One for all its statements: to make another costs as much as a small question.
        self._cursor = connection.cursor(binary=True)
        self._now_us = now_us

    @property
    def now_us(self) -> int:
        return self._now_us

    def epoch(self) -> int:
        return int(self._rows("SELECT epoch FROM control")[0][0])

    def heads(self, streams: Iterable[Stream]) -> dict[Stream, Head]:
        return {stream: Head(*row) for stream, row in self._head_rows(streams).items()}

    def heads_of(
        self, kind: str, *, phase: str | None = None, session: str | None = None, limit: int
    ) -> list[Head]:
        if kind == "invocation" and (session is not None or phase is None or phase == "done"):
            return self._heads_by_acceptance(phase, session, limit)
        where, order, values = "h.kind = %b", "h.accepted_seq, h.id", [kind]
        if kind == "invocation":
            where, order, values = OPEN, "h.accepted_seq", []  # no two have the same
        for column, value in (("phase", phase), ("session", session)):
            if value is not None:
                where += f" AND h.{column} = %b"
                values.append(value)
        sql = f"SELECT {HEAD} FROM head h WHERE {where} ORDER BY {order} LIMIT %b"
        return [Head(*row) for row in self._rows(sql, (*values, number(limit)))]

    def events(self, streams: Iterable[Stream]) -> dict[Stream, list[StoredEvent]]:
        found: dict[Stream, list[StoredEvent]] = defaultdict(list)
        for event in map(event_from, self._of_streams(_EVENTS, streams)):
            found[event.stream].append(event)
        return dict(found)

    def range(self, after_seq: int, limit: int) -> list[StoredEvent]:
        page = (number(after_seq), number(limit))
        found = None if limit <= FEW else self._stretch(self._rows(_NUMBERS, page))
        return [event_from(row) for row in self._rows(_RANGE, page)] if found is None else found

    def session_events(
        self, session: str, tenant: str = DEFAULT_TENANT, *, after_seq: int = 0, limit: int = 10_000
    ) -> list[StoredEvent]:
        values = (session, tenant, number(after_seq), number(limit))
        return [event_from(row) for row in self._rows(_SESSION, values)]

    def last_seq(self) -> int:
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM event_seq")[0][0])

    def key_owners(self, keys: Iterable[KeyName]) -> dict[KeyName, KeyOwner]:
        asked = list(dict.fromkeys(keys))
        if not asked:
            return {}
        return {
            KeyName(*row[:3]): KeyOwner(*row[3:5])
            for row in self._rows(_KEYS, [texts(column) for column in zip(*asked, strict=True)])
            if key_is_live(row[5], row[6], self._now_us)
        }

    def stage_lines(self, stages: Iterable[StageKey], *, limit: int = 2) -> dict[StageKey, list[Head]]:
        lines: dict[StageKey, list[Head]] = {stage: [] for stage in stages}
        if lines:
            columns = [texts(column) for column in zip(*lines, strict=True)]
            for row in self._rows(_LINES, (*columns, number(limit))):
                head = Head(*row)
                lines[head.stage_key].append(head)
        return lines

    def twins(self, action_digests: Iterable[str]) -> dict[str, str]:
        return self._by_digest(_TWINS, action_digests)

    def denials(self, action_digests: Iterable[str]) -> dict[str, str]:
        return self._by_digest(_DENIALS, action_digests)

    def published_unclaimed(self) -> dict[str, int]:
        return dict(self._rows(_PUBLISHED))

    def next_ready(self, pool: str, limit: int) -> list[Head]:
        return [Head(*row) for row in self._rows(NEXT_READY, (pool, number(limit)))]

    def due(self, before_us: int, limit: int) -> list[Due]:
        return [Due(*row) for row in self._rows(_DUE_BEFORE, (number(before_us), number(limit)))]

    def due_after(self, after_us: int, limit: int) -> list[Due]:
        return [Due(*row) for row in self._rows(_DUE_AFTER, (number(after_us), number(limit)))]

    def due_of(self, streams: Iterable[Stream]) -> dict[Stream, Due]:
        return {Stream(row[0], row[1]): Due(*row) for row in self._of_streams(_DUE_OF, streams)}

    def contracts(self, digests: Iterable[str]) -> dict[str, bytes]:
        return self._by_digest(_CONTRACTS, digests)

    def boots(self) -> list[Boot]:
        return [Boot(*row) for row in self._rows(_BOOTS)]

    def counts(self) -> dict[str, int]:
        open_phases: dict[str, int] = dict(self._rows(_COUNTS))
        done = int(self._rows(_ACCEPTED)[0][0]) - sum(open_phases.values())
        return {**open_phases, "done": done} if done else open_phases

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._cursor.execute(sql, values).fetchall()

    def _stretch(self, numbered: Sequence[Row]) -> list[StoredEvent] | None:
        """The events of these numbers; None where they lie apart: one may have waited long for its own."""
        if not numbered:
            return []
        places = [row[1:3] for row in numbered]
        ends = [
            pack(end)
            for place in (min(places), max(places))
            for pack, end in zip((xid, number), place, strict=True)
        ]
        rows = self._rows(_STRETCH, (*ends, number(len(numbered) + FEW)))
        found = {row[0]: row[1:] for row in rows}
        if any(row[2] not in found for row in numbered):
            return None
        return [StoredEvent._make((seq, *found[ord_], digest.hex())) for seq, _, ord_, digest in numbered]

    def _of_streams(self, sql: str, streams: Iterable[Stream]) -> list[Row]:
        """The rows of a statement that is asked of streams."""
        asked = list(dict.fromkeys(streams))
        if not asked:
            return []
        return self._rows(sql, [texts(column) for column in zip(*asked, strict=True)])

    def _by_digest(self, sql: str, digests: Iterable[str]) -> dict[str, Any]:
        asked = list(dict.fromkeys(digests))
        return dict(self._rows(sql, (texts(asked),))) if asked else {}

    def _head_rows(self, streams: Iterable[Stream]) -> dict[Stream, Row]:
        return {Stream(row[0], row[1]): row for row in self._of_streams(_HEADS, streams)}

    def _heads_by_acceptance(self, phase: str | None, session: str | None, limit: int) -> list[Head]:
        """Through the log, whose order is that of acceptance; heads have no index over what is final."""
        values = [value for value in (session, phase) if value is not None]
        first, where = "tool_event", "" if phase is None else " AND h.phase = %b"
        if session is not None:
            first = "(SELECT * FROM tool_event WHERE version = 1 AND session = %b OFFSET 0)"
        sql = f"""SELECT {HEAD} FROM {first} e CROSS JOIN LATERAL (
                SELECT * FROM head WHERE kind = e.kind AND id = e.stream OFFSET 0) h
            WHERE e.kind = 'invocation' AND e.version = 1{where} ORDER BY e.ord LIMIT %b"""
        return [Head(*row) for row in self._rows(sql, (*values, number(limit)))]


def event_from(row: Row) -> StoredEvent:
    """An event of its columns, in their order; 0 and "" where it has no place in the order yet."""
    digest = row[13]
    return StoredEvent._make((row[0] or 0, *row[1:13], "" if digest is None else digest.hex()))

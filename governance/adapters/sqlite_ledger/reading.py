"""One consistent reading of the ledger on SQLite: every question of the port as one or few statements.

Each question is answered from an index that holds only what it asks for. Never writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from governance.adapters.sqlite_ledger.schema import (
    EVENT_COLUMNS,
    HEAD_BOOLEANS,
    HEAD_COLUMNS,
    OPEN,
    READY,
    TWIN,
)
from governance.append import key_is_live
from governance.ledger import Boot, Due, Head, KeyName, KeyOwner, StageKey
from interlock.event import StoredEvent, Stream
from interlock.workspace import DEFAULT_TENANT

Row = tuple[Any, ...]

_EVENT = ", ".join(EVENT_COLUMNS)
_HEAD = ", ".join(HEAD_COLUMNS)
_HEAD_H = ", ".join(f"h.{column}" for column in HEAD_COLUMNS)
# One text for any number of ids, so that it is prepared once.
_LISTED = "(SELECT value FROM json_each(?))"
PUBLISHED_UNCLAIMED = f"SELECT pool, count(*) FROM head WHERE {READY} AND published_us > 0 GROUP BY pool"
NEXT_READY = f"""SELECT {_HEAD} FROM head WHERE {READY} AND published_us = 0 AND pool = ?
    ORDER BY priority, accepted_seq LIMIT ?"""
_STAGE_LINES = f"""SELECT {_HEAD_H} FROM json_each(?) s CROSS JOIN head h ON h.rowid IN (
        SELECT rowid FROM head WHERE {OPEN} AND tenant = s.value ->> 0 AND session = s.value ->> 1
        AND stage = s.value ->> 2 ORDER BY accepted_seq LIMIT ?)
    ORDER BY h.accepted_seq"""


class SqliteView:
    """What a transaction sees; worthless after its end."""

    def __init__(self, connection: sqlite3.Connection, now_us: int) -> None:
        self._connection = connection
        self._now_us = now_us

    @property
    def now_us(self) -> int:
        return self._now_us

    def epoch(self) -> int:
        return int(self._rows("SELECT epoch FROM control")[0][0])

    def heads(self, streams: Iterable[Stream]) -> dict[Stream, Head]:
        return {stream: head_from(row) for stream, row in self._head_rows(streams).items()}

    def heads_of(
        self, kind: str, *, phase: str | None = None, session: str | None = None, limit: int
    ) -> list[Head]:
        if kind == "invocation" and (session is not None or phase is None or phase == "done"):
            return self._heads_by_acceptance(phase, session, limit)
        where, values = ["kind = ?"], [kind]
        if kind == "invocation":
            where.append(OPEN)
        for column, value in (("phase", phase), ("session", session)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        return self._heads(f"{' AND '.join(where)} ORDER BY accepted_seq, id LIMIT ?", (*values, limit))

    def events(self, streams: Iterable[Stream]) -> dict[Stream, list[StoredEvent]]:
        found: dict[Stream, list[StoredEvent]] = defaultdict(list)
        for kind, ids in _by_kind(streams):
            where = f"kind = ? AND stream IN {_LISTED} ORDER BY stream, version"
            for row in self._rows(f"SELECT {_EVENT} FROM tool_event WHERE {where}", (kind, ids)):
                event = event_from(row)
                found[event.stream].append(event)
        return dict(found)

    def range(self, after_seq: int, limit: int) -> list[StoredEvent]:
        sql = f"SELECT {_EVENT} FROM tool_event WHERE ord > ? ORDER BY ord LIMIT ?"
        return [event_from(row) for row in self._rows(sql, (after_seq, limit))]

    def session_events(
        self, session: str, tenant: str = DEFAULT_TENANT, *, after_seq: int = 0, limit: int = 10_000
    ) -> list[StoredEvent]:
        # Numbers first, from indexes alone; then only the rows of this page.
        numbers = """SELECT e.ord FROM tool_event f CROSS JOIN tool_event e USING (kind, stream)
            WHERE f.session = ? AND f.tenant = ? AND f.version = 1 AND e.ord > ? ORDER BY e.ord LIMIT ?"""
        sql = f"SELECT {_EVENT} FROM tool_event WHERE ord IN ({numbers}) ORDER BY ord"
        return [event_from(row) for row in self._rows(sql, (session, tenant, after_seq, limit))]

    def last_seq(self) -> int:
        return int(self._rows("SELECT coalesce(max(ord), 0) FROM tool_event")[0][0])

    def key_owners(self, keys: Iterable[KeyName]) -> dict[KeyName, KeyOwner]:
        sql = """SELECT invocation_id, idempotency.request_digest, head.phase, head.at_us FROM idempotency
            LEFT JOIN head ON head.kind = 'invocation' AND head.id = invocation_id
            WHERE idempotency.tenant = ? AND idempotency.client = ? AND key = ?"""
        owners = {}
        for key in keys:
            # A new head that is not in its table yet makes no difference: without one a key is live, too.
            for owner, digest, phase, at_us in self._settled_rows(sql, key):
                if key_is_live(phase, at_us, self._now_us):
                    owners[key] = KeyOwner(owner, digest)
        return owners

    def stage_lines(self, stages: Iterable[StageKey], *, limit: int = 2) -> dict[StageKey, list[Head]]:
        lines: dict[StageKey, list[Head]] = {stage: [] for stage in stages}
        for row in self._rows(_STAGE_LINES, (json.dumps(list(lines)), limit)) if lines else ():
            head = head_from(row)
            lines[head.stage_key].append(head)
        return lines

    def twins(self, action_digests: Iterable[str]) -> dict[str, str]:
        sql = (
            f"SELECT action_digest, min(id) FROM head WHERE {TWIN} AND action_digest IN {_LISTED} GROUP BY 1"
        )
        return dict(self._rows(sql, (_listed(action_digests),)))

    def denials(self, action_digests: Iterable[str]) -> dict[str, str]:
        sql = f"SELECT action_digest, invocation_id FROM denial WHERE action_digest IN {_LISTED}"
        return dict(self._rows(sql, (_listed(action_digests),)))

    def published_unclaimed(self) -> dict[str, int]:
        return dict(self._rows(PUBLISHED_UNCLAIMED))

    def next_ready(self, pool: str, limit: int) -> list[Head]:
        return [head_from(row) for row in self._rows(NEXT_READY, (pool, limit))]

    def due(self, before_us: int, limit: int) -> list[Due]:
        sql = "SELECT kind, id, what, at_us FROM due WHERE at_us <= ? ORDER BY at_us, kind, id LIMIT ?"
        return [Due(*row) for row in self._rows(sql, (before_us, limit))]

    def due_after(self, after_us: int, limit: int) -> list[Due]:
        sql = "SELECT kind, id, what, at_us FROM due WHERE at_us > ? ORDER BY at_us DESC LIMIT ?"
        return [Due(*row) for row in self._rows(sql, (after_us, limit))]

    def due_of(self, streams: Iterable[Stream]) -> dict[Stream, Due]:
        sql = f"SELECT kind, id, what, at_us FROM due WHERE kind = ? AND id IN {_LISTED}"
        rows = (row for kind, ids in _by_kind(streams) for row in self._rows(sql, (kind, ids)))
        return {Stream(row[0], row[1]): Due(*row) for row in rows}

    def contracts(self, digests: Iterable[str]) -> dict[str, bytes]:
        return dict(
            self._rows(f"SELECT digest, body FROM contract WHERE digest IN {_LISTED}", (_listed(digests),))
        )

    def boots(self) -> list[Boot]:
        sql = """SELECT boot_id, role, host, pid, counter, started_us, stopped FROM boot
            WHERE stopped = 0 ORDER BY boot_id"""
        return [Boot._make((*row[:-1], row[-1] == 1)) for row in self._rows(sql)]

    def counts(self) -> dict[str, int]:
        open_phases: dict[str, int] = dict(
            self._rows(f"SELECT phase, count(*) FROM head INDEXED BY head_phase WHERE {OPEN} GROUP BY phase")
        )
        total = int(self._rows("SELECT count(*) FROM head WHERE kind = 'invocation'")[0][0])
        done = total - sum(open_phases.values())
        return {**open_phases, "done": done} if done else open_phases

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._settled_rows(sql, values)

    def _settled_rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """What the tables hold, whatever waits to be written."""
        return self._connection.execute(sql, values).fetchall()

    def _heads(self, where: str, values: Sequence[Any]) -> list[Head]:
        return [head_from(row) for row in self._rows(f"SELECT {_HEAD} FROM head WHERE {where}", values)]

    def _head_rows(self, streams: Iterable[Stream]) -> dict[Stream, Row]:
        sql = f"SELECT {_HEAD} FROM head WHERE kind = ? AND id IN {_LISTED}"
        rows = (row for kind, ids in _by_kind(streams) for row in self._rows(sql, (kind, ids)))
        return {Stream(row[0], row[1]): row for row in rows}

    def _heads_by_acceptance(self, phase: str | None, session: str | None, limit: int) -> list[Head]:
        """Through the log, whose order is that of acceptance; heads have no index over what is final."""
        where, values = "", []
        for column, value in (("e.session", session), ("h.phase", phase)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        log = "tool_event e NOT INDEXED" if session is None else "tool_event e"
        sql = f"""SELECT {_HEAD_H} FROM {log} CROSS JOIN head h ON h.kind = e.kind AND h.id = e.stream
            WHERE e.kind = 'invocation' AND e.version = 1{where} ORDER BY e.ord LIMIT ?"""
        return [head_from(row) for row in self._rows(sql, (*values, limit))]


def head_from(row: Row) -> Head:
    """A head of its columns, in their order."""
    values = list(row)
    for place in HEAD_BOOLEANS:
        values[place] = values[place] == 1
    return Head._make(values)


def event_from(row: Row) -> StoredEvent:
    """An event of its columns, in their order."""
    return StoredEvent._make((*row[:11], row[11] == 1, row[12], row[13].hex()))


def _by_kind(streams: Iterable[Stream]) -> list[tuple[str, str]]:
    """Kind and the list of its ids, for each kind."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for kind, stream_id in streams:
        kinds[kind].append(stream_id)
    return [(kind, json.dumps(ids)) for kind, ids in kinds.items()]


def _listed(values: Iterable[str]) -> str:
    return json.dumps(list(values))

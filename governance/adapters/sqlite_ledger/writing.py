"""The write transaction of the ledger on SQLite: each stream's append all or none, at the version judged.

Under the one writer's turn what was read stays true until the end, so heads are read once. New heads and due
rows wait for the first question about them, or the end: most change once more before. Never commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from governance.adapters.sqlite_ledger.reading import (
    NEXT_READY,
    PUBLISHED_UNCLAIMED,
    Row,
    SqliteView,
    head_from,
)
from governance.adapters.sqlite_ledger.schema import EVENT_COLUMNS, HEAD_COLUMNS, READY_PHASES
from governance.append import ANY_VERSION, require_appends
from governance.chain import genesis, place
from governance.ledger import Append, Boot, Due, Head, KeyName, KeyOwner
from interlock.errors import ConflictError
from interlock.event import Stream, StreamKind

_VERSION, _AT, _TENANT, _SESSION, _PHASE, _POOL, _PRIORITY, _ACCEPTED, _READY, _PUBLISHED = (
    HEAD_COLUMNS.index(column)
    for column in (
        "version", "at_us", "tenant", "session", "phase", "pool", "priority", "accepted_seq", "ready",
        "published_us",
    )
)  # fmt: skip
_turn_of = itemgetter(_PRIORITY, _ACCEPTED)
_FIRST = 2  # the columns before it are the key
_row_of = attrgetter(*HEAD_COLUMNS)

# What moves with an invocation. The rest is said once and never changes, so its indexes are left alone.
_MOVING = (
    "version", "at_us", "phase", "data", "ready", "published_us", "attempt", "nonce", "boot", "claimed_us",
    "started", "permit_until_us", "epoch", "alone", "cancel",
)  # fmt: skip
_MOVING_PLACES = tuple(HEAD_COLUMNS.index(column) for column in _MOVING)
_STILL_PLACES = tuple(place for place in range(_FIRST, len(HEAD_COLUMNS)) if place not in _MOVING_PLACES)
_moving_of = itemgetter(*_MOVING_PLACES)
_still_of = itemgetter(*_STILL_PLACES)


def _assigned(columns: Iterable[str]) -> str:
    return ", ".join(f"{column} = ?" for column in columns)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({_marks(len(columns))})"


_INSERT_EVENT = _insert("tool_event", (*EVENT_COLUMNS, "payload_sha"))
_INSERT_HEAD = _insert("head", HEAD_COLUMNS)
_MOVE_HEAD = f"UPDATE head SET {_assigned(_MOVING)} WHERE kind = ? AND id = ?"
_CHANGE_HEAD = f"UPDATE head SET {_assigned(HEAD_COLUMNS[_FIRST:])} WHERE kind = ? AND id = ?"
_PUT_DUE = """INSERT INTO due (kind, id, what, at_us) VALUES (?, ?, ?, ?)
    ON CONFLICT (kind, id) DO UPDATE SET what = excluded.what, at_us = excluded.at_us"""
_DROP_DUE = "DELETE FROM due WHERE kind = ? AND id = ?"
# A cut tail leaves its number in sqlite_sequence: the gap stays visible rather than being filled.
_LAST = """SELECT
    max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tool_event'), 0),
        coalesce((SELECT max(ord) FROM tool_event), 0)),
    (SELECT hash FROM tool_event ORDER BY ord DESC LIMIT 1)"""


class SqliteTransaction(SqliteView):
    """Reads and writes under the one writer's turn."""

    def __init__(self, connection: sqlite3.Connection, now_us: int, incarnation: str) -> None:
        super().__init__(connection, now_us)
        self._incarnation = incarnation
        self._known: dict[Stream, Row | None] = {}
        self._new: dict[Stream, list[Any]] = {}
        """Heads that are in no table yet."""
        self._dues: dict[Stream, Due] = {}
        """Due rows that are in no table yet, as they will be."""
        self._last: tuple[int, str] | None = None
        self._is_broken = False

    def finish(self) -> None:
        """Write what waits. Raises RuntimeError where an append failed half-way and the caller went on."""
        if self._is_broken:
            raise RuntimeError("an append failed in this transaction; it cannot be committed")
        self._settle()

    def heads(self, streams: Iterable[Stream]) -> dict[Stream, Head]:
        rows = self._heads_known(list(streams))
        return {stream: head_from(row) for stream, row in rows.items() if row is not None}

    def append(self, appends: Sequence[Append]) -> set[Stream]:
        require_appends(appends)
        before = self._heads_known([append.stream for append in appends])
        won = [append for append in appends if _stands(append, before[append.stream])]
        # By stream, so that every store writes a batch in one order.
        won.sort(key=lambda append: append.stream)
        if any(append.stream in self._new for append in won):
            self._settle()
        if won:
            self._is_broken = True
            self._write(won, before)
            self._is_broken = False
        return {append.stream for append in appends} - {append.stream for append in won}

    def published_unclaimed(self) -> dict[str, int]:
        # New heads are marked as published only where they wait, and nobody asks in between.
        if any(row[_PUBLISHED] for row in self._new.values()):
            self._settle()
        return dict(self._settled_rows(PUBLISHED_UNCLAIMED))

    def next_ready(self, pool: str, limit: int) -> list[Head]:
        found = self._settled_rows(NEXT_READY, (pool, limit))
        found += [tuple(row) for row in self._new.values() if row[_POOL] == pool and _is_waiting(row)]
        return [head_from(row) for row in sorted(found, key=_turn_of)[:limit]]

    def mark_published(self, invocation_ids: Sequence[str], dues: Sequence[Due]) -> None:
        stored: list[Row] = []
        for invocation_id in invocation_ids:
            row = self._new.get(Stream(StreamKind.INVOCATION.value, invocation_id))
            if row is None:
                stored.append((self._now_us, invocation_id))
            else:
                row[_PUBLISHED] = self._now_us
        self._many("UPDATE head SET published_us = ? WHERE kind = 'invocation' AND id = ?", stored)
        self._dues.update((Stream(due.kind, due.id), due) for due in dues)
        self._forget(invocation_ids)

    def mark_ready(self, invocation_ids: Sequence[str]) -> None:
        self._settle()
        self._many(
            "UPDATE head SET ready = 1, published_us = 0 WHERE kind = 'invocation' AND id = ? AND ready = 0",
            [(invocation_id,) for invocation_id in invocation_ids],
        )
        self._forget(invocation_ids)

    def set_due(self, due: Due) -> None:
        self._dues[due.stream] = due

    def bind_key(self, name: KeyName, owner: KeyOwner) -> None:
        if self.key_owners([name]):
            raise ConflictError(f"key:{name.tenant}/{name.client}/{name.key}", 0, 1)
        self._connection.execute("INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?)", (*name, *owner))

    def deny(self, action_digest: str, invocation_id: str) -> None:
        self._connection.execute("INSERT OR IGNORE INTO denial VALUES (?, ?)", (action_digest, invocation_id))

    def put_contract(self, digest: str, body: bytes) -> None:
        self._connection.execute("INSERT OR IGNORE INTO contract VALUES (?, ?)", (digest, body))

    def raise_epoch(self) -> int:
        return int(self._rows("UPDATE control SET epoch = epoch + 1 RETURNING epoch")[0][0])

    def beat(self, boot: Boot) -> None:
        self._connection.execute("INSERT OR REPLACE INTO boot VALUES (?, ?, ?, ?, ?, ?, ?)", boot)

    def _write(self, won: Sequence[Append], before: dict[Stream, Row | None]) -> None:
        events: list[Row] = []
        new: list[list[Any]] = []
        moved: list[Row] = []
        changed: list[Row] = []
        seq, previous = self._last_link()
        for append in won:
            row = before[append.stream]
            after = _row_after(append, row, self._now_us)
            placed = place(
                append.stream, 0 if row is None else row[_VERSION], append.events,
                after_seq=seq, previous=previous, at_us=after[_AT],
                tenant=append.tenant or after[_TENANT], session=append.session or after[_SESSION],
            )  # fmt: skip
            if row is None and append.stream.kind == StreamKind.INVOCATION:
                after[_ACCEPTED] = placed[0][0].seq
            seq, previous = placed[-1][0].seq, placed[-1][0].hash
            events += [(*e[:13], bytes.fromhex(e.hash), bytes.fromhex(digest)) for e, digest in placed]
            self._known[append.stream] = tuple(after)
            _sort_in(after, row, new, moved, changed)
        self._last = seq, previous
        self._many(_INSERT_EVENT, events)
        self._many(_MOVE_HEAD, moved)
        self._many(_CHANGE_HEAD, changed)
        self._many(_DROP_DUE, [append.stream for append in won if append.due is None])
        for append in won:
            self._dues.pop(append.stream, None)
            if append.due is not None:
                self._dues[append.stream] = append.due
        self._new.update((Stream(row[0], row[1]), row) for row in new)

    def _last_link(self) -> tuple[int, str]:
        if self._last is None:
            seq, digest = self._rows(_LAST)[0]
            self._last = seq, genesis(self._incarnation) if digest is None else digest.hex()
        return self._last

    def _heads_known(self, streams: Sequence[Stream]) -> dict[Stream, Row | None]:
        asked = [stream for stream in streams if stream not in self._known]
        if asked:
            found = self._head_rows(asked)
            self._known.update((stream, found.get(stream)) for stream in asked)
        return {stream: self._known[stream] for stream in streams}

    def _forget(self, invocation_ids: Iterable[str]) -> None:
        for invocation_id in invocation_ids:
            self._known.pop(Stream(StreamKind.INVOCATION.value, invocation_id), None)

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        self._settle()
        return super()._rows(sql, values)

    def _settle(self) -> None:
        """Put what waits into its tables."""
        if not (self._new or self._dues):
            return
        new, dues, was_broken, self._is_broken = self._new, self._dues, self._is_broken, True
        self._new, self._dues = {}, {}
        self._many(_INSERT_HEAD, list(new.values()))
        self._many(_PUT_DUE, list(dues.values()))
        self._is_broken = was_broken

    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._connection.executemany(sql, rows)


def _stands(append: Append, before: Row | None) -> bool:
    version = 0 if before is None else before[_VERSION]
    return append.expected in (ANY_VERSION, version)


def _row_after(append: Append, before: Row | None, now_us: int) -> list[Any]:
    """The head's row after the append; what only the ledger knows is set here."""
    if append.head is not None:
        after = list(_row_of(append.head))
        after[:_FIRST] = append.stream
    elif before is not None:
        after = list(before)
    else:
        after = list(_row_of(Head(*append.stream, tenant=append.tenant, session=append.session)))
    after[_VERSION] = (0 if before is None else before[_VERSION]) + len(append.events)
    after[_AT] = now_us if before is None else max(now_us, before[_AT])
    if before is not None:
        after[_ACCEPTED] = before[_ACCEPTED]
    return after


def _is_waiting(row: Sequence[Any]) -> bool:
    """What `NEXT_READY` asks for, of a row that is in no table yet."""
    return row[_READY] == 1 and row[_PUBLISHED] == 0 and row[_PHASE] in READY_PHASES


def _sort_in(
    after: list[Any], before: Row | None, new: list[list[Any]], moved: list[Row], changed: list[Row]
) -> None:
    """Put the row where its statement is: a new head, one that moved on, or one that is another now."""
    if before is None:
        new.append(after)
    elif _still_of(after) == _still_of(before):
        moved.append((*_moving_of(after), *after[:_FIRST]))
    else:
        changed.append((*after[_FIRST:], *after[:_FIRST]))

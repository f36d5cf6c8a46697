"""The write transaction of the ledger on SQLite: each stream's append all or none, at the version judged.

Under the one writer's turn what was read stays true until the end, so heads are read once. New heads and due
rows wait for the first question about them, or the end: most change once more before. Never commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
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
from governance.ledger import Append, Boot, Due, Head, KeyName, KeyOwner, head_with
from interlock.errors import ConflictError
from interlock.event import Stream, StreamKind

_turn_of = attrgetter("priority", "accepted_seq")
_FIRST = 2  # the columns before it are the key
_VERSION, _AT, _ACCEPTED = map(HEAD_COLUMNS.index, ("version", "at_us", "accepted_seq"))
_INVOCATION = StreamKind.INVOCATION.value

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
        self._known: dict[Stream, Head | None] = {}
        self._new: dict[Stream, Head] = {}
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
        known = self._heads_known(list(streams))
        return {stream: head for stream, head in known.items() if head is not None}

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
        if any(head.published_us for head in self._new.values()):
            self._settle()
        return dict(self._settled_rows(PUBLISHED_UNCLAIMED))

    def next_ready(self, pool: str, limit: int) -> list[Head]:
        found = [head_from(row) for row in self._settled_rows(NEXT_READY, (pool, limit))]
        found += [head for head in self._new.values() if head.pool == pool and _is_waiting(head)]
        return sorted(found, key=_turn_of)[:limit]

    def mark_published(self, invocation_ids: Sequence[str], dues: Sequence[Due]) -> None:
        stored: list[Row] = []
        for invocation_id in invocation_ids:
            stream = Stream(_INVOCATION, invocation_id)
            head = self._new.get(stream)
            if head is None:
                stored.append((self._now_us, invocation_id))
                self._known.pop(stream, None)
            else:
                self._known[stream] = self._new[stream] = head_with(head, published_us=self._now_us)
        self._many("UPDATE head SET published_us = ? WHERE kind = 'invocation' AND id = ?", stored)
        self._dues.update((due.stream, due) for due in dues)

    def mark_ready(self, invocation_ids: Sequence[str]) -> None:
        self._settle()
        self._many(
            "UPDATE head SET ready = 1, published_us = 0 WHERE kind = 'invocation' AND id = ? AND ready = 0",
            [(invocation_id,) for invocation_id in invocation_ids],
        )
        for invocation_id in invocation_ids:
            self._known.pop(Stream(_INVOCATION, invocation_id), None)

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

    def _write(self, won: Sequence[Append], heads: Mapping[Stream, Head | None]) -> None:
        events: list[Row] = []
        moved: list[Row] = []
        changed: list[Row] = []
        seq, previous = self._last_link()
        for append in won:
            before = heads[append.stream]
            after = _head_after(append, before, self._now_us, seq + 1)
            placed = place(
                append.stream, 0 if before is None else before.version, append.events,
                after_seq=seq, previous=previous, at_us=after.at_us,
                tenant=append.tenant or after.tenant, session=append.session or after.session,
            )  # fmt: skip
            seq, previous = placed[-1][0].seq, placed[-1][0].hash
            events += [(*e[:13], bytes.fromhex(e.hash), bytes.fromhex(digest)) for e, digest in placed]
            self._known[append.stream] = after
            # Each where its statement is: a new head, one that moved on, or one that is another now.
            if before is None:
                self._new[append.stream] = after
            elif _still_of(after) == _still_of(before):
                moved.append((*_moving_of(after), *after[:_FIRST]))
            else:
                changed.append((*after[_FIRST:], *after[:_FIRST]))
        self._last = seq, previous
        self._many(_INSERT_EVENT, events)
        self._many(_MOVE_HEAD, moved)
        self._many(_CHANGE_HEAD, changed)
        self._many(_DROP_DUE, [append.stream for append in won if append.due is None])
        for append in won:
            self._dues.pop(append.stream, None)
            if append.due is not None:
                self._dues[append.stream] = append.due

    def _last_link(self) -> tuple[int, str]:
        if self._last is None:
            seq, digest = self._rows(_LAST)[0]
            self._last = seq, genesis(self._incarnation) if digest is None else digest.hex()
        return self._last

    def _heads_known(self, streams: Sequence[Stream]) -> dict[Stream, Head | None]:
        asked = [stream for stream in streams if stream not in self._known]
        if asked:
            found = super().heads(asked)
            self._known.update((stream, found.get(stream)) for stream in asked)
        return {stream: self._known[stream] for stream in streams}

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


def _stands(append: Append, before: Head | None) -> bool:
    version = 0 if before is None else before.version
    return append.expected in (ANY_VERSION, version)


def _head_after(append: Append, before: Head | None, now_us: int, seq: int) -> Head:
    """The head after the append; what only the ledger knows is set here. `seq` is its first event's."""
    stands = append.head or before or Head("", "", tenant=append.tenant, session=append.session)
    values = list(stands)
    values[:_FIRST] = append.stream
    values[_VERSION] = (0 if before is None else before.version) + len(append.events)
    values[_AT] = now_us if before is None else max(now_us, before.at_us)
    if before is not None:
        values[_ACCEPTED] = before.accepted_seq
    elif append.stream.kind == _INVOCATION:
        values[_ACCEPTED] = seq
    return Head._make(values)


def _is_waiting(head: Head) -> bool:
    """What `NEXT_READY` asks for, of a head that is in no table yet."""
    return head.ready and not head.published_us and head.phase in READY_PHASES

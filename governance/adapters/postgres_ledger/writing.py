"""The write transaction of the ledger on PostgreSQL: each stream's append all or none, at the version judged.

The heads are the compare-and-set: whoever moves a head's version writes the events, in two statements for any
number of streams. Never commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any

from governance.adapters.postgres_ledger.binary import Packed, blobs, column, flags, number, numbers, texts
from governance.adapters.postgres_ledger.connection import Connection
from governance.adapters.postgres_ledger.reading import HEAD, NEXT_READY, PostgresView, Row, found_by
from governance.adapters.postgres_ledger.schema import EVENT_COLUMNS, HEAD_COLUMNS, HEAD_TYPES
from governance.append import ANY_VERSION, KEY_LIFE_US, require_appends
from governance.ledger import Append, Boot, Due, Head, KeyName, KeyOwner
from interlock.errors import ConflictError
from interlock.event import Stream, StreamKind

_VERSION, _AT, _TENANT, _SESSION, _ACCEPTED = (
    HEAD_COLUMNS.index(name) for name in ("version", "at_us", "tenant", "session", "accepted_seq")
)
_FIRST = 2  # the columns before it are the key
_row_of = attrgetter(*HEAD_COLUMNS)

# What moves with an invocation; the rest is said once, and is sent again only where it is another now.
_MOVING = (
    "version", "at_us", "phase", "data", "ready", "published_us", "attempt", "nonce", "boot", "claimed_us",
    "started", "permit_until_us", "epoch", "alone", "cancel",
)  # fmt: skip
_CHANGING = tuple(name for name in HEAD_COLUMNS[_FIRST:] if name != "accepted_seq")
_still_of = itemgetter(*(HEAD_COLUMNS.index(name) for name in _CHANGING if name not in _MOVING))


def _asked(names: Sequence[str]) -> str:
    """Arrays as a table `u` of these columns."""
    # Side by side in a list of results: as arguments of one unnest, each column is stored and read back.
    return f"(SELECT {', '.join(f'unnest(%b) AS {name}' for name in names)} OFFSET 0) u"


_SAME = found_by(("kind", "id"), "h", "u")


def _heads_sql(moved: Sequence[str], *, is_new: bool) -> str:
    """Numbers for the events, heads moved on at the version judged, and new ones where there is none.

    A row with the numbers, then one for each head that was written.
    """
    parts = ["n AS MATERIALIZED (SELECT array_agg(nextval('tool_event_ord')) o FROM generate_series(1, %b))"]
    found = "SELECT o, NULL, NULL, 0::bigint, 0::bigint FROM n"
    written = "kind, id, at_us, accepted_seq"
    if moved:
        assigned = ", ".join(f"{name} = u.{name}" for name in moved if name != "at_us")
        parts.append(f"""moved AS (
            UPDATE head h SET {assigned}, at_us = greatest(u.at_us, h.at_us)
            FROM {_asked(("kind", "id", "expected", *moved))}
            WHERE {_SAME} AND h.version = u.expected
            RETURNING h.kind, h.id, h.at_us, h.accepted_seq)""")
        found += f" UNION ALL SELECT NULL, {written} FROM moved"
    if is_new:
        values = ", ".join(f"u.{name}" for name in HEAD_COLUMNS if name != "accepted_seq")
        names = ", ".join(name for name in HEAD_COLUMNS if name != "accepted_seq")
        # The order of acceptance is the request's own number, which lies in the log for `verify` to compare.
        accepted = "CASE WHEN u.kind = 'invocation' THEN (SELECT o FROM n)[u.place] ELSE u.accepted_seq END"
        parts.append(f"""made AS (
            INSERT INTO head ({names}, accepted_seq) SELECT {values}, {accepted}
            FROM {_asked((*HEAD_COLUMNS, "place"))}
            ON CONFLICT (kind, id) DO NOTHING RETURNING {written})""")
        found += f" UNION ALL SELECT NULL, {written} FROM made"
    return f"WITH {', '.join(parts)} {found}"


_PUT_DUE = f"""INSERT INTO due (kind, id, what, at_us) SELECT u.* FROM {_asked(Due._fields)}
    ON CONFLICT (kind, id) DO UPDATE SET what = excluded.what, at_us = excluded.at_us"""
_DROP_DUE = f"DELETE FROM due h USING {_asked(('kind', 'id'))} WHERE {_SAME}"
_LOGGED = ("ord", *EVENT_COLUMNS, "payload_sha")


_PUT_EVENTS = f"INSERT INTO tool_event ({', '.join(_LOGGED)}) SELECT u.* FROM {_asked(_LOGGED)}"


_EITHER = (False, True)
_HEADS: Mapping[tuple[tuple[str, ...], bool], str] = MappingProxyType(
    {(moved, new): _heads_sql(moved, is_new=new) for moved in ((), _MOVING, _CHANGING) for new in _EITHER}
)
# Held until the end, so that whatever version is found stays that one.
_HELD = f"""SELECT {HEAD} FROM {_asked(("kind", "id"))} JOIN head h ON {_SAME}
    ORDER BY h.kind, h.id FOR UPDATE OF h"""
# What another one is about to publish or to claim is left to it: its hint must not go out twice.
_NEXT_HELD = f"{NEXT_READY} FOR UPDATE OF h SKIP LOCKED"
_MARK_PUBLISHED = f"""UPDATE head h SET published_us = u.at_us FROM {_asked(("kind", "id", "at_us"))}
    WHERE {_SAME}"""
_MARK_READY = f"""UPDATE head h SET ready = true, published_us = 0 FROM {_asked(("kind", "id"))}
    WHERE {_SAME} AND NOT h.ready"""
# A binding is taken over only from an invocation that this statement itself sees to be long final.
_BIND_KEY = """INSERT INTO idempotency AS i VALUES (%b, %b, %b, %b, %b)
    ON CONFLICT (tenant, client, key) DO UPDATE
    SET invocation_id = excluded.invocation_id, request_digest = excluded.request_digest
    WHERE EXISTS (SELECT 1 FROM head h WHERE h.kind = 'invocation' AND h.id = i.invocation_id
        AND h.phase = 'done' AND h.at_us <= %b OFFSET 0)
    RETURNING 1"""
_BEAT = """INSERT INTO boot VALUES (%b, %b, %b, %b, %b, %b, %b)
    ON CONFLICT (boot_id) DO UPDATE SET role = excluded.role, host = excluded.host, pid = excluded.pid,
    counter = excluded.counter, started_us = excluded.started_us, stopped = excluded.stopped"""


class PostgresTransaction(PostgresView):
    """Reads and writes under the locks of its keys.

    A head that was read is known until the end or until an append lost: who may change it holds its key.
    What falls due is written once, at the end, or before it is asked for: a batch often says it twice.
    """

    def __init__(self, connection: Connection, now_us: int) -> None:
        super().__init__(connection, now_us)
        self._known: dict[Stream, Row | None] = {}
        self._dues: dict[Stream, Due | None] = {}
        self._is_broken = False

    def finish(self) -> None:
        """Write what is still to be written, before the commit.

        Raises RuntimeError where an append failed half-way and the caller went on all the same.
        """
        if self._is_broken:
            raise RuntimeError("an append failed in this transaction; it cannot be committed")
        self._put_dues()

    def heads(self, streams: Iterable[Stream]) -> dict[Stream, Head]:
        rows = self._heads_known(list(streams))
        return {stream: Head(*row) for stream, row in rows.items() if row is not None}

    def append(self, appends: Sequence[Append]) -> set[Stream]:
        require_appends(appends)
        # By stream, so that every batch takes its rows in one order, and every store writes it in one.
        lost = self._append(self._at_any_version(sorted(appends, key=attrgetter("stream"))))
        again = [append for append in appends if append.expected == ANY_VERSION and append.stream in lost]
        if not again:
            return lost
        # Their first event came in between; now there is a row to hold.
        return lost - {append.stream for append in again} | self.append(again)

    def next_ready(self, pool: str, limit: int) -> list[Head]:
        return [Head(*row) for row in self._rows(_NEXT_HELD, (pool, number(limit)))]

    def mark_published(self, invocation_ids: Sequence[str], dues: Sequence[Due]) -> None:
        ids = sorted(set(invocation_ids))
        if ids:
            moments = numbers([self._now_us] * len(ids))
            self._do(_MARK_PUBLISHED, [_invocations(ids), texts(ids), moments])
        self._dues.update((due.stream, due) for due in dues)
        self._forget(map(_invocation, ids))

    def mark_ready(self, invocation_ids: Sequence[str]) -> None:
        ids = sorted(set(invocation_ids))
        if ids:
            self._do(_MARK_READY, [_invocations(ids), texts(ids)])
        self._forget(map(_invocation, ids))

    def set_due(self, due: Due) -> None:
        self._dues[due.stream] = due

    def due(self, before_us: int, limit: int) -> list[Due]:
        self._put_dues()
        return super().due(before_us, limit)

    def due_after(self, after_us: int, limit: int) -> list[Due]:
        self._put_dues()
        return super().due_after(after_us, limit)

    def due_of(self, streams: Iterable[Stream]) -> dict[Stream, Due]:
        self._put_dues()
        return super().due_of(streams)

    def bind_key(self, name: KeyName, owner: KeyOwner) -> None:
        if not self._rows(_BIND_KEY, (*name, *owner, number(self._now_us - KEY_LIFE_US))):
            raise ConflictError(f"key:{name.tenant}/{name.client}/{name.key}", 0, 1)

    def deny(self, action_digest: str, invocation_id: str) -> None:
        self._do("INSERT INTO denial VALUES (%b, %b) ON CONFLICT DO NOTHING", (action_digest, invocation_id))

    def put_contract(self, digest: str, body: bytes) -> None:
        self._do("INSERT INTO contract VALUES (%b, %b) ON CONFLICT DO NOTHING", (digest, body))

    def raise_epoch(self) -> int:
        return int(self._rows("UPDATE control SET epoch = epoch + 1 RETURNING epoch")[0][0])

    def beat(self, boot: Boot) -> None:
        said = (*boot[:3], number(boot.pid), number(boot.counter), number(boot.started_us), boot.stopped)
        self._do(_BEAT, said)

    def _at_any_version(self, appends: list[Append]) -> list[Append]:
        """Evidence is expected at the version that its stream has, which nobody moves any more."""
        streams = [append.stream for append in appends if append.expected == ANY_VERSION]
        if not streams:
            return appends
        rows = {Stream(row[0], row[1]): row for row in self._of_streams(_HELD, streams)}
        self._known.update((stream, rows.get(stream)) for stream in streams)
        return [
            append._replace(expected=rows[append.stream][_VERSION] if append.stream in rows else 0)
            if append.expected == ANY_VERSION
            else append
            for append in appends
        ]

    def _append(self, appends: Sequence[Append]) -> set[Stream]:
        """Write those that stand at the version they expect; the streams of the others."""
        before = self._heads_known([a.stream for a in appends if a.head is None and a.expected])
        judged = [(append, _row_after(append, before, self._now_us)) for append in appends]
        able = [(append, row) for append, row in judged if row is not None]
        if able:
            self._is_broken = True
            won = self._write(able)
            self._is_broken = False
        else:
            won = set()
        lost = {append.stream for append in appends} - won
        self._forget(lost)
        return lost

    def _write(self, judged: list[tuple[Append, list[Any]]]) -> set[Stream]:
        ords, written = self._move_heads(judged)
        won: list[tuple[Append, list[Any], int]] = []
        place = 0
        for append, row in judged:
            found = written.get(append.stream)
            if found is not None:
                row[_AT], row[_ACCEPTED] = found
                self._known[append.stream] = tuple(row)
                won.append((append, row, place))
            place += len(append.events)
        if won:
            self._put_events(won, ords)
        return {append.stream for append, _, _ in won}

    def _move_heads(
        self, judged: Sequence[tuple[Append, list[Any]]]
    ) -> tuple[list[int], dict[Stream, tuple[int, int]]]:
        """A number for each event, and of each head that was written its time and order of acceptance."""
        new: list[tuple[Any, ...]] = []
        moved: list[tuple[int, list[Any]]] = []
        place = 1
        for append, row in judged:
            if append.expected:
                moved.append((append.expected, row))
            else:
                new.append((*row, place))
            place += len(append.events)
        names = self._names_to_send(row for _, row in moved)
        values: list[Packed] = [number(place - 1)]
        if moved:
            values += [texts([row[0] for _, row in moved]), texts([row[1] for _, row in moved])]
            values.append(numbers([expected for expected, _ in moved]))
            rows = list(zip(*(row for _, row in moved), strict=True))
            values += [_column(name, rows[HEAD_COLUMNS.index(name)]) for name in names]
        if new:
            *columns, places = zip(*new, strict=True)
            values += [column(kind, said) for kind, said in zip(HEAD_TYPES, columns, strict=True)]
            values.append(numbers(places))
        (ords, *_), *found = self._rows(_HEADS[names, bool(new)], values)
        return ords, {Stream(row[1], row[2]): (row[3], row[4]) for row in found}

    def _names_to_send(self, rows: Iterable[Row | list[Any]]) -> tuple[str, ...]:
        """Which columns move: all that can, unless every head is known to keep what is said once."""
        names: tuple[str, ...] = ()
        for row in rows:
            before = self._known.get(Stream(row[0], row[1]))
            if before is None or _still_of(before) != _still_of(row):
                return _CHANGING
            names = _MOVING
        return names

    def _put_events(self, won: Sequence[tuple[Append, list[Any], int]], ords: Sequence[int]) -> None:
        events: list[tuple[Any, ...]] = []
        for append, row, place in won:
            tenant, session = append.tenant or row[_TENANT], append.session or row[_SESSION]
            version = row[_VERSION] - len(append.events)
            for step, new in enumerate(append.events):
                events.append(
                    (
                        ords[place + step], *append.stream, version + step + 1, new.type, new.format,
                        row[_AT], new.cause, new.actor, tenant, session, new.moves_state, new.payload,
                        sha256(new.payload).digest(),
                    )
                )  # fmt: skip
        columns = zip(_LOGGED, zip(*events, strict=True), strict=True)
        self._do(_PUT_EVENTS, [_log_column(name, said) for name, said in columns])
        self._dues.update((append.stream, append.due) for append, _, _ in won)

    def _put_dues(self) -> None:
        """By stream, so that every transaction takes its rows in one order."""
        asked, self._dues = sorted(self._dues.items()), {}
        put = [due for _, due in asked if due is not None]
        dropped = [stream for stream, due in asked if due is None]
        if dropped:
            self._do(_DROP_DUE, [texts(said) for said in zip(*dropped, strict=True)])
        if put:
            self._do(_PUT_DUE, _columns_of_dues(put))

    def _heads_known(self, streams: Sequence[Stream]) -> dict[Stream, Row | None]:
        asked = [stream for stream in streams if stream not in self._known]
        if asked:
            found = self._head_rows(asked)
            self._known.update((stream, found.get(stream)) for stream in asked)
        return {stream: self._known[stream] for stream in streams}

    def _forget(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            self._known.pop(stream, None)

    def _do(self, sql: str, values: Sequence[Any]) -> None:
        self._cursor.execute(sql, values)


def _row_after(append: Append, before: Mapping[Stream, Row | None], now_us: int) -> list[Any] | None:
    """The head's row after the append; None where it is at another version than expected for sure."""
    if append.head is not None:
        after = list(_row_of(append.head))
        after[:_FIRST] = append.stream
    elif append.expected == 0:
        after = list(_row_of(Head(*append.stream, tenant=append.tenant, session=append.session)))
    else:
        known = before[append.stream]
        if known is None or known[_VERSION] != append.expected:
            return None
        after = list(known)
    after[_VERSION] = append.expected + len(append.events)
    after[_AT] = now_us
    return after


def _invocation(invocation_id: str) -> Stream:
    return Stream(StreamKind.INVOCATION.value, invocation_id)


def _invocations(ids: Sequence[str]) -> Packed:
    """The kind of each of these."""
    return texts([StreamKind.INVOCATION.value] * len(ids))


def _columns_of_dues(dues: Sequence[Due]) -> list[Packed]:
    kinds, ids, whats, moments = zip(*dues, strict=True)
    return [texts(kinds), texts(ids), texts(whats), numbers(moments)]


_TYPE_OF: Mapping[str, str] = MappingProxyType(dict(zip(HEAD_COLUMNS, HEAD_TYPES, strict=True)))


def _column(name: str, values: Sequence[Any]) -> Packed:
    return column(_TYPE_OF[name], values)


def _log_column(name: str, values: Sequence[Any]) -> Packed:
    if name in ("payload", "payload_sha"):
        return blobs(values)
    if name in ("ord", "version", "format", "at_us"):
        return numbers(values)
    return flags(values) if name == "moves_state" else texts(values)

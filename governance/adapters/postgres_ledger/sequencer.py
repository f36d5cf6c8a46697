"""Gives committed events their place in one order and one chain, a batch at a time, by one leader.

It follows (transaction id, number) below the horizon, where nothing can appear any more. What it wrote is
durable when it returns; whoever is not the leader writes nothing, however late it wakes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from governance.adapters.postgres_ledger.binary import Packed, blobs, number, numbers, texts, xid, xids
from governance.adapters.postgres_ledger.connection import Connection
from governance.adapters.postgres_ledger.schema import EVENT_COLUMNS
from governance.adapters.postgres_ledger.store import PostgresLedger
from governance.chain import genesis, link
from interlock.clock import boottime_ns
from interlock.errors import LedgerFencedError, LedgerUnavailableError
from interlock.event import StoredEvent

_log = logging.getLogger(__name__)

_HORIZON = "pg_snapshot_xmin(pg_current_snapshot())"
_HEADER = ", ".join(f"e.{name}" for name in EVENT_COLUMNS if name != "payload")
# Rows behind the cursor may have their number already, where one before them waited for its own.
# OFFSET 0 keeps each question a look-up by an index, whatever the planner thinks of the tables' size.
_PLACEABLE = f"""SELECT e.xid, e.ord, {_HEADER}, e.payload_sha FROM tool_event e
    WHERE (e.xid, e.ord) > (%b, %b) AND e.xid < {_HORIZON}
        AND (%b OR NOT EXISTS (SELECT 1 FROM event_seq s WHERE s.ord = e.ord OFFSET 0))
    ORDER BY e.xid, e.ord LIMIT %b"""
_NUMBERED = """SELECT a.kind, a.stream, a.version FROM unnest(%b, %b, %b) a(kind, stream, version)
    CROSS JOIN LATERAL (SELECT ord FROM tool_event
        WHERE kind = a.kind AND stream = a.stream AND version = a.version OFFSET 0) p
    WHERE EXISTS (SELECT 1 FROM event_seq n WHERE n.ord = p.ord OFFSET 0)"""
_WAITING = "SELECT 1 FROM tool_event WHERE (xid, ord) > (%b, %b) ORDER BY xid, ord LIMIT 1"
_LEADER = """SELECT l.epoch, l.holder, l.counter, l.seq, l.xid, l.ord,
        (SELECT hash FROM event_seq ORDER BY seq DESC LIMIT 1), pg_snapshot_xmax(pg_current_snapshot()),
        (SELECT coalesce(max(seq), 0) FROM event_seq)
    FROM sequencer l WHERE l.name = 'relay'"""
# Counter and epoch are compared: nobody who lost the lead, nor an earlier answer that was lost, writes.
_MINE = "name = 'relay' AND epoch = %b AND counter = %b"
# The fence and the numbers are one statement, and so one transaction: all or nothing, by the leader only.
_PLACE = f"""WITH mine AS (
        UPDATE sequencer SET counter = counter + 1, seq = %b, xid = %b, ord = %b WHERE {_MINE} RETURNING 1)
    INSERT INTO event_seq (seq, xid, ord, hash)
    SELECT u.* FROM (SELECT unnest(%b), unnest(%b), unnest(%b), unnest(%b) OFFSET 0) u
    WHERE EXISTS (SELECT 1 FROM mine)"""
_BEAT = f"UPDATE sequencer SET counter = counter + 1 WHERE {_MINE}"
_TAKE = f"UPDATE sequencer SET epoch = epoch + 1, counter = counter + 1, holder = %b WHERE {_MINE}"
_LEAVE = f"UPDATE sequencer SET holder = '', counter = counter + 1 WHERE {_MINE}"


@dataclass(frozen=True, slots=True)
class SequencerSettings:
    """Sizes and times of one sequencer."""

    batch: int = 2_000
    lease_seconds: float = 3.0
    """How long a leader's counter may stand still before another takes its place."""
    looks: int = 4
    """In at least how many readings, spread over that time, it must have stood still."""
    beat_seconds: float = 0.5
    """How often a leader with nothing to do moves its counter."""
    stall_polls: int = 50
    """After how many looks in vain at what waits above the horizon it looks less often."""
    stall_seconds: float = 0.02


class Leader(NamedTuple):
    """The leader's row: who gives out numbers, and how far they go."""

    epoch: int
    holder: str
    counter: int
    seq: int
    xid: int
    ord: int


class _Place(NamedTuple):
    """One version of one stream."""

    kind: str
    stream: str
    version: int

    @property
    def before(self) -> _Place:
        return _Place(self.kind, self.stream, self.version - 1)


class _Row(NamedTuple):
    """One event about to be placed."""

    xid: int
    ord: int
    header: tuple[Any, ...]
    """The columns of a stored event between seq and payload."""
    payload_digest: bytes
    place: _Place


class PostgresSequencer:
    """One of any number of sequencers of a ledger, of which one leads. It belongs to one thread.

    `holder` names this life of this process in the leader's row and must be its own (a boot id, say).
    """

    def __init__(
        self,
        ledger: PostgresLedger,
        holder: str,
        *,
        settings: SequencerSettings | None = None,
        boottime: Callable[[], int] = boottime_ns,
    ) -> None:
        self._database = ledger.database
        self._genesis = genesis(ledger.info.incarnation)
        self._holder = holder
        self._settings = settings or SequencerSettings()
        self._boottime = boottime
        self._watch = _Watch(self._settings, boottime)
        self._stall = _Stall(self._settings)
        self._mine: Leader | None = None
        self._hash = ""
        self._placed = _Placed()
        self._is_dense = False
        """Whether nothing behind the cursor has a number, so that nobody needs to look."""
        self._beaten_ns = 0

    @property
    def is_leader(self) -> bool:
        """Whether this one led when it last asked."""
        return self._mine is not None

    def sequence(self) -> bool:
        """Place what can be placed, at most one batch, durably. True: ask again in a moment.

        False also where another one leads. Raises LedgerUnavailableError, after which it asks anew who
        leads, and LedgerFencedError where the log comes from a later life of the cluster than the present.
        """
        leader, self._mine = self._mine, None  # in doubt until it is proven
        if leader is None and not self._watch.is_due():
            return False
        if leader is not None and self._stall.is_resting():
            self._mine = leader
            return True
        try:
            with self._database.single() as connection:
                leader = leader or self._try_to_lead(connection)
                return leader is not None and self._step(connection, leader)
        except LedgerUnavailableError:
            self._watch.reset()
            raise

    def recent(self, after_seq: int, limit: int) -> list[StoredEvent] | None:
        """Durable events that follow `after_seq`, as far as this one placed them itself just now.

        Without their payloads. None where it does not know: the ledger does.
        """
        found = self._placed.following(after_seq, limit)
        is_last = self._mine is not None and self._mine.seq == after_seq
        return found if found or is_last else None

    def close(self) -> None:
        """Let another lead at once; nothing where this one does not. Raises LedgerUnavailableError."""
        leader, self._mine = self._mine, None
        if leader is not None:
            with self._database.single() as connection:
                _moved(connection, _LEAVE, leader)

    def _try_to_lead(self, connection: Connection) -> Leader | None:
        [row] = connection.execute(_LEADER, binary=True).fetchall()
        leader, last_hash, next_xid, last_seq = Leader(*row[:6]), row[6], row[7], row[8]
        if leader.seq < last_seq:
            raise LedgerFencedError(
                f"the sequencer's row says that numbers were given out up to {leader.seq}, "
                f"but the log ends at {last_seq}: the row was put back"
            )
        if leader.xid >= next_xid:
            raise LedgerFencedError(
                f"the log was sequenced up to transaction {leader.xid}, this cluster is at {next_xid}: "
                "it was restored from a dump"
            )
        if leader.holder != self._holder:
            if not self._watch.is_over(leader) or not _moved(connection, _TAKE, leader, self._holder):
                return None
            _log.info("sequencing from event %d, epoch %d", leader.seq + 1, leader.epoch + 1)
            leader = leader._replace(epoch=leader.epoch + 1, counter=leader.counter + 1, holder=self._holder)
        self._placed.forget()
        self._is_dense = False
        self._hash = self._genesis if last_hash is None else last_hash.hex()
        return leader

    def _step(self, connection: Connection, leader: Leader) -> bool:
        values = (xid(leader.xid), number(leader.ord), self._is_dense, number(self._settings.batch))
        found = connection.execute(_PLACEABLE, values, binary=True).fetchall()
        rows = [_Row(row[0], row[1], row[2:13], row[13], _Place(*row[2:5])) for row in found]
        placed = list(_in_order(rows, self._followed(connection, rows)))
        if placed:
            self._stall.end()
            self._mine = self._place(connection, leader, placed, _cursor(leader, rows, placed))
            is_whole = self._is_dense or len(rows) < self._settings.batch
            self._is_dense = is_whole and len(placed) == len(rows)
            return self._mine is not None
        self._mine = self._beat(connection, leader)
        return self._mine is not None and self._look_ahead(connection, leader)

    def _followed(self, connection: Connection, rows: Sequence[_Row]) -> set[_Place]:
        """Which places before those of these rows have their number, and are not among the rows."""
        among = {row.place for row in rows}
        before = [place.before for place in among if place.version > 1]
        asked = [place for place in before if place not in among]
        known = {place for place in asked if self._placed.reached(place)}
        unknown = [place for place in asked if place not in known]
        if unknown:
            kinds, streams, versions = zip(*unknown, strict=True)
            values = (texts(kinds), texts(streams), numbers(versions))
            found = connection.execute(_NUMBERED, values, binary=True).fetchall()
            known.update(_Place(*row) for row in found)
        return known

    def _place(
        self, connection: Connection, leader: Leader, placed: Sequence[_Row], cursor: tuple[int, int]
    ) -> Leader | None:
        """Write their numbers and hashes; None where this one leads no longer, and nothing was written."""
        last, hashes, events = self._hash, [], []
        for seq, row in enumerate(placed, leader.seq + 1):
            event = StoredEvent._make((seq, *row.header, b"", ""))
            last = link(last, event, row.payload_digest.hex())
            hashes.append(bytes.fromhex(last))
            events.append(StoredEvent._make((*event[:-1], last)))
        after = leader._replace(
            counter=leader.counter + 1, seq=leader.seq + len(placed), xid=cursor[0], ord=cursor[1]
        )
        values: list[Packed] = [number(after.seq), xid(after.xid), number(after.ord)]
        values += [
            number(leader.epoch),
            number(leader.counter),
            numbers(range(leader.seq + 1, after.seq + 1)),
        ]
        values += [xids([row.xid for row in placed]), numbers([row.ord for row in placed]), blobs(hashes)]
        if connection.execute(_PLACE, values, binary=True).rowcount != len(placed):
            return None
        self._hash = last
        self._placed.note(events)
        self._beaten_ns = self._boottime()
        return after

    def _beat(self, connection: Connection, leader: Leader) -> Leader | None:
        """Show, not too often, that the leader lives; None where it leads no longer."""
        now = self._boottime()
        if (now - self._beaten_ns) / 1e9 < self._settings.beat_seconds:
            return leader
        self._beaten_ns = now
        return leader._replace(counter=leader.counter + 1) if _moved(connection, _BEAT, leader) else None

    def _look_ahead(self, connection: Connection, leader: Leader) -> bool:
        """Whether something is committed that can have no number yet."""
        values = (xid(leader.xid), number(leader.ord))
        waiting = connection.execute(_WAITING, values, binary=True).fetchall()
        if waiting:
            self._stall.note()
        else:
            self._stall.end()
        return bool(waiting)


class _Placed:
    """What this leader placed itself, the latest of it: what it need not ask the ledger for."""

    STREAMS_MAX = 10_000
    EVENTS_MAX = 4_000
    """Whoever reads on from here gets the first of them, and the rest from the ledger."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], int] = {}
        self._events: list[StoredEvent] = []

    def forget(self) -> None:
        self._versions.clear()
        self._events = []

    def note(self, events: Sequence[StoredEvent]) -> None:
        """These are durable now, in this order."""
        for event in events:
            stream = (event.kind, event.stream_id)
            self._versions.pop(stream, None)
            self._versions[stream] = event.version
        for stream in list(islice(self._versions, max(0, len(self._versions) - self.STREAMS_MAX))):
            del self._versions[stream]
        if not self._events:
            self._events = list(events)
        elif len(self._events) < self.EVENTS_MAX and self._events[-1].seq == events[0].seq - 1:
            self._events += events

    def reached(self, place: _Place) -> bool:
        """Whether this place is known to have its number."""
        return self._versions.get((place.kind, place.stream), 0) >= place.version

    def following(self, after_seq: int, limit: int) -> list[StoredEvent]:
        """Those that follow this number without a gap; what is before them is forgotten."""
        first = self._events[0].seq if self._events else 0
        if after_seq + 1 < first:
            return []
        self._events = self._events[after_seq + 1 - first :]
        return self._events[:limit]


class _Watch:
    """Judges a leader by its counter, over this host's time since boot; a failed reading begins anew."""

    def __init__(self, settings: SequencerSettings, boottime: Callable[[], int]) -> None:
        self._settings, self._boottime = settings, boottime
        self._seen: tuple[int, int] | None = None
        self._since_ns = self._looked_ns = self._looks = 0

    def reset(self) -> None:
        self._seen = None

    def is_due(self) -> bool:
        """Whether it is time for another look: many in one moment prove nothing."""
        apart = self._settings.lease_seconds / (2 * self._settings.looks)
        return self._seen is None or (self._boottime() - self._looked_ns) / 1e9 >= apart

    def is_over(self, leader: Leader) -> bool:
        """Whether nobody leads, or the one who does has stood still for too long."""
        now, state = self._boottime(), (leader.epoch, leader.counter)
        self._looked_ns = now
        if state != self._seen:
            self._seen, self._since_ns, self._looks = state, now, 0
        self._looks += 1
        stood = (now - self._since_ns) / 1e9 >= self._settings.lease_seconds
        return not leader.holder or (stood and self._looks >= self._settings.looks)


class _Stall:
    """Looks in vain in a row: a horizon that stands for seconds is not asked a thousand times in each."""

    def __init__(self, settings: SequencerSettings) -> None:
        self._settings = settings
        self._looks = 0
        self._until = 0.0

    def note(self) -> None:
        self._looks += 1
        if self._looks > self._settings.stall_polls:
            self._until = time.monotonic() + self._settings.stall_seconds

    def end(self) -> None:
        self._looks, self._until = 0, 0.0

    def is_resting(self) -> bool:
        return time.monotonic() < self._until


def _in_order(rows: Sequence[_Row], followed: Collection[_Place]) -> Iterator[_Row]:
    """By place, but for a version that came before the one it follows: it waits for that one.

    A transaction that had its id early may write after one with a later id.
    """
    reached: set[_Place] = set()
    held: dict[_Place, _Row] = {}
    for row in rows:
        place = row.place
        if place.version > 1 and place.before not in reached and place.before not in followed:
            held[place] = row
            continue
        yield row
        reached.add(place)
        while held and (follower := held.pop(place._replace(version=place.version + 1), None)) is not None:
            yield follower
            place = follower.place
            reached.add(place)


def _cursor(leader: Leader, rows: Sequence[_Row], placed: Sequence[_Row]) -> tuple[int, int]:
    """The last place up to which every event has its number."""
    done = {(row.xid, row.ord) for row in placed}
    last = (leader.xid, leader.ord)
    for row in rows:
        if (row.xid, row.ord) not in done:
            return last
        last = (row.xid, row.ord)
    return last


def _moved(connection: Connection, sql: str, leader: Leader, *values: str) -> bool:
    """Whether the leader's row was still this one, and is the next one now."""
    place = (number(leader.epoch), number(leader.counter))
    return connection.execute(sql, (*values, *place), binary=True).rowcount == 1

"""Projection: ToolState kept up to date from the log, and the replayer that folds it anew.

Nothing here executes a tool, and nothing that decides reads a projection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from interlock.event import StoredEvent, StreamKind
from interlock.phase import Phase
from interlock.reduce import (
    REDUCER_VERSION,
    DefaultToolReducer,
    IllegalMoveError,
    ToolReducer,
    UnknownEventError,
    UnreadableEventError,
)
from interlock.state import SessionName, ToolInvocationRecord, ToolState
from interlock.workspace import DEFAULT_TENANT

CACHED_RECORDS_MAX = 20_000
_INVOCATION, _DONE = StreamKind.INVOCATION.value, Phase.DONE.value


class Checkpoint(NamedTuple):
    """How far a projection is, under which epoch, by which reducer."""

    name: str
    seq: int
    epoch: int
    reducer_version: int
    incarnation: str
    hash: str = ""
    """Chain hash of the last folded event, "" before the first."""


class StoppedSession(NamedTuple):
    """A session whose events can no longer be folded: its records stay as they were before `seq`."""

    session: str
    seq: int
    code: str
    """`EVENT_UNKNOWN`, `EVENT_INVALID` or `ILLEGAL_MOVE`."""
    detail: str
    tenant: str = DEFAULT_TENANT

    @property
    def name(self) -> SessionName:
        return SessionName(self.tenant, self.session)


class GapError(Exception):
    """An event is missing between two others."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"expected event {expected}, found {found}")
        self.expected, self.found = expected, found


class ForkError(Exception):
    """Two different events claim one place."""

    def __init__(self, seq: int) -> None:
        super().__init__(f"two different events have sequence number {seq}")
        self.seq = seq


class Projection(Protocol):
    """Where a projection's records and its checkpoint live, stored in one transaction.

    Every method raises RetryLaterError where the store cannot be reached now; nothing was stored then.
    """

    def checkpoint(self) -> Checkpoint:
        """The stored checkpoint; seq 0 for a new projection."""
        ...

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        """The stored records of these invocations."""
        ...

    def stopped(self) -> dict[SessionName, StoppedSession]:
        """The sessions that are no longer folded, by name."""
        ...

    def store(
        self,
        before: Checkpoint,
        after: Checkpoint,
        records: Sequence[ToolInvocationRecord],
        stopped: Sequence[StoppedSession] = (),
    ) -> bool:
        """Store records, stops and checkpoint together if the checkpoint still is `before`; False: somebody
        else did."""
        ...

    def restart(self, before: Checkpoint, after: Checkpoint) -> bool:
        """Forget everything and begin at `after`, if the checkpoint still is `before`; else False."""
        ...

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> ToolState:
        """The projected state of one session of a tenant."""
        ...

    def sessions(self) -> list[SessionName]:
        """Every session with a record, sorted."""
        ...


class ToolProjector:
    """Folds batches of events into a projection, exactly once each, in order. Belongs to one thread."""

    def __init__(self, projection: Projection, incarnation: str, reducer: ToolReducer | None = None) -> None:
        self._projection = projection
        self._incarnation = incarnation
        self._reducer = reducer or DefaultToolReducer()
        # What is known of the store as of one checkpoint; worth nothing after any other.
        self._known_at: Checkpoint | None = None
        self._open: dict[str, ToolInvocationRecord] = {}
        self._stopped: dict[SessionName, StoppedSession] = {}

    def checkpoint(self) -> Checkpoint:
        """Where the projection stands."""
        return self._projection.checkpoint()

    def apply(self, events: Sequence[StoredEvent], before: Checkpoint | None = None) -> Checkpoint | None:
        """Fold events and store; events at or below the checkpoint are passed over.

        `before` is the checkpoint the events were read after, where the caller knows it: what is stored then
        is compared with this one, so a projection that was put back meanwhile is no gap.

        Returns the new checkpoint, or None when another projector was faster. Raises GapError on a hole. What
        cannot be folded (an illegal move, an unknown event that moves state) stops its session only.
        """
        before = before or self._projection.checkpoint()
        fresh = [event for event in events if event.seq > before.seq]
        if not fresh:
            return before
        self._require_dense(before.seq, fresh)
        self._know(before)
        batch = self._fold(fresh)
        after = before._replace(
            seq=fresh[-1].seq,
            reducer_version=REDUCER_VERSION,
            incarnation=self._incarnation,
            hash=fresh[-1].hash,
        )
        if not self._projection.store(before, after, list(batch.changed.values()), batch.stopped):
            self._known_at = None
            return None
        self._learn(after, batch)
        return after

    @staticmethod
    def _require_dense(seq: int, events: Sequence[StoredEvent]) -> None:
        for expected, event in enumerate(events, start=seq + 1):
            if event.seq != expected:
                raise GapError(expected, event.seq)

    def _know(self, checkpoint: Checkpoint) -> None:
        if self._known_at == checkpoint:
            return
        self._open, self._stopped = {}, self._projection.stopped()
        self._known_at = checkpoint

    def _learn(self, checkpoint: Checkpoint, batch: _Batch) -> None:
        self._known_at = checkpoint
        self._stopped |= {stop.name: stop for stop in batch.stopped}
        for identity, record in batch.changed.items():
            self._open.pop(identity, None)
            if record.phase != _DONE:
                self._open[identity] = record
        for identity in list(self._open)[: max(0, len(self._open) - CACHED_RECORDS_MAX)]:
            del self._open[identity]

    def _fold(self, events: Sequence[StoredEvent]) -> _Batch:
        moving = [event for event in events if event.kind == _INVOCATION]
        records = self._records_before(moving)
        batch = _Batch({}, [])
        stopped = set(self._stopped)
        for event in moving:
            if stopped and SessionName(event.tenant, event.session) in stopped:
                continue
            try:
                after = self._reducer.apply(records.get(event.stream_id), event)
            except (IllegalMoveError, UnknownEventError, UnreadableEventError) as error:
                stopped.add(SessionName(event.tenant, event.session))
                batch.stopped.append(_stop(event, error))
                continue
            if after is not None:
                records[event.stream_id] = batch.changed[event.stream_id] = after
        return batch

    def _records_before(self, events: Sequence[StoredEvent]) -> dict[str, ToolInvocationRecord]:
        """Records of the streams that do not begin in this batch: from memory, else from the store."""
        begun = {event.stream_id for event in events if event.version > 1}
        begun.difference_update([event.stream_id for event in events if event.version == 1])
        known = {identity: self._open[identity] for identity in begun & self._open.keys()}
        missing = begun - known.keys()
        return known | self._projection.records(missing) if missing else known


class _Batch(NamedTuple):
    """What one batch of events came to."""

    changed: dict[str, ToolInvocationRecord]
    stopped: list[StoppedSession]


def _stop(
    event: StoredEvent, error: IllegalMoveError | UnknownEventError | UnreadableEventError
) -> StoppedSession:
    return StoppedSession(event.session, event.seq, error.code, error.message, event.tenant)


class EventReplayer:
    """Rebuilds state from recorded events alone; executes nothing."""

    def __init__(self, read: Callable[[int, int], Sequence[StoredEvent]], batch: int = 2_000) -> None:
        self._read = read
        self._batch = batch

    def batches(self, until_seq: int, after_seq: int = 0) -> Iterable[Sequence[StoredEvent]]:
        """Events with after_seq < seq ≤ until_seq, in order, in batches; ends early where the log does."""
        seq = after_seq
        while seq < until_seq:
            batch = self._read(seq, min(self._batch, until_seq - seq))
            if not batch:
                return
            yield batch
            seq = batch[-1].seq

    def events(self, until_seq: int) -> Iterable[StoredEvent]:
        """All events up to a sequence number, in order, in bounded memory."""
        for batch in self.batches(until_seq):
            yield from batch

    def rebuild(self, projector: ToolProjector, until_seq: int) -> int:
        """Fold everything into an empty projection; returns the sequence number reached."""
        seq = 0
        for batch in self.batches(until_seq):
            projector.apply(batch)
            seq = batch[-1].seq
        return seq

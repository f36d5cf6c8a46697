"""Projection: ToolState kept up to date from the log, and the replayer that folds it anew.

Nothing here executes a tool, and nothing that decides reads a projection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from interlock.event import StoredEvent, StreamKind
from interlock.state import REDUCER_VERSION, DefaultToolReducer, ToolInvocationRecord, ToolReducer, ToolState


class Checkpoint(NamedTuple):
    """How far a projection is, under which epoch, by which reducer."""

    name: str
    seq: int
    epoch: int
    reducer_version: int
    incarnation: str


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
    """Where a projection's records and its checkpoint live, stored in one transaction."""

    def checkpoint(self) -> Checkpoint:
        """The stored checkpoint; seq 0 for a new projection."""
        ...

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        """The stored records of these invocations."""
        ...

    def store(self, before: Checkpoint, after: Checkpoint, records: Sequence[ToolInvocationRecord]) -> bool:
        """Store records and checkpoint together if the checkpoint still is `before`; else False."""
        ...

    def state(self, session: str) -> ToolState:
        """The projected state of one session."""
        ...

    def sessions(self) -> list[str]:
        """Every session with a record."""
        ...


class ToolProjector:
    """Folds batches of events into a projection, exactly once each, in order."""

    def __init__(self, projection: Projection, incarnation: str, reducer: ToolReducer | None = None) -> None:
        self._projection = projection
        self._incarnation = incarnation
        self._reducer = reducer or DefaultToolReducer()

    def checkpoint(self) -> Checkpoint:
        """Where the projection stands."""
        return self._projection.checkpoint()

    def apply(self, events: Sequence[StoredEvent]) -> Checkpoint | None:
        """Fold events and store; events at or below the checkpoint are passed over.

        Returns the new checkpoint, or None when another projector was faster. Raises GapError on a hole,
        IllegalMoveError and UnknownEventError as the fold does.
        """
        before = self._projection.checkpoint()
        fresh = [event for event in events if event.seq > before.seq]
        if not fresh:
            return before
        self._require_dense(before.seq, fresh)
        changed = self._fold(fresh)
        after = before._replace(
            seq=fresh[-1].seq, reducer_version=REDUCER_VERSION, incarnation=self._incarnation
        )
        return after if self._projection.store(before, after, changed) else None

    @staticmethod
    def _require_dense(seq: int, events: Sequence[StoredEvent]) -> None:
        for expected, event in enumerate(events, start=seq + 1):
            if event.seq != expected:
                raise GapError(expected, event.seq)

    def _fold(self, events: Sequence[StoredEvent]) -> list[ToolInvocationRecord]:
        moving = [event for event in events if event.kind == StreamKind.INVOCATION.value]
        known = self._projection.records({event.stream_id for event in moving})
        changed: dict[str, ToolInvocationRecord] = {}
        for event in moving:
            before = changed.get(event.stream_id) or known.get(event.stream_id)
            after = self._reducer.apply(before, event)
            if after is not None:
                changed[event.stream_id] = after
        return list(changed.values())


class EventReplayer:
    """Rebuilds state from recorded events alone; executes nothing."""

    def __init__(self, read: Callable[[int, int], Sequence[StoredEvent]], batch: int = 2_000) -> None:
        self._read = read
        self._batch = batch

    def events(self, until_seq: int) -> Iterable[StoredEvent]:
        """All events up to a sequence number, in order, in bounded memory."""
        seq = 0
        while seq < until_seq:
            batch = self._read(seq, min(self._batch, until_seq - seq))
            if not batch:
                return
            yield from batch
            seq = batch[-1].seq

    def rebuild(self, projector: ToolProjector, until_seq: int) -> int:
        """Fold everything into an empty projection; returns how many events were folded."""
        seq = 0
        while seq < until_seq:
            batch = self._read(seq, min(self._batch, until_seq - seq))
            if not batch:
                break
            projector.apply(batch)
            seq = batch[-1].seq
        return seq

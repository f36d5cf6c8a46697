"""Opens a data directory to be read, whether its system runs or not: ledger, projection, records, outcomes.

It writes nothing and makes nothing. Import it after root was given up: it brings the stores along.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.embedded.directory import DataDirectory
from gateway.store import open_ledger, read_projection
from governance.ledger import Head, Ledger, LedgerView
from interlock.errors import InterlockError
from interlock.event import StoredEvent, Stream, StreamKind, invocation_stream
from interlock.phase import Phase
from interlock.projection import Checkpoint, StoppedSession
from interlock.reduce import DefaultToolReducer
from interlock.state import SessionName, ToolInvocationRecord, ToolState
from interlock.workspace import DEFAULT_TENANT

if TYPE_CHECKING:
    from gateway.store import OpenLedger, OpenProjection

POLL_FIRST_SECONDS = 0.002
POLL_SECONDS_MAX = 0.02
PAGE_EVENTS = 2_000
PAGE_IDS = 1_000
RESTING = frozenset((Phase.DONE.value, Phase.RECONCILIATION_REQUIRED.value))
"""Phases that are not left without somebody from outside."""


@dataclass(frozen=True, slots=True)
class ProjectedState:
    """One session's state at one place of the log."""

    checkpoint: Checkpoint
    state: ToolState
    data: bytes
    """The canonical bytes as they are stored."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A directory that is open to be read."""

    ledger: OpenLedger
    projection: OpenProjection | None
    """None where nothing was ever projected, or only by an older version of this program."""

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """The record as the ledger has it now."""
        return LedgerOutcomes(self.ledger).record(invocation_id)

    def projected(self, session: str, tenant: str = DEFAULT_TENANT) -> ProjectedState | None:
        """What the projection holds of one session."""
        if self.projection is None:
            return None
        with self.projection.frozen() as view:
            checkpoint = view.checkpoint()
            if checkpoint is None:
                return None
            state, data = view.state(session, tenant), view.state_bytes(session, tenant)
            return ProjectedState(checkpoint, state, data)

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> tuple[int, ToolState]:
        """The session as of the ledger's end, with that place: the projection, and what came after it.

        Of a session that cannot be folded further, the state before that place.
        """
        projected = self.projected(session, tenant)
        stop = self.stopped(session, tenant)
        if projected is not None and stop is not None:
            return stop.seq - 1, projected.state
        with self.ledger.read() as view:
            head = view.last_seq()
        after = 0 if projected is None else projected.checkpoint.seq
        state = ToolState(session, (), tenant) if projected is None else projected.state
        events = self.session_events(session, tenant, after=after, until=head)
        return max(after, head), fold_on(state, events)

    def stopped(self, session: str, tenant: str = DEFAULT_TENANT) -> StoppedSession | None:
        """Why and where the projector gave this session up: an event of it cannot be folded."""
        if self.projection is None:
            return None
        return self.projection.stopped().get(SessionName(tenant, session))

    def session_events(
        self, session: str, tenant: str = DEFAULT_TENANT, *, after: int = 0, until: int
    ) -> Iterator[StoredEvent]:
        """Events of one session with after < seq ≤ until, in order, in bounded memory."""
        while True:
            with self.ledger.read() as view:
                page = view.session_events(session, tenant, after_seq=after, limit=PAGE_EVENTS)
            for event in page:
                if event.seq > until:
                    return
                yield event
            if len(page) < PAGE_EVENTS:
                return
            after = page[-1].seq


def fold_on(state: ToolState, events: Iterable[StoredEvent]) -> ToolState:
    """The state after further events of its session; raises what the reducer raises."""
    reducer = DefaultToolReducer()
    records = {record.invocation_id: record for record in state.records}
    for event in events:
        if event.kind != StreamKind.INVOCATION.value or (event.tenant, event.session) != state.name:
            continue
        after = reducer.apply(records.get(event.stream_id), event)
        if after is not None:
            records[event.stream_id] = after
    in_order = tuple(sorted(records.values(), key=lambda record: record.position))
    return ToolState(state.session, in_order, state.tenant)


@contextmanager
def open_reading(directory: DataDirectory) -> Iterator[Reading]:
    """Ledger and projection of the directory; NotFoundError where there is no ledger yet."""
    ledger = open_ledger(directory, read_only=True)
    projection = None
    try:
        projection = read_projection(directory)
        yield Reading(ledger, projection)
    finally:
        if projection is not None:
            projection.close()
        ledger.close()


@contextmanager
def open_for_writing(directory: DataDirectory) -> Iterator[Ledger]:
    """The ledger of the directory, open to be appended to; it is never made here."""
    ledger = open_ledger(directory)
    try:
        yield ledger
    finally:
        ledger.close()


class LedgerOutcomes:
    """What became of invocations, read from the ledger itself: never behind it, asks no other process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """The folded record, None where the ledger has no such invocation."""
        stream = invocation_stream(invocation_id)
        with self._ledger.read() as view:
            events = view.events([stream]).get(stream, [])
        return fold_record(events)

    def records(self, invocation_ids: Sequence[str]) -> dict[str, ToolInvocationRecord]:
        """The folded records of those that the ledger has, from one reading."""
        with self._ledger.read() as view:
            return _records(view, [invocation_stream(one) for one in invocation_ids])

    def resting(self, invocation_ids: Sequence[str]) -> dict[str, ToolInvocationRecord]:
        """The records of those that are final, or unknown until somebody looks, a reading for each 1,000.

        What still moves costs a look at its head and no more.
        """
        found: dict[str, ToolInvocationRecord] = {}
        for start in range(0, len(invocation_ids), PAGE_IDS):
            streams = [invocation_stream(one) for one in invocation_ids[start : start + PAGE_IDS]]
            with self._ledger.read() as view:
                heads = view.heads(streams)
                found |= _records(view, [stream for stream in heads if heads[stream].phase in RESTING])
        return found

    def events(self, after: int, limit: int) -> list[StoredEvent]:
        """Events with seq > after, in order, at most `limit`."""
        with self._ledger.read() as view:
            return view.range(after, limit)

    def heads(self, invocation_ids: Iterable[str]) -> dict[str, Head]:
        """The heads that exist, by invocation."""
        streams = [invocation_stream(invocation_id) for invocation_id in invocation_ids]
        with self._ledger.read() as view:
            return {stream.id: head for stream, head in view.heads(streams).items()}

    def wait(
        self,
        invocation_ids: Sequence[str],
        seconds: float,
        *,
        pause: Callable[[float], object] | None = None,
    ) -> dict[str, Head]:
        """Wait until all rest (final, or unknown until somebody looks), at most so long; their heads then.

        The ledger is asked at growing intervals of at most 20 ms. `pause` waits in place of this method.
        """
        pause = pause or threading.Event().wait
        deadline = time.monotonic() + seconds
        interval = POLL_FIRST_SECONDS
        heads: dict[str, Head] = {}
        pending = list(invocation_ids)
        while True:
            heads |= self.heads(pending)
            pending = [one for one in pending if one not in heads or heads[one].phase not in RESTING]
            left = deadline - time.monotonic()
            if left <= 0 or not pending:
                return heads
            pause(min(interval, left))
            interval = min(interval * 1.5, POLL_SECONDS_MAX)


def _records(view: LedgerView, streams: Sequence[Stream]) -> dict[str, ToolInvocationRecord]:
    found = {stream.id: fold_record(events) for stream, events in view.events(streams).items()}
    return {one: record for one, record in found.items() if record is not None}


def fold_record(events: Sequence[StoredEvent]) -> ToolInvocationRecord | None:
    """The record that one invocation's events add up to; raises what the reducer raises."""
    reducer = DefaultToolReducer()
    record: ToolInvocationRecord | None = None
    for event in events:
        record = reducer.apply(record, event)
    return record


def count_running(directory: DataDirectory) -> int:
    """How many executions run now; 0 where the ledger cannot be asked."""
    try:
        with open_reading(directory) as reading, reading.ledger.read() as view:
            return view.counts().get(Phase.RUNNING.value, 0)
    except (InterlockError, OSError):
        return 0

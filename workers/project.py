"""The projector: follows the stream from its own checkpoint and keeps the projection of ToolState up to date.

An entry only says that there is something up to its number: bodies come from the ledger, in order, so a
stream that lost, doubled or disordered entries changes nothing. It decides nothing and appends nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from threading import Event
from typing import NamedTuple, Protocol

from governance.ledger import LedgerInfo
from interlock.errors import BrokerUnavailableError, RetryLaterError
from interlock.event import StoredEvent
from interlock.fault import FaultPoints, NoFaults
from interlock.gather import Gathering
from interlock.projection import Checkpoint, ForkError, Projection, StoppedSession, ToolProjector
from interlock.reduce import REDUCER_VERSION
from interlock.stream import EventStream, ProjectionNotice, StreamEntry

_log = logging.getLogger(__name__)


class EventView(Protocol):
    """What the projector reads of the ledger."""

    def range(self, after_seq: int, limit: int) -> list[StoredEvent]: ...

    def last_seq(self) -> int: ...


class EventSource(Protocol):
    """The part of the ledger's port that a follower needs."""

    @property
    def info(self) -> LedgerInfo: ...

    def read(self) -> AbstractContextManager[EventView]: ...


class ProjectorState(StrEnum):
    """Whether the projector follows, or why it ended."""

    FOLLOWING = "following"
    FORKED = "CHAIN_BROKEN"
    """Two different events claim one place: nothing that follows can be trusted."""
    FENCED = "LEDGER_FENCED"
    """The ledger is behind what was projected: it went back."""
    OUTDATED = "LEDGER_FORMAT"
    """A later version of this program projects here."""


class Gap(NamedTuple):
    """The log goes on at `found`, and what comes before it is not there yet."""

    expected: int
    found: int


class ProjectorStatus(NamedTuple):
    """What an operator wants to know of a projector."""

    state: ProjectorState
    checkpoint: Checkpoint
    gap: Gap | None
    stopped: tuple[StoppedSession, ...]
    stream_away: bool


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """Sizes and times of one projector."""

    reader: str = "projector"
    """Name of its registration; each projector of one projection has its own."""
    batch: int = 1_000
    silence_seconds: float = 1.0
    """After so long without an entry the ledger itself is asked."""
    poll_seconds: float = 0.1
    """How often the ledger is asked while the stream is away."""
    stream_retry_seconds: float = 1.0
    linger_seconds: float = 0.02
    """How long a busy projector lets the log grow at a time; an idle one never waits."""
    gather_seconds: float = 0.1
    """How long it does so at most while the log keeps growing: an invocation whose events lie in one batch is
    stored once, and not once for each of its steps."""
    lease_seconds: float = 30.0


class _EndedError(Exception):
    """The projector must not go on."""

    def __init__(self, state: ProjectorState, why: str) -> None:
        super().__init__(why)
        self.state = state


class StreamProjector:
    """One projector. `step` and `run` belong to one thread; `status` may be asked from any.

    Two of them on one projection are harmless: each batch is stored by one.
    """

    def __init__(
        self,
        ledger: EventSource,
        stream: EventStream,
        projection: Projection,
        faults: FaultPoints | None = None,
        *,
        notice: ProjectionNotice | None = None,
        settings: ProjectSettings | None = None,
    ) -> None:
        self._ledger, self._projection = ledger, projection
        self._faults = faults or NoFaults()
        self._notice = notice
        self._settings = settings or ProjectSettings()
        self._projector = ToolProjector(projection, ledger.info.incarnation)
        self._hearing = _Hearing(stream, self._settings)
        # Only what is full has more behind it for sure; half a batch is worth waiting for the other half.
        self._gathering = Gathering(
            linger_seconds=self._settings.linger_seconds, batch=2 * self._settings.batch
        )
        self._verified: Checkpoint | None = None
        self._has_looked = self._knows_of_more = False
        self._state = ProjectorState.FOLLOWING
        self._gap: Gap | None = None

    @property
    def state(self) -> ProjectorState:
        return self._state

    @property
    def gap(self) -> Gap | None:
        """The hole that it waits at, if any."""
        return self._gap

    def status(self) -> ProjectorStatus:
        """How far it is, and what does not move. Raises RetryLaterError where the store cannot be read."""
        stopped = sorted(self._projection.stopped().values(), key=lambda stop: stop.seq)
        return ProjectorStatus(
            self._state, self._projection.checkpoint(), self._gap, tuple(stopped), self._hearing.away
        )

    def step(self, wait_seconds: float = 0.0) -> int:
        """Fold what is there, waiting that long for an entry; returns how many events were folded.

        0 also where another projector was faster. Raises ForkError (alarm: stop), and RetryLaterError while
        ledger or store are away.
        """
        try:
            return self._step(wait_seconds)
        except ForkError as error:
            self._end(ProjectorState.FORKED, str(error))
            raise
        except _EndedError as error:
            self._end(error.state, str(error))
            return 0

    def run(self, stopping: Event) -> ProjectorState:
        """Follow until told to stop, or until it must not go on; returns why."""
        complained = False
        while not stopping.is_set() and self._state is ProjectorState.FOLLOWING:
            began, hears = time.monotonic(), self._has_looked and not self._knows_of_more
            try:
                folded = self.step(self._settings.silence_seconds)
                if folded:
                    self._gather(folded, stopping)
                complained = False
            except ForkError:
                break
            except RetryLaterError as error:
                if not complained:
                    _log.warning("projector waits: %s", error)
                complained, folded = True, 0
            if not folded and hears and time.monotonic() - began < self._settings.poll_seconds:
                # Answered at once and moved nothing: a stream that is away, a gap, somebody faster.
                stopping.wait(self._settings.poll_seconds)
        return self._state

    def _gather(self, folded: int, stopping: Event) -> None:
        """Under load let the log grow while it does; what is there then needs no stream to tell of it."""
        now = time.monotonic()
        pause_seconds = self._gathering.pause_seconds(folded, now)
        self._knows_of_more |= bool(pause_seconds)
        if not pause_seconds or self._verified is None:
            return
        seen, give_up_at = self._verified.seq, now + self._settings.gather_seconds
        enough = seen + self._settings.batch
        while not stopping.wait(pause_seconds):
            with self._ledger.read() as view:
                last = view.last_seq()
            if last == seen or last >= enough or time.monotonic() >= give_up_at:
                return
            seen = last

    def _step(self, wait_seconds: float) -> int:
        checkpoint = self._checkpoint()
        # Far behind, there is nothing to wait for.
        wait_seconds = wait_seconds if self._has_looked else 0.0
        entries: list[StreamEntry] = []
        if self._knows_of_more:
            self._hearing.tell(checkpoint.seq)
        else:
            entries = self._hearing.entries(checkpoint.seq, wait_seconds)
        self._knows_of_more = False
        events = self._events(checkpoint, entries)
        self._has_looked, self._knows_of_more = True, len(events) >= self._settings.batch
        if not events:
            return 0
        self._faults.reach("project.after_read")
        return self._fold(checkpoint, self._up_to_gap(checkpoint.seq, events))

    def _fold(self, checkpoint: Checkpoint, events: Sequence[StoredEvent]) -> int:
        if not events:
            return 0
        self._faults.reach("project.before_commit")
        after = self._projector.apply(events, checkpoint)
        if after is None:
            return 0
        self._faults.reach("project.after_commit")
        self._verified = after
        if self._notice is not None:
            self._notice.announce(after.seq)
        return max(0, after.seq - checkpoint.seq)

    def _checkpoint(self) -> Checkpoint:
        """The stored checkpoint, of this ledger and this reducer; begins anew where it is another's."""
        checkpoint = self._projection.checkpoint()
        incarnation = self._ledger.info.incarnation
        if checkpoint.reducer_version > REDUCER_VERSION:
            raise _EndedError(ProjectorState.OUTDATED, "a later version of the reducer projects here")
        if checkpoint.reducer_version < REDUCER_VERSION or checkpoint.incarnation not in ("", incarnation):
            _log.warning("the projection begins anew: it was of another ledger or reducer")
            fresh = Checkpoint(checkpoint.name, 0, checkpoint.epoch + 1, REDUCER_VERSION, incarnation)
            self._projection.restart(checkpoint, fresh)
            checkpoint = self._projection.checkpoint()
        if checkpoint.seq and checkpoint != self._verified:
            self._verify(checkpoint)
        return checkpoint

    def _verify(self, checkpoint: Checkpoint) -> None:
        with self._ledger.read() as view:
            found = view.range(checkpoint.seq - 1, 1)
            last_seq = view.last_seq()
        if last_seq < checkpoint.seq:
            why = f"the projection holds event {checkpoint.seq}, the ledger ends at {last_seq}"
            raise _EndedError(ProjectorState.FENCED, why)
        if found and found[0].seq == checkpoint.seq and found[0].hash != checkpoint.hash:
            raise ForkError(checkpoint.seq)
        self._verified = checkpoint

    def _events(self, checkpoint: Checkpoint, entries: Sequence[StreamEntry]) -> list[StoredEvent]:
        """The ledger's events after the checkpoint, as far as the entries say there are, or as there are."""
        ours = [entry for entry in entries if entry.incarnation == self._ledger.info.incarnation]
        limit = self._settings.batch
        if not ours:
            with self._ledger.read() as view:
                return view.range(checkpoint.seq, limit)
        first = min(checkpoint.seq, min(entry.seq for entry in ours) - 1)
        last = min(max(entry.seq for entry in ours), checkpoint.seq + limit)
        with self._ledger.read() as view:
            events = view.range(first, max(0, last - first))
        _require_one_content(ours, events)
        return [event for event in events if event.seq > checkpoint.seq]

    def _up_to_gap(self, seq: int, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        if events[-1].seq - seq == len(events):  # they are in order, so none is missing
            self._gap = None
            return events
        gap = next(
            (
                (place, Gap(seq + place + 1, event.seq))
                for place, event in enumerate(events)
                if event.seq != seq + place + 1
            ),
            None,
        )
        if gap is not None and gap[1] != self._gap:
            _log.error("event %d is missing, the log goes on at %d; waiting for it", *gap[1])
        self._gap = None if gap is None else gap[1]
        return events if gap is None else events[: gap[0]]

    def _end(self, state: ProjectorState, why: str) -> None:
        self._state = state
        _log.error("%s: %s; this projector stops", state.value, why)


def _require_one_content(entries: Sequence[StreamEntry], events: Sequence[StoredEvent]) -> None:
    """Raises ForkError where entries, or an entry and its row, differ about one place."""
    known = {event.seq: event.hash for event in events}
    for entry in entries:
        if known.setdefault(entry.seq, entry.hash) != entry.hash:
            raise ForkError(entry.seq)


class _Hearing:
    """The stream as one of its readers hears it: registered, and never in the way when it is away."""

    def __init__(self, stream: EventStream, settings: ProjectSettings) -> None:
        self._stream, self._settings = stream, settings
        self._registered_at = self._retry_at = 0.0
        self.away = False

    def entries(self, after: int, wait_seconds: float) -> list[StreamEntry]:
        """Entries after a seq; none after a silence, and at once while the stream is away."""
        read = self._stream.read
        return self._asked(after, lambda: read(after, self._settings.batch, round(wait_seconds * 1000)))

    def tell(self, seq: int) -> None:
        """Say how far this reader is, and hear nothing."""
        self._asked(seq, list)

    def _asked(self, seq: int, ask: Callable[[], list[StreamEntry]]) -> list[StreamEntry]:
        """What the stream answers to a registered reader."""
        if self.away and time.monotonic() < self._retry_at:
            return []
        try:
            self._register(seq)
            found = ask()
        except BrokerUnavailableError as error:
            if not self.away:
                _log.warning("the stream is away, the ledger is asked instead: %s", error)
            self.away, self._registered_at = True, 0.0
            self._retry_at = time.monotonic() + self._settings.stream_retry_seconds
            return []
        self.away = False
        return found

    def _register(self, seq: int) -> None:
        """Renewed each second, so that a stream that lost everything knows its readers again."""
        if time.monotonic() - self._registered_at < min(1.0, self._settings.lease_seconds / 3):
            return
        self._stream.register(self._settings.reader, seq, round(self._settings.lease_seconds * 1000))
        self._registered_at = time.monotonic()

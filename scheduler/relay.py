"""The relay: publishes what is committed in the ledger and not yet in the stream, in order, and trims.

It never overwrites what the stream knows better: a ledger that is behind the stream is fenced. Nothing it
does decides; losing the stream, or running two relays, harms nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from threading import Event
from typing import NamedTuple, Protocol

from governance.ledger import LedgerInfo
from interlock.errors import BrokerUnavailableError, LedgerFencedError, LedgerUnavailableError
from interlock.event import StoredEvent
from interlock.fault import FaultPoints, NoFaults
from interlock.gather import Gathering
from interlock.hint import Waker
from interlock.stream import EMPTY, WINDOW_BYTES, EventStream, StreamTail, entry_of, tail_at

ROLE = "relay"
_log = logging.getLogger(__name__)


class SequencedView(Protocol):
    """What the relay reads of the ledger."""

    def range(self, after_seq: int, limit: int) -> list[StoredEvent]: ...

    def last_seq(self) -> int: ...


class SequencedLedger(Protocol):
    """The part of the ledger's port that a follower needs."""

    @property
    def info(self) -> LedgerInfo: ...

    def read(self) -> AbstractContextManager[SequencedView]: ...


class Sequencer(Protocol):
    """Gives committed events their place in the order and the chain, where appending does not do it."""

    def sequence(self) -> bool:
        """Place what can be placed. True: more is committed and will be placeable in a moment."""
        ...

    def recent(self, after_seq: int, limit: int) -> list[StoredEvent] | None:
        """Durable events that follow `after_seq`, where it placed them itself; None where it cannot know.

        Without their payloads.
        """
        ...


class SequencedOnAppend:
    """The sequencer of a store whose appending transaction writes seq and chain: nothing is left to do."""

    def sequence(self) -> bool:
        return False

    def recent(self, after_seq: int, limit: int) -> None:  # noqa: ARG002 - the port's
        return None


class RelayState(StrEnum):
    """How the relay stands to the stream."""

    STARTING = "starting"
    PUBLISHING = "publishing"
    WAITING_FOR_BROKER = "BROKER_UNAVAILABLE"
    WAITING_FOR_LEDGER = "LEDGER_UNAVAILABLE"
    FENCED = "LEDGER_FENCED"
    """The ledger is behind the stream; for ever, until somebody recovers it."""


class Fence(NamedTuple):
    """Why the ledger must not be written: what somebody else knows and the ledger does not."""

    tail: StreamTail
    last_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """Sizes and times of one relay."""

    batch: int = 500
    window_entries: int = 1_000_000
    window_bytes: int = WINDOW_BYTES
    poll_seconds: float = 1.0
    linger_seconds: float = 0.02
    """How long a busy relay gathers; an idle one never waits. Nobody inside waits for a busy stream."""
    trim_every_entries: int = 10_000
    trim_every_seconds: float = 30.0
    anchor_every_events: int = 10_000
    anchor_every_seconds: float = 10.0


def fence_of(ledger: SequencedLedger, stream: EventStream) -> Fence | None:
    """Why this ledger must stay read only, judged by the stream alone; None where it may go on.

    Raises BrokerUnavailableError and LedgerUnavailableError.
    """
    tail = stream.tail()
    # The tail was read first, so a ledger that only moves on is never behind it.
    with ledger.read() as view:
        return _judge(tail, ledger.info.incarnation, view)


def _judge(tail: StreamTail, incarnation: str, view: SequencedView) -> Fence | None:
    if not tail.incarnation:  # empty, or ends with what is none of ours
        return None
    last_seq = view.last_seq()
    if tail.incarnation != incarnation:
        return Fence(tail, last_seq, f"the stream is of ledger {tail.incarnation}, this one is {incarnation}")
    if tail.seq > last_seq:
        return Fence(tail, last_seq, f"the stream ends at {tail.seq}, the ledger at {last_seq}")
    found = view.range(tail.seq - 1, 1)
    if not found or found[0].hash != tail.hash:
        return Fence(tail, last_seq, f"event {tail.seq} of the stream is another one in the ledger")
    return None


class Relay:
    """One relay. `step` and `run` belong to one thread; `state` and `fence` may be read from any."""

    def __init__(
        self,
        ledger: SequencedLedger,
        stream: EventStream,
        waker: Waker,
        faults: FaultPoints | None = None,
        *,
        anchor: Callable[[int, str], None] | None = None,
        sequencer: Sequencer | None = None,
        settings: RelaySettings | None = None,
    ) -> None:
        self._ledger, self._stream, self._waker = ledger, stream, waker
        self._faults = faults or NoFaults()
        self._sequencer = sequencer or SequencedOnAppend()
        self._settings = settings or RelaySettings()
        self._anchors = _Anchors(ledger, anchor, self._settings)
        self._position: StreamTail | None = None
        self._untrimmed = 0
        self._trimmed_at = time.monotonic()
        self._gathering = Gathering(linger_seconds=self._settings.linger_seconds, batch=self._settings.batch)
        self.state = RelayState.STARTING
        self.fence: Fence | None = None

    def step(self) -> int:
        """Publish one batch; returns how many entries. 0 also while broker or ledger are away (see `state`).

        After any doubt the next step reads the stream's tail and goes on from there.
        """
        if self.fence is not None:
            return 0
        try:
            published = self._publish_batch()
        except BrokerUnavailableError as error:
            return self._wait_for(RelayState.WAITING_FOR_BROKER, error)
        except LedgerUnavailableError as error:
            return self._wait_for(RelayState.WAITING_FOR_LEDGER, error)
        if self.fence is None:
            self._enter(RelayState.PUBLISHING)
        return published

    def run(self, stopping: Event) -> RelayState:
        """Publish until told to stop, or until the ledger is found fenced; returns the last state."""
        while not stopping.is_set() and not self.is_fenced:
            more = self._sequence()
            published = self.step()
            if self.state is RelayState.FENCED:
                break
            self._anchors.keep_up(published)
            if published:
                self._trim_sometimes()
                stopping.wait(self._gathering.pause_seconds(published, time.monotonic()))
            elif more or self._in_doubt:
                stopping.wait(0.001)  # something is due now: never sleep over it
            elif not self._waker.wait(ROLE, self._settings.poll_seconds):
                self._trim_sometimes()
                # A client reconnects without a word, so a quiet stream is looked at again.
                self._position = None
        if not self.is_fenced:
            self._anchors.anchor_now()
        return self.state

    @property
    def is_fenced(self) -> bool:
        """Whether it found the ledger behind the stream, and ended."""
        return self.fence is not None

    @property
    def _in_doubt(self) -> bool:
        """A publish was refused, which says that somebody else moved on: look again at once."""
        return self._position is None and self.state is RelayState.PUBLISHING

    def trim(self) -> int:
        """Trim the stream now; returns how many entries went. Raises BrokerUnavailableError."""
        self._untrimmed, self._trimmed_at = 0, time.monotonic()
        settings = self._settings
        return self._stream.trim(entries_max=settings.window_entries, bytes_max=settings.window_bytes)

    def _publish_batch(self) -> int:
        # In doubt until proven otherwise: whatever is raised below leaves no position behind.
        position, self._position = self._position, None
        if position is None:
            position = self._find_position()
        if position is None:
            return 0
        events = self._sequencer.recent(position.seq, self._settings.batch)
        if events is None:
            with self._ledger.read() as view:
                events = view.range(position.seq, self._settings.batch)
        if not events:
            self._position = position
            return 0
        incarnation = self._ledger.info.incarnation
        entries = [entry_of(event, incarnation) for event in events]
        self._faults.reach("relay.before_publish")
        tail = self._stream.publish(entries, after=position)
        self._faults.reach("relay.after_publish")
        if tail != tail_at(entries[-1]):
            _log.info("publishing after %d was refused, the stream ends at %d", position.seq, tail.seq)
            return 0
        self._position = tail
        self._untrimmed += len(entries)
        return len(entries)

    def _find_position(self) -> StreamTail | None:
        """What the next entry follows; None when fenced, or when another relay was faster."""
        tail = self._stream.tail()
        slowest = self._stream.slowest() if not tail.incarnation else None
        with self._ledger.read() as view:
            fence = _judge(tail, self._ledger.info.incarnation, view)
            last_seq = view.last_seq()
        if fence is not None:
            self._raise_fence(fence)
            return None
        return tail if tail.incarnation else self._refill_from(tail, last_seq, slowest)

    def _refill_from(self, tail: StreamTail, last_seq: int, slowest: int | None) -> StreamTail | None:
        """Begin the stream anew at the youngest of the window's floor and the slowest live reader."""
        floor = max(last_seq - self._settings.window_entries, slowest or 0)
        # At least the last event: only a stream with an entry can say what the next one must follow.
        after = max(0, min(last_seq - 1, floor))
        # Also from the very first event: what looks empty may be a stream whose end was cut off.
        if not self._stream.restart(after=after, last=tail.seq):
            return None
        if last_seq:
            _log.info("the stream is filled from event %d", after + 1)
        return StreamTail(after, "", "")

    def _raise_fence(self, fence: Fence) -> None:
        self.fence = fence
        self._enter(RelayState.FENCED)
        _log.error("%s: %s; nothing is published", RelayState.FENCED.value, fence.reason)

    def _sequence(self) -> bool:
        try:
            return self._sequencer.sequence()
        except LedgerUnavailableError as error:
            self._wait_for(RelayState.WAITING_FOR_LEDGER, error)
            return False
        except LedgerFencedError as error:
            known = self._position or EMPTY
            self._raise_fence(Fence(known, known.seq, error.message))
            return False

    def _wait_for(self, state: RelayState, error: Exception) -> int:
        if self.state is not state:
            _log.warning("relay waits: %s", error)
        self._enter(state)
        return 0

    def _enter(self, state: RelayState) -> None:
        self.state = state

    def _trim_sometimes(self) -> None:
        settings = self._settings
        due = time.monotonic() - self._trimmed_at > settings.trim_every_seconds
        if not due and self._untrimmed < settings.trim_every_entries:
            return
        try:
            self.trim()
        except BrokerUnavailableError as error:
            self._wait_for(RelayState.WAITING_FOR_BROKER, error)


class _Anchors:
    """Hands the head of the chain on, every so many events or seconds; needs no broker."""

    def __init__(
        self, ledger: SequencedLedger, anchor: Callable[[int, str], None] | None, settings: RelaySettings
    ) -> None:
        self._ledger, self._anchor, self._settings = ledger, anchor, settings
        self._seq = self._events = 0
        self._at = time.monotonic()

    def keep_up(self, published: int) -> None:
        """Anchor if it is due."""
        self._events += published
        waited = time.monotonic() - self._at
        if (
            self._events >= self._settings.anchor_every_events
            or waited >= self._settings.anchor_every_seconds
        ):
            self.anchor_now()

    def anchor_now(self) -> None:
        """Anchor the head if it moved. A ledger or disk that is away is tried again next time."""
        self._events, self._at = 0, time.monotonic()
        if self._anchor is None:
            return
        try:
            with self._ledger.read() as view:
                head = view.range(view.last_seq() - 1, 1) if view.last_seq() else []
            if head and head[0].seq > self._seq:
                self._anchor(head[0].seq, head[0].hash)
                self._seq = head[0].seq
        except (LedgerUnavailableError, OSError) as error:
            _log.warning("the head of the chain could not be anchored: %s", error)

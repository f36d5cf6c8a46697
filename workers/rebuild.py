"""Folds the whole log anew beside the live projection, compares both at one checkpoint, switches when asked.

It runs on a stopped system's directory and beside a running projector. Nothing is executed or appended.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from interlock.canonical import sha256_hex
from interlock.errors import AlreadyRunningError, RetryLaterError
from interlock.event import StoredEvent
from interlock.projection import Checkpoint, EventReplayer, Projection, StoppedSession, ToolProjector
from interlock.state import SessionName
from interlock.workspace import DEFAULT_TENANT
from workers.adapters.sqlite_projection import FILE_NAME, SqliteProjection
from workers.project import EventSource

DIFFERENCES_MAX = 100
BATCH = 2_000
PATIENCE_SECONDS = 2.0
"""How long a projector that follows may take to be where the ledger was."""
WAIT_STEP_SECONDS = 0.02
LOCK_NAME = "views.rebuild.lock"


class FrozenViews(Protocol):
    """Views that stand still, of either store."""

    def checkpoint(self) -> Checkpoint | None: ...

    def sessions(self) -> list[SessionName]: ...

    def stopped(self) -> dict[SessionName, StoppedSession]: ...

    def state_bytes(self, session: str, tenant: str = DEFAULT_TENANT) -> bytes: ...


class LiveViews(Projection, Protocol):
    """Views that another fold can be made beside."""

    def frozen(self) -> AbstractContextManager[FrozenViews]: ...

    def beside(self) -> LiveViews: ...

    def make_live(self) -> bool: ...

    def drop_dead(self) -> None: ...

    def close(self) -> None: ...


class Difference(NamedTuple):
    """One session whose projected state is not what its events add up to; "" for the checkpoint itself."""

    session: str
    projected: str
    """Digest of the state, or `seq:hash` of the checkpoint."""
    rebuilt: str
    tenant: str = DEFAULT_TENANT


class RebuildReport(NamedTuple):
    """What folding from zero came to."""

    equal: bool
    seq: int
    """The checkpoint at which both were compared."""
    events: int
    events_per_s: float
    sessions: int
    stopped: int
    """Sessions that cannot be folded."""
    differences: tuple[Difference, ...]
    """The first hundred."""
    switched: bool


def rebuild(
    ledger: EventSource,
    directory: Path,
    *,
    switch: bool = False,
    progress: Callable[[int, int], None] | None = None,
    patience_seconds: float | None = None,
    live: LiveViews | None = None,
) -> RebuildReport:
    """Fold from zero into an epoch beside the live one; `progress` is told (events folded, events to fold).

    `live` are the views, where they do not lie in the directory; they are closed at the end.
    With `patience_seconds` a projector follows: within them the views must reach where the ledger is now.
    Raises AlreadyRunningError while another rebuild works on the directory, RetryLaterError where ledger or
    views are away, or the projector began anew meanwhile.
    """
    with _only_one(directory):
        views = live or SqliteProjection.open(directory / FILE_NAME)
        try:
            views.drop_dead()  # what a killed rebuild left behind
            return _Rebuild(ledger, views, progress, patience_seconds).run(switch)
        finally:
            views.drop_dead()
            views.close()


class _Rebuild:
    """One run; the new epoch is dropped by the caller unless it was made live."""

    def __init__(
        self,
        ledger: EventSource,
        live: LiveViews,
        progress: Callable[[int, int], None] | None,
        patience_seconds: float | None,
    ) -> None:
        self._patience_seconds = patience_seconds
        self._live, self._ledger = live, ledger
        self._progress = progress
        self._new = live.beside()
        self._projector = ToolProjector(self._new, ledger.info.incarnation)
        self._seconds = 0.0
        self._events = 0

    def run(self, switch: bool) -> RebuildReport:
        end = None if self._patience_seconds is None else end_of(self._ledger)
        if end is not None:
            self._wait_for(end.seq)
        # The bulk first, so that what stands still below does not stand still for long.
        self._fold_to(self._live.checkpoint().seq)
        with self._live.frozen() as live:
            seq = self._frozen_seq(live)
            self._fold_to(seq)
            with self._new.frozen() as new:
                found = (*behind(live, end), *differences(live, new))
                sessions, stopped = len(new.sessions()), len(new.stopped())
        return RebuildReport(
            equal=not found,
            seq=seq,
            events=self._events,
            events_per_s=round(self._events / self._seconds, 1) if self._seconds else 0.0,
            sessions=sessions,
            stopped=stopped,
            differences=found[:DIFFERENCES_MAX],
            switched=switch and self._new.make_live(),
        )

    def _wait_for(self, seq: int) -> None:
        """Until the live projection is where the ledger was, or does not get there."""
        give_up_at = time.monotonic() + (self._patience_seconds or 0.0)
        pause = threading.Event()
        while self._live.checkpoint().seq < seq and time.monotonic() < give_up_at:
            pause.wait(WAIT_STEP_SECONDS)

    def _fold_to(self, until_seq: int) -> None:
        began = time.monotonic()
        for batch in EventReplayer(self._range, BATCH).batches(until_seq, self._events):
            if self._projector.apply(batch) is None:
                raise RetryLaterError("NOT_READY", "the projection began anew while it was rebuilt")
            self._events = batch[-1].seq
            if self._progress is not None:
                self._progress(self._events, until_seq)
        self._seconds += time.monotonic() - began

    def _range(self, after_seq: int, limit: int) -> list[StoredEvent]:
        with self._ledger.read() as view:
            return view.range(after_seq, limit)

    @staticmethod
    def _frozen_seq(live: FrozenViews) -> int:
        checkpoint = live.checkpoint()
        return 0 if checkpoint is None else checkpoint.seq


def end_of(ledger: EventSource) -> StoredEvent | None:
    """The last event of the ledger."""
    with ledger.read() as view:
        return next(iter(view.range(view.last_seq() - 1, 1)), None) if view.last_seq() else None


def behind(live: FrozenViews | None, end: StoredEvent | None) -> Iterator[Difference]:
    """The difference that a projection is which is missing, or ends before the ledger did."""
    checkpoint = None if live is None else live.checkpoint()
    if end is not None and (checkpoint is None or checkpoint.seq < end.seq):
        projected = "" if checkpoint is None else f"{checkpoint.seq}:{checkpoint.hash}"
        yield Difference("", projected or "missing", f"{end.seq}:{end.hash}")


def differences(live: FrozenViews, new: FrozenViews) -> Iterator[Difference]:
    """Where two views of one log differ: their checkpoints first, then session by session, byte for byte."""
    projected, rebuilt = _place(live), _place(new)
    if projected != rebuilt:
        yield Difference("", projected, rebuilt)
    stopped_live, stopped_new = live.stopped(), new.stopped()
    sessions = {*live.sessions(), *new.sessions(), *stopped_live, *stopped_new}
    for name in sorted(sessions):
        tenant, session = name
        before, after = live.state_bytes(session, tenant), new.state_bytes(session, tenant)
        if before != after or stopped_live.get(name) != stopped_new.get(name):
            yield Difference(session, sha256_hex(before), sha256_hex(after), tenant)


def _place(reading: FrozenViews) -> str:
    checkpoint = reading.checkpoint()
    return "" if checkpoint is None else f"{checkpoint.seq}:{checkpoint.hash}"


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(str(directory)) from None
        yield
    finally:
        os.close(descriptor)

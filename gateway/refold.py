"""Folds the whole log of a stopped system anew and compares it with its views, without touching either.

The new fold lies in a temporary file that ends with the comparison. Never switches and never executes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from gateway.reading import PAGE_EVENTS, Reading
from interlock.event import StoredEvent
from interlock.projection import EventReplayer, ToolProjector
from workers.adapters.sqlite_projection import SqliteProjection, SqliteReading

DIFFERENCES_MAX = 100


class Refolded(NamedTuple):
    """What folding from zero came to."""

    equal: bool
    seq: int
    """The checkpoint of the views, at which both were compared."""
    events: int
    events_per_s: float
    sessions: int
    stopped: int
    """Sessions that cannot be folded."""
    differences: tuple[str, ...]
    """Sessions whose views are not what their events add up to, at most a hundred; "" is the checkpoint."""
    switched: bool = False


def refold(reading: Reading) -> Refolded:
    """Fold up to where the views stand and compare every session, byte for byte."""
    with tempfile.TemporaryDirectory(prefix="interlock-rebuild-") as folder:
        rebuilt = SqliteProjection.open(Path(folder) / "views.db")
        try:
            return _compared(reading, rebuilt)
        finally:
            rebuilt.close()


def _compared(reading: Reading, rebuilt: SqliteProjection) -> Refolded:
    if reading.projection is None:
        return Refolded(True, 0, 0, 0.0, 0, 0, ())
    with reading.projection.frozen() as live:
        checkpoint = live.checkpoint()
        seq = 0 if checkpoint is None else checkpoint.seq
        began = time.monotonic()
        events = _fold(reading, rebuilt, seq)
        taken = time.monotonic() - began
        with rebuilt.frozen() as new:
            differing = _differing(live, new)
            sessions, stopped = len(new.sessions()), len(new.stopped())
    rate = round(events / taken, 1) if taken else 0.0
    return Refolded(not differing, seq, events, rate, sessions, stopped, tuple(differing[:DIFFERENCES_MAX]))


def _fold(reading: Reading, rebuilt: SqliteProjection, until_seq: int) -> int:
    def events(after_seq: int, limit: int) -> list[StoredEvent]:
        with reading.ledger.read() as view:
            return view.range(after_seq, limit)

    projector = ToolProjector(rebuilt, reading.ledger.info.incarnation)
    folded = 0
    for page in EventReplayer(events, PAGE_EVENTS).batches(until_seq):
        projector.apply(page)
        folded += len(page)
    return folded


def _differing(live: SqliteReading, new: SqliteReading) -> list[str]:
    before, after = live.stopped(), new.stopped()
    sessions = {*live.sessions(), *new.sessions(), *before, *after}
    found = [
        session
        for session in sorted(sessions)
        if live.state_bytes(session) != new.state_bytes(session) or before.get(session) != after.get(session)
    ]
    return found if _place(live) == _place(new) else ["", *found]


def _place(view: SqliteReading) -> tuple[int, str]:
    checkpoint = view.checkpoint()
    return (0, "") if checkpoint is None else (checkpoint.seq, checkpoint.hash)

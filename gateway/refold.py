"""Folds the whole log of a stopped system anew and compares it with its views, without touching either.

The new fold lies in a temporary file that ends with the comparison. Never switches and never executes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from gateway.reading import PAGE_EVENTS, Reading
from interlock.event import StoredEvent
from interlock.projection import EventReplayer, ToolProjector
from workers.adapters.sqlite_projection import SqliteProjection
from workers.rebuild import DIFFERENCES_MAX, RebuildReport, behind, differences, end_of


def refold(reading: Reading) -> RebuildReport:
    """Fold up to where the views stand and compare every session, byte for byte."""
    with tempfile.TemporaryDirectory(prefix="interlock-rebuild-") as folder:
        rebuilt = SqliteProjection.open(Path(folder) / "views.db")
        try:
            return _compared(reading, rebuilt)
        finally:
            rebuilt.close()


def _compared(reading: Reading, rebuilt: SqliteProjection) -> RebuildReport:
    end = end_of(reading.ledger)
    if reading.projection is None:
        missing = tuple(behind(None, end))
        return RebuildReport(not missing, 0, 0, 0.0, 0, 0, missing, switched=False)
    with reading.projection.frozen() as live:
        checkpoint = live.checkpoint()
        seq = 0 if checkpoint is None else checkpoint.seq
        began = time.monotonic()
        events = _fold(reading, rebuilt, seq)
        taken = time.monotonic() - began
        with rebuilt.frozen() as new:
            found = (*behind(live, end), *differences(live, new))
            sessions, stopped = len(new.sessions()), len(new.stopped())
    rate = round(events / taken, 1) if taken else 0.0
    shown = found[:DIFFERENCES_MAX]
    return RebuildReport(not found, seq, events, rate, sessions, stopped, shown, switched=False)


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

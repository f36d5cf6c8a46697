"""Where the time of an invocation goes under load: medians from the ledger's own event times. Pure."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from interlock.event import StoredEvent
from interlock.identifier import id_time_us

STEPS: tuple[tuple[str, str, str], ...] = (
    ("proposed_to_requested", "proposed", "ToolInvocationRequested"),
    ("requested_to_granted", "ToolInvocationRequested", "ApprovalGranted"),
    ("granted_to_started", "ApprovalGranted", "ToolExecutionStarted"),
    ("started_to_completed", "ToolExecutionStarted", "ToolExecutionCompleted"),
    ("completed_to_projected", "ToolExecutionCompleted", "projected"),
    ("proposed_to_projected", "proposed", "projected"),
)
LAST = "ToolExecutionCompleted"


def phase_medians_ms(
    events: Iterable[StoredEvent], seen: Sequence[tuple[int, int]]
) -> Mapping[str, float | None]:
    """Step → the median milliseconds it took; None where no invocation made it.

    An invocation was proposed when its identifier was made (whole milliseconds), and projected at the first
    look in `seen`, (microseconds, checkpoint) in order, that found its last event passed (looks are up to
    30 ms apart).
    """
    lives: dict[str, dict[str, int]] = {}
    checkpoints = [seq for _, seq in seen]
    for event in events:
        life = lives.setdefault(event.stream_id, {})
        life[event.type] = event.at_us
        if event.type == LAST:
            place = bisect_left(checkpoints, event.seq)
            life["proposed"] = id_time_us(event.stream_id) or event.at_us
            if place < len(seen):
                life["projected"] = seen[place][0]
    return {name: _median(lives.values(), start, end) for name, start, end in STEPS}


def _median(lives: Iterable[Mapping[str, int]], start: str, end: str) -> float | None:
    taken = [life[end] - life[start] for life in lives if start in life and end in life]
    return round(statistics.median(taken) / 1_000, 2) if taken else None

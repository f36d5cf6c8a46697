"""Waits until a growing number has reached its goal, looking seldom while it is far: looking costs CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.errors import OursToFixError

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.002, 0.03
PATIENCE_SECONDS = 60.0
"""How long the number may stand still."""


@dataclass(slots=True)
class Approach:
    """One wait, and what it saw: (microseconds since the epoch, number) pairs in order."""

    read: Callable[[], int]
    what: str
    seen: list[tuple[int, int]] = field(default_factory=list)

    def reach(self, goal: int) -> None:
        """Until the number is at least `goal`. OursToFixError (NOT_RUNNING) when it stands still too long."""
        began = moved = time.monotonic()
        first = now = self._look()
        while now < goal:
            passed = time.monotonic() - began
            time.sleep(pause(goal - now, now - first, passed))
            before, now = now, self._look()
            if now != before:
                moved = time.monotonic()
            elif time.monotonic() - moved > PATIENCE_SECONDS:
                raise OursToFixError("NOT_RUNNING", f"{self.what} stopped at {now} of {goal}")

    def _look(self) -> int:
        number = self.read()
        self.seen.append((time.time_ns() // 1_000, number))
        return number


def pause(left: int, done: int, seconds: float) -> float:
    """Half of what is left at the pace so far, within bounds: the end is seen within milliseconds."""
    if done <= 0 or seconds <= 0:
        return PAUSE_SECONDS_MIN * 5
    return min(PAUSE_SECONDS_MAX, max(PAUSE_SECONDS_MIN, left * seconds / done / 2))

"""Time as a port: what the moment is, in whole microseconds of UTC.

Never used by policy or fold; those are handed the moment they judge.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_US = 1_000_000


class Clock(Protocol):
    """Where a process reads the time."""

    def now_us(self) -> int:
        """Microseconds since 1970-01-01T00:00:00Z."""
        ...


class SystemClock:
    """The host's clock, shifted by a fixed offset (a test's two hours, say)."""

    def __init__(self, offset_us: int = 0) -> None:
        self._offset_us = offset_us

    def now_us(self) -> int:
        return time.time_ns() // 1000 + self._offset_us


def clock_from(environment: Mapping[str, str]) -> SystemClock:
    """A process's own clock: the host's, under INTERLOCK_TESTING=1 INTERLOCK_CLOCK_OFFSET_S seconds off.

    The store's clock is another one, and the same for all. Raises ValueError for what is no whole number.
    """
    if environment.get("INTERLOCK_TESTING") != "1":
        return SystemClock()
    return SystemClock(int(environment.get("INTERLOCK_CLOCK_OFFSET_S", "0")) * SECOND_US)


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, now_us: int = 1_700_000_000 * SECOND_US) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Move the clock; negative seconds move it back."""
        self._now_us += round(seconds * SECOND_US)


def moment(at_us: int) -> datetime:
    """The aware UTC datetime of a stored moment."""
    return EPOCH + timedelta(microseconds=at_us)


def boottime_ns() -> int:
    """CLOCK_BOOTTIME: counts on through suspend, never steps; safe to judge `start_by` on one host."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

"""Decides how long a step that works in batches waits for more: a moment under load, never if idle. Pure."""

from __future__ import annotations

WINDOW_SECONDS = 0.02
BUSY_EVENTS = 40
"""So many events in one to two windows (1,000 a second and more) are load."""


class Gathering:
    """Watches the rate of one step; belongs to one thread."""

    def __init__(
        self, *, linger_seconds: float = 0.005, batch: int = 500, busy_events: int = BUSY_EVENTS
    ) -> None:
        self._linger_seconds, self._batch, self._busy_events = linger_seconds, batch, busy_events
        self._window_at = 0.0
        self._before = self._now = 0

    def pause_seconds(self, events: int, at_seconds: float) -> float:
        """How long to wait after a batch of so many events that ended at this monotonic moment."""
        age = at_seconds - self._window_at
        if age >= WINDOW_SECONDS:
            self._before = self._now if age < 2 * WINDOW_SECONDS else 0
            self._now, self._window_at = 0, at_seconds
        self._now += events
        # Half a batch is worth its round trip already; what is full has more behind it.
        busy = self._before + self._now >= self._busy_events
        return self._linger_seconds if busy and events < self._batch // 2 else 0.0

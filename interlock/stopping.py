"""The stop that every loop watches for, as a port: an event of a thread, or one that a signal may set."""

from __future__ import annotations

from typing import Protocol


class Stopping(Protocol):
    """Set once."""

    def is_set(self) -> bool:
        """Whether the loop is to end."""
        ...

    def wait(self, timeout: float | None = None, /) -> bool:
        """Wait for the stop, at most so many seconds; whether it came."""
        ...

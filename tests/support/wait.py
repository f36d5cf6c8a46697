"""Waits in tests: for an observed fact, never for an amount of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def until(predicate: Callable[[], Seen], seconds: float, what: str) -> Seen:
    """The predicate's first true answer; AssertionError naming `what` when none came within `seconds`.

    The predicate is asked at once, then at growing intervals of at most 50 ms.
    """
    give_up_at = time.monotonic() + seconds
    pause = threading.Event()
    interval = 0.001
    while True:
        seen = predicate()
        if seen:
            return seen
        if time.monotonic() >= give_up_at:
            raise AssertionError(f"not within {seconds} s: {what} (last answer: {seen!r})")
        pause.wait(interval)
        interval = min(interval * 2, 0.05)

"""Hears that a foreground command is to stop while it still starts, and ends the start there, in order.

Imports nothing of ours: it listens before anything else is loaded. What serves listens by itself later.
"""

from __future__ import annotations

import signal


class EarlyStop:
    """Set by SIGTERM, SIGINT or SIGHUP, which also end whatever the main thread is at, by SystemExit(0).

    The exception can be lost where Python reports and drops one, as in a finaliser; so it is remembered, and
    a start looks at `is_set` once its own reactions are in place.
    """

    def __init__(self) -> None:
        self._is_set = False

    def listen(self) -> None:
        """From now on; in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self._end)

    def is_set(self) -> bool:
        """Whether the command is to stop."""
        return self._is_set

    def leave(self) -> None:
        """The command has ended in order: nothing that comes now changes its exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _end(self, _number: int, _frame: object) -> None:
        self._is_set = True
        raise SystemExit(0)

"""What a role of the process tree is, and what it is given when it starts in a process of its own.

A role says when it is ready and watches for the stop; when it is started or ended is the tree's to decide.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.embedded.directory import DataDirectory

STOP_FIRST = 0  # what takes work in: governor, scheduler
STOP_POOLS = 1
STOP_PROJECTOR = 2
STOP_BROKER = 9


class Stopping:
    """Set once, by SIGTERM; waited for by any thread.

    Unlike `threading.Event` it may be set from a signal's Python code: that code can run in the very moment
    in which the main thread holds the event's lock.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_set = False

    def set(self) -> None:
        """Say that the role is to end."""
        if not self._is_set:
            self._is_set = True
            os.write(self._writing, b".")

    def is_set(self) -> bool:
        """Whether the role is to end."""
        return self._is_set

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the stop, at most `timeout_seconds`; whether it came."""
        # The byte is never read, so every waiter sees it.
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self._is_set:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            poll.poll(None if left is None else left * 1000)
            if left == 0.0:
                break
        return self._is_set

    def fileno(self) -> int:
        """A descriptor that becomes readable at the stop, for selectors."""
        return self._reading

    def listen(self, *signals: signal.Signals) -> None:
        """Set this when one of `signals` comes; a role that installs its own reaction may do so later."""
        for number in signals:
            signal.signal(number, lambda _number, _frame: self.set())


@dataclass(frozen=True, slots=True)
class RoleContext:
    """What a role is given: its name and directory, the stop, and a way to say that it is ready."""

    name: str
    directory: DataDirectory
    stopping: Stopping
    ready_descriptor: int = field(repr=False)

    def ready(self) -> None:
        """Say that this role serves now; further calls change nothing."""
        try:
            os.write(self.ready_descriptor, b".")
        except OSError:
            return  # said before, or nobody listens any more


@dataclass(frozen=True, slots=True)
class Role:
    """One process of the system.

    `start` runs in the forked process until the role is to end, and returns its exit status. The system is
    not ready before its `essential` roles are. `probe` tells readiness from outside, for a role that becomes
    another program. A `before_preload` role starts while the parent still imports what the others share.
    Replicas are roles of one `kind`. One that is `alone` cannot run beside a second of itself.
    """

    name: str
    start: Callable[[RoleContext], int]
    essential: bool = True
    drain_seconds: float = 10.0  # between SIGTERM and SIGKILL
    stop_stage: int = STOP_FIRST  # lower ones are gone before higher ones are asked
    before_preload: bool = False
    probe: Callable[[int], bool] | None = None  # is given the process id
    replica_of: str = ""
    alone: bool = False

    @property
    def kind(self) -> str:
        """What its replicas have in common: the name of the first of them."""
        return self.replica_of or self.name

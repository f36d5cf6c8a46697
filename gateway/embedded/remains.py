"""Ends and reaps whatever is below this process, what left its session or lost its parent included.

It asks nobody to end: that is the tree's, before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from gateway.embedded import kernel

LEFTOVER_POLL_SECONDS = 0.01


def end_all(grace_seconds: float) -> None:
    """Kill whatever is below this process, after `grace_seconds` for it to end by itself; reaps it too."""
    me = os.getpid()
    grace_until = time.monotonic() + grace_seconds
    pause = threading.Event()
    while left := kernel.descendants(me):
        if time.monotonic() >= grace_until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        pause.wait(LEFTOVER_POLL_SECONDS)
        reap_all()


def reap_all() -> None:
    """Collect every child that has ended, own or adopted."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass

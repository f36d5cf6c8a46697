"""The process tree of one execution: takes in orphans, counts members, ends all of them.

Signals only what descends from the calling process. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
KILL_BUDGET_MS = 2_000


def die_with_parent(parent_pid: int) -> None:
    """Ends this process when the thread that forked it ends. Call it after every change of ids.

    The kernel clears the setting at a change of ids, and says nothing of a parent that died before.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)


def adopt_orphans() -> None:
    """Makes this process the parent of every orphan below it, so that none escapes `end_all`."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def count_below(limit: int) -> int:
    """How many processes descend from this one; counting stops above `limit`."""
    count, pending = 0, [os.getpid()]
    while pending and count <= limit:
        below = list(_children(pending.pop()))
        count += len(below)
        pending += below
    return count


def end_all(budget_ms: int = KILL_BUDGET_MS) -> bool:
    """Kills and reaps everything below this process; False if something outlived the budget."""
    give_up_at = time.monotonic() + budget_ms / 1000
    while _reap():
        for pid in _children(os.getpid()):
            _kill(pid)
        if time.monotonic() > give_up_at:
            return False
        # SIGKILL is not instant, and an orphan shows up only when its parent is gone.
        signal.sigtimedwait([signal.SIGCHLD], 0.001)
    return True


def end_strays(own: set[int], budget_ms: int = KILL_BUDGET_MS) -> None:
    """Reaps what has ended, and ends every child that is not one of `own`; takes the dead out of `own`.

    Such a child was left behind by a process below this one. A sandbox's launcher binds itself to its
    parent only after a while: whoever lost its parent before that is found here and nowhere else.
    """
    give_up_at = time.monotonic() + budget_ms / 1000
    while True:
        _reap(own)
        strays = [pid for pid in _children(os.getpid()) if pid not in own]
        if not strays or time.monotonic() > give_up_at:
            return
        for pid in strays:
            _kill(pid)
        signal.sigtimedwait([signal.SIGCHLD], 0.001)


def _reap(known: set[int] | None = None) -> bool:
    """Reaps what has ended, and takes it out of `known`; True while children are left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if known is not None:
            known.discard(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _children(pid: int) -> Iterator[int]:
    if not os.path.exists("/proc/thread-self/children"):
        yield from _children_by_scan(pid)
        return
    try:
        # The kernel lists children by the thread that made them.
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        return  # The process has ended meanwhile.


def _children_by_scan(parent: int) -> Iterator[int]:
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == parent:
            yield int(entry)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))

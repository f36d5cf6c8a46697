"""What the tree knows of one role: its process now, when it may start again, and how often it had to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.embedded.directory import DataDirectory
from gateway.embedded.error import NotReadyError
from gateway.embedded.role import Role

BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_SECONDS_MAX = 5.0
START_FAILURES_MAX = 5  # of one essential role, before the system was ready once
PROBE_SECONDS = 0.005
STEADY_SECONDS = 10.0  # a process that lived this long earns an immediate restart again


def backoff_seconds(failures_in_a_row: int, seconds_max: float = BACKOFF_SECONDS_MAX) -> float:
    """How long to wait before the next start: not at all after the first failure, then doubling."""
    if failures_in_a_row <= 1:
        return 0.0
    return min(seconds_max, BACKOFF_FIRST_SECONDS * 2.0 ** (min(failures_in_a_row, 32) - 2))


@dataclass(slots=True)
class Member:
    """One role and its present process. Times are those of the monotonic clock."""

    role: Role
    pid: int | None = None
    ready_descriptor: int | None = None  # open until the process is ready or gone
    is_ready: bool = False
    started_at: float = 0.0
    start_at: float | None = None  # due to be started then; None while it runs, or is to stay away
    kill_at: float | None = None  # asked to stop, killed then
    restarts: int = 0
    failures_in_a_row: int = 0
    last_exit: int | None = None  # negative: the signal that ended it
    backoff_seconds_max: float = BACKOFF_SECONDS_MAX

    def note_start(self, pid: int, ready_descriptor: int, now: float) -> None:
        """It runs, and is not ready yet."""
        self.pid, self.ready_descriptor = pid, ready_descriptor
        self.started_at, self.start_at, self.is_ready = now, None, False

    def note_end(self, exit_code: int, now: float, again: bool) -> None:
        """Its process is gone; `again` says whether it is to be started anew."""
        self.pid, self.is_ready, self.kill_at, self.last_exit = None, False, None, exit_code
        lived_long = now - self.started_at >= STEADY_SECONDS
        self.failures_in_a_row = 1 if lived_long else self.failures_in_a_row + 1
        wait = backoff_seconds(self.failures_in_a_row, self.backoff_seconds_max)
        self.start_at = now + wait if again else None
        if again:
            self.restarts += 1

    def describe(self) -> dict[str, object]:
        """What `status` shows of it."""
        return {
            "name": self.role.name,
            "kind": self.role.kind,
            "pid": self.pid,
            "ready": self.is_ready,
            "essential": self.role.essential,
            "restarts": self.restarts,
            "last_exit": self.last_exit,
        }


def stopping_line(running: int) -> str:
    """What is said when a stop begins."""
    return f"stopping: waiting for {running} running" if running else "stopping"


def judge_start(
    members: Iterable[Member], directory: DataDirectory, ready_seconds: float, deadline: float
) -> None:
    """NotReadyError with the essential role that keeps a start from becoming ready, if one does for good."""
    late = time.monotonic() >= deadline
    for member in members:
        if member.is_ready or not member.role.essential:
            continue
        log = directory.log_of(member.role.name)
        if member.failures_in_a_row >= START_FAILURES_MAX:
            why = f"ended {member.failures_in_a_row} times ({member.last_exit})"
            raise NotReadyError(member.role.name, why, log)
        if late and (member.pid is not None or member.start_at is not None):
            raise NotReadyError(member.role.name, f"was not ready after {ready_seconds:g} s", log)


def wait_seconds(members: Iterable[Member], due: Iterable[float]) -> float | None:
    """Until something falls due, of these moments or of the members themselves; None when nothing does."""
    moments = list(due)
    for member in members:
        moments.extend(at for at in (member.start_at, member.kill_at) if at is not None)
        if member.pid is not None and not member.is_ready and member.role.probe is not None:
            moments.append(time.monotonic() + PROBE_SECONDS)
    return max(0.0, min(moments) - time.monotonic()) if moments else None

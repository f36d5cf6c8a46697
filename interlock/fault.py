"""Named points where a test may kill, hang, delay or fail a process; free when none is set.

Read only when INTERLOCK_TESTING=1. `INTERLOCK_FAULT=<point>:<nth>:<kill|raise|hang|delay>[,…]`; each firing
is a line in the file INTERLOCK_FAULT_LOG before it takes effect. There each planned fault fires at most
INTERLOCK_FAULT_TIMES times (1) over all processes, however often they start. Decides nothing in the product.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

POINTS = (
    "client.before_send",
    "client.after_send",
    "propose.after_take",
    "propose.after_decode",
    "propose.before_commit",
    "propose.after_commit",
    "propose.after_publish",
    "propose.after_answer",
    "grant.before_commit",
    "grant.after_commit",
    "grant.after_publish",
    "vote.after_commit",
    "claim.after_hint",
    "claim.before_commit",
    "claim.after_commit",
    "run.before_effect",
    "run.after_effect",
    "compute.after_run",
    "report.before_spool",
    "report.after_spool",
    "report.before_commit",
    "report.after_commit",
    "relay.before_publish",
    "relay.after_publish",
    "project.after_read",
    "project.before_commit",
    "project.after_commit",
    "sweep.before_commit",
    "sweep.after_commit",
    "sweep.before_publish",
    "recover.before_report",
    "recover.after_report",
    "dispatch.before_publish",
    "dispatch.after_publish",
    "ledger.before_commit",
    "ledger.after_commit",
)
"""Every point, roughly in the order an invocation passes them; the last two are in every transaction."""

DELAY_SECONDS = 1.5
HANG_SECONDS = 3_600


class FaultPoints(Protocol):
    """What a step calls where a test may want it to break."""

    def reach(self, point: str) -> None:
        """Say that this point is reached; usually nothing happens."""
        ...


class NoFaults:
    """The product's own: nothing ever happens."""

    def reach(self, point: str) -> None:
        del point


class InjectedFaultError(Exception):
    """What `raise` raises."""

    def __init__(self, point: str) -> None:
        super().__init__(f"injected at {point}")
        self.point = point


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault: at the nth time this process reaches the point."""

    point: str
    nth: int
    action: str


class PlannedFaults:
    """Counts how often each point is reached in this process and breaks where it was told to.

    With a log the firings of all processes that share it are counted there, and end at `times`. Where a file
    arms them, a process counts nothing before that file is there.
    """

    def __init__(
        self, faults: tuple[Fault, ...], log: str | None, times: int = 1, armed_by: str | None = None
    ) -> None:
        self._faults = faults
        self._log = log
        self._times = times
        self._armed_by = armed_by
        self._reached: dict[str, int] = {}
        self._lock = Lock()

    def reach(self, point: str) -> None:
        if self._armed_by is not None and not os.path.exists(self._armed_by):
            return
        with self._lock:
            count = self._reached[point] = self._reached.get(point, 0) + 1
        for fault in self._faults:
            if fault.point == point and fault.nth == count and self._may_fire(fault):
                self._fire(fault)

    def _fire(self, fault: Fault) -> None:
        if fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.action == "raise":
            raise InjectedFaultError(fault.point)
        time.sleep(HANG_SECONDS if fault.action == "hang" else DELAY_SECONDS)

    def _may_fire(self, fault: Fault) -> bool:
        """Note the firing, if it is not one too many."""
        if self._log is None:
            return True
        line = f"{fault.point} {fault.nth} {fault.action} "
        descriptor = os.open(self._log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(descriptor, "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if sum(noted.startswith(line) for noted in file) >= self._times:
                return False
            file.write(f"{line}{os.getpid()}\n")
            file.flush()
        return True


def faults_from(environment: Mapping[str, str]) -> FaultPoints:
    """The faults an environment asks for; raises ValueError on an unknown point or action."""
    plan = environment.get("INTERLOCK_FAULT", "")
    if environment.get("INTERLOCK_TESTING") != "1" or not plan:
        return NoFaults()
    return PlannedFaults(
        tuple(_parse(item) for item in plan.split(",")),
        environment.get("INTERLOCK_FAULT_LOG"),
        int(environment.get("INTERLOCK_FAULT_TIMES", "1")),
        environment.get("INTERLOCK_FAULT_ARMED"),
    )


def _parse(item: str) -> Fault:
    point, nth, action = item.split(":")
    if point not in POINTS or action not in ("kill", "raise", "hang", "delay"):
        raise ValueError(f"no such fault: {item}")
    return Fault(point, int(nth), action)

"""The control epoch against the events that raise it: never below what they make it, never above.

Contracts that are registered together raise it once, so their events give bounds and not one number.
"""

from __future__ import annotations

from governance.verification.fact import UNREADABLE
from governance.verification.fault import FaultCode, Faults
from interlock.event import StoredEvent

FIRST_EPOCH = 1


class EpochCheck:
    """Fed with every event in the order of its number."""

    def __init__(self, before: int, faults: Faults) -> None:
        """`before` is the epoch that was read before the first event was."""
        self._before = before
        self._faults = faults
        self._least = FIRST_EPOCH
        self._most = FIRST_EPOCH
        self._registered = -1

    def feed(self, event: StoredEvent) -> None:
        """Count what an event raised the epoch by."""
        if event.type == "ToolRegistered":
            # Registered together, they follow each other; registered apart, others may stand between.
            self._least += event.seq != self._registered + 1
            self._registered = event.seq
            self._most += 1
        elif event.type in ("PrincipalRegistered", "SessionClosed") or _is_opened_by_name(event):
            self._least += 1
            self._most += 1

    def end(self, after: int) -> None:
        """Judge the epoch that was read after the last event was."""
        if after < self._least or self._before > self._most:
            said = f"the control epoch is {after}, its events make it {self._least} to {self._most}"
            self._faults.add(None, FaultCode.EPOCH_DIFFERS, said)


def _is_opened_by_name(event: StoredEvent) -> bool:
    if event.type != "SessionOpened":
        return False
    try:
        return event.body()["implicit"] is False
    except UNREADABLE:
        return False

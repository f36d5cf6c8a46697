"""Status and phase of an invocation, and the one table of legal moves between phases.

Drawn in `docs/architecture.md`; everything else cites this table. Pure: no clock, no store.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Status(StrEnum):
    """How far an invocation came; monotone."""

    REQUESTED = "REQUESTED"
    STARTED = "STARTED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    REJECTED = "REJECTED"

    @property
    def is_terminal(self) -> bool:
        return self in (Status.COMPLETED, Status.FAILED, Status.REJECTED)


class Phase(StrEnum):
    """What an invocation waits for."""

    DECIDING = "deciding"
    AWAITING_APPROVAL = "awaiting_approval"
    QUEUED = "queued"
    RUNNING = "running"
    RETRY_WAIT = "retry_wait"
    RECONCILIATION_REQUIRED = "reconciliation_required"
    DONE = "done"


NEW = "new"
"""Where a stream stands before its first event."""

_MOVES: Mapping[str, Mapping[str, str]] = {
    "ToolInvocationRequested": {NEW: "deciding"},
    "DecisionDeferred": {"deciding": "deciding"},
    "ApprovalRequested": {"deciding": "awaiting_approval", "awaiting_approval": "awaiting_approval"},
    "ApprovalVoted": {"awaiting_approval": "awaiting_approval"},
    "ApprovalDenied": {"awaiting_approval": "awaiting_approval"},
    "ApprovalExpired": {"awaiting_approval": "awaiting_approval"},
    "ApprovalGranted": {
        "deciding": "queued",
        "awaiting_approval": "queued",
        "queued": "queued",
        "retry_wait": "queued",
    },
    "PermitReturned": {"queued": "deciding", "retry_wait": "deciding"},
    "ToolExecutionRejected": {"deciding": "done", "awaiting_approval": "done", "queued": "done"},
    "ToolExecutionStarted": {"queued": "running", "retry_wait": "running"},
    "ToolResponseRecorded": {"running": "running"},
    "ToolExecutionCompleted": {"running": "done"},
    "ToolExecutionFailed": {"running": "done", "queued": "done", "deciding": "done", "retry_wait": "done"},
    "ExecutionAttemptFailed": {"running": "retry_wait"},
    "ExecutionReleased": {"running": "queued"},
    "ExecutionAbandoned": {"running": "queued"},
    "ReconciliationRequired": {"running": "reconciliation_required"},
    "ReconciliationResolved": {"reconciliation_required": "done"},
    "CancellationRequested": {
        phase: phase
        for phase in (
            "deciding",
            "awaiting_approval",
            "queued",
            "running",
            "retry_wait",
            "reconciliation_required",
        )
    },
}

LEGAL_MOVES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {event: MappingProxyType(dict(moves)) for event, moves in _MOVES.items()}
)
"""Event type → phase before → phase after. What is not here is illegal."""


def next_phase(phase: str, event_type: str, *, started: bool = False) -> str | None:
    """The phase after this event, or None where the move is illegal.

    `started` says whether a claim ever stood: before the first the end is a rejection, after it a failure.
    """
    if (event_type == "ToolExecutionRejected" and started) or (
        event_type == "ToolExecutionFailed" and not started
    ):
        return None
    moves = LEGAL_MOVES.get(event_type)
    return None if moves is None else moves.get(phase)

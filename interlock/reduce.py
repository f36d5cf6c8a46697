"""The fold: what each event changes in the record of its invocation, and a session's events in its state.

Strict about versions and moves. Pure: no clock, no store; nothing here appends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from pydantic_core import from_json

from interlock.canonical import INTEGER_MAX
from interlock.errors import NotJsonError, OursToFixError
from interlock.event import EVENT_TYPES, StoredEvent, StreamKind
from interlock.permit import terms_digest
from interlock.phase import NEW, Status, next_phase
from interlock.state import BLANK, ToolInvocationRecord, ToolState, record_with
from interlock.workspace import DEFAULT_TENANT

REDUCER_VERSION = 2
"""Raised whenever the same events would fold to other bytes."""

# Looked up for every event, and an enum computes its value anew each time.
_INVOCATION, _REQUESTED = StreamKind.INVOCATION.value, Status.REQUESTED.value
_STARTED, _COMPLETED, _FAILED = Status.STARTED.value, Status.COMPLETED.value, Status.FAILED.value


class IllegalMoveError(OursToFixError):
    """An event that its stream's phase does not allow."""

    def __init__(self, stream: str, version: int, phase: str, event_type: str) -> None:
        super().__init__(
            "ILLEGAL_MOVE", f"{event_type} at version {version} of {stream} is no legal move from {phase}"
        )
        self.stream, self.version, self.phase, self.event_type = stream, version, phase, event_type


class UnknownEventError(OursToFixError):
    """A type of event this reducer does not know and that says it moves state."""

    def __init__(self, stream: str, version: int, event_type: str) -> None:
        super().__init__(
            "EVENT_UNKNOWN", f"{event_type} at version {version} of {stream} is unknown and moves state"
        )
        self.stream, self.version, self.event_type = stream, version, event_type


class UnreadableEventError(OursToFixError):
    """An event of a known type whose payload does not hold what its type promises."""

    def __init__(self, stream: str, version: int, event_type: str) -> None:
        super().__init__(
            "EVENT_INVALID", f"the payload of {event_type} at version {version} of {stream} cannot be read"
        )
        self.stream, self.version, self.event_type = stream, version, event_type


class ToolReducer(Protocol):
    """How one event changes one record."""

    def apply(self, record: ToolInvocationRecord | None, event: StoredEvent) -> ToolInvocationRecord | None:
        """The record after the event; the same record where the event says nothing of it."""
        ...


class DefaultToolReducer:
    """The reducer that the product folds with: strict about versions and moves."""

    def apply(self, record: ToolInvocationRecord | None, event: StoredEvent) -> ToolInvocationRecord | None:
        """The record after the event; an event already folded changes nothing.

        Raises IllegalMoveError, UnknownEventError and UnreadableEventError.
        """
        if event.kind != _INVOCATION:
            return record
        if record is not None and event.version <= record.version:
            return record
        known = EVENT_TYPES.get(event.type)
        if known is None or event.format > known.format:
            return self._unknown(record, event)
        before = NEW if record is None else record.phase
        started = record is not None and record.status != _REQUESTED
        after = next_phase(before, event.type, started=started)
        expected = 1 if record is None else record.version + 1
        if after is None or event.version != expected:
            raise IllegalMoveError(str(event.stream), event.version, before, event.type)
        try:
            changes = _quickly_changed(record, event)
            if changes is None:
                changes = _changed(record, event, event.body())
        except (KeyError, TypeError, IndexError, NotJsonError) as error:
            raise UnreadableEventError(str(event.stream), event.version, event.type) from error
        return record_with(record or BLANK, version=event.version, phase=after, **changes)

    @staticmethod
    def _unknown(record: ToolInvocationRecord | None, event: StoredEvent) -> ToolInvocationRecord | None:
        if event.moves_state:
            raise UnknownEventError(str(event.stream), event.version, event.type)
        return None if record is None else record_with(record, version=event.version)


Changes = dict[str, Any]


class Move(NamedTuple):
    """One legal move: the record it meets, the event, and the event's payload."""

    record: ToolInvocationRecord
    """Blank for the first event."""
    event: StoredEvent
    body: dict[str, Any]


def _changed(record: ToolInvocationRecord | None, event: StoredEvent, body: dict[str, Any]) -> Changes:
    return _CHANGES[event.type](Move(record or BLANK, event, body))


def _quickly_changed(record: ToolInvocationRecord | None, event: StoredEvent) -> Changes | None:
    """What `_changed` says, at half the price; None in any doubt.

    Reading a stored payload exactly looks through all of it for doubles that are written like integers. The
    fold takes a few members only, so these are looked at: whatever is no plain text or number is a doubt.
    """
    try:
        changes = _changed(record, event, from_json(event.payload, allow_inf_nan=False, cache_strings="none"))
    except (ValueError, LookupError, TypeError, NotJsonError):
        return None
    for value in changes.values():
        kind = type(value)
        if kind is int:
            if not -INTEGER_MAX <= value <= INTEGER_MAX:
                return None
        elif kind not in _PLAIN and not (kind is tuple and _TEXT.issuperset(map(type, value))):
            return None
    return changes


_TEXT = frozenset((str,))
_PLAIN = frozenset((str, bool, type(None)))


def _requested(move: Move) -> Changes:
    event, body = move.event, move.body
    return {
        "invocation_id": event.stream_id,
        "position": event.seq,
        "status": _REQUESTED,
        "tool": body["tool"],
        "tool_version": body["tool_version"],
        "tier": body["tier"],
        "pool": body["capability_pool"],
        "tenant": body["tenant"],
        "client": body["client"],
        "subject": body["subject"],
        "session": body["session"],
        "stage": body["stage"],
        "route": body["route"],
        "cause": event.cause,
        "arguments_hash": body["arguments_hash"],
        "action_digest": body["action_digest"],
        "requested_at_us": event.at_us,
    }


def _nothing(_move: Move) -> Changes:
    return {}


def _reasoned(reason: Mapping[str, Any]) -> Changes:
    return {"reason_code": reason["code"], "reason": reason["sentence"]}


def _deferred(move: Move) -> Changes:
    return _reasoned(move.body["reasons"][0]) if move.body["reasons"] else {}


def _parked(move: Move) -> Changes:
    reasons = move.body["snapshot"]["reasons"]
    return {"votes": 0, "approvers": (), **(_reasoned(reasons[0]) if reasons else {})}


def _voted(move: Move) -> Changes:
    vote, approvers = move.body["vote"], move.record.approvers
    if vote["decision"] == "approve":
        approvers = (*approvers, vote["approver"])
    return {"votes": move.record.votes + 1, "approvers": approvers}


def _granted(move: Move) -> Changes:
    return {
        "granted_by": move.body["by"],
        "permit_digest": terms_digest(move.body["permit"]["terms"]),
        "reason_code": None,
        "reason": None,
    }


def _denied(move: Move) -> Changes:
    return {"reason_code": "APPROVAL_DENIED", "reason": move.body["reason"]}


def _expired(_move: Move) -> Changes:
    return {"reason_code": "APPROVAL_EXPIRED", "reason": "nobody answered in time"}


def _returned(move: Move) -> Changes:
    return {"granted_by": None, "permit_digest": None, **_reasoned(move.body["reason"])}


def _started(move: Move) -> Changes:
    return {
        "status": _STARTED,
        "started_at_us": move.record.started_at_us
        if move.record.started_at_us is not None
        else move.event.at_us,
        "attempt": move.body["attempt"],
        "nonce": move.body["nonce"],
        "reason_code": None,
        "reason": None,
    }


def _receipted(sealed: Mapping[str, Any] | None) -> Changes:
    if sealed is None:
        return {}
    receipt = sealed["receipt"]
    return {
        "receipt_digest": sealed["receipt_digest"],
        "exit_code": receipt["exit_code"],
        "output_summary": receipt["output_summary"],
    }


def _completed(move: Move) -> Changes:
    return {
        "status": _COMPLETED,
        "completed_at_us": move.event.at_us,
        "nonce": None,
        **_receipted(move.body["sealed"]),
    }


def _failed(move: Move) -> Changes:
    return {
        "status": _FAILED,
        "completed_at_us": move.event.at_us,
        "nonce": None,
        **_reasoned(move.body["failure"]),
        **_receipted(move.body["sealed"]),
    }


def _attempt_failed(move: Move) -> Changes:
    return {"nonce": None, **_reasoned(move.body["failure"])}


def _released(move: Move) -> Changes:
    return {"nonce": None, "attempt": max(0, move.record.attempt - 1), **_reasoned(move.body["reason"])}


def _abandoned(move: Move) -> Changes:
    return {"nonce": None, **_reasoned(move.body["reason"])}


def _rejected(move: Move) -> Changes:
    return {
        "status": Status.REJECTED.value,
        "completed_at_us": move.event.at_us,
        **_reasoned(move.body["reason"]),
    }


def _cancelling(_move: Move) -> Changes:
    return {"cancel_requested": True}


def _unknown_outcome(move: Move) -> Changes:
    return {"nonce": None, **_reasoned(move.body["reason"]), **_receipted(move.body["sealed"])}


def _resolved(move: Move) -> Changes:
    executed = move.body["verdict"] == "executed"
    return {
        "status": (Status.COMPLETED if executed else Status.FAILED).value,
        "completed_at_us": move.event.at_us,
        "reason": move.body["reason"],
        **_receipted(move.body["sealed"]),
    }


_CHANGES = MappingProxyType(
    {
        "ToolInvocationRequested": _requested,
        "DecisionDeferred": _deferred,
        "ApprovalRequested": _parked,
        "ApprovalVoted": _voted,
        "ApprovalGranted": _granted,
        "ApprovalDenied": _denied,
        "ApprovalExpired": _expired,
        "PermitReturned": _returned,
        "ToolExecutionStarted": _started,
        "ToolResponseRecorded": _nothing,
        "ToolExecutionCompleted": _completed,
        "ToolExecutionFailed": _failed,
        "ExecutionAttemptFailed": _attempt_failed,
        "ExecutionReleased": _released,
        "ExecutionAbandoned": _abandoned,
        "ToolExecutionRejected": _rejected,
        "CancellationRequested": _cancelling,
        "ReconciliationRequired": _unknown_outcome,
        "ReconciliationResolved": _resolved,
    }
)


def fold(
    session: str,
    events: Iterable[StoredEvent],
    reducer: ToolReducer | None = None,
    *,
    tenant: str = DEFAULT_TENANT,
) -> ToolState:
    """The state of one session from its events, in the order of their sequence numbers."""
    reducer = reducer or DefaultToolReducer()
    records: dict[str, ToolInvocationRecord] = {}
    for event in events:
        if (event.tenant, event.session) != (tenant, session) or event.kind != _INVOCATION:
            continue
        after = reducer.apply(records.get(event.stream_id), event)
        if after is not None:
            records[event.stream_id] = after
    return ToolState(session, tuple(sorted(records.values(), key=lambda record: record.position)), tenant)

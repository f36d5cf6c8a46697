"""The fold: what each event changes in the record of its invocation, and a session's events in its state.

Strict about versions and moves. Pure: no clock, no store; nothing here appends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from pydantic_core import from_json

from interlock.canonical import INTEGER_MAX
from interlock.errors import NotJsonError, OursToFixError
from interlock.event import EVENT_TYPES, StoredEvent, StreamKind
from interlock.permit import terms_digest
from interlock.phase import NEW, Status, next_phase
from interlock.state import BLANK, ToolInvocationRecord, ToolState, record_changed, record_with
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
        if record is None:
            before, started, expected = NEW, False, 1
        elif event.version <= record.version:
            return record
        else:
            before, started, expected = record.phase, record.status != _REQUESTED, record.version + 1
        known = EVENT_TYPES.get(event.type)
        if known is None or event.format > known.format:
            return self._unknown(record, event)
        after = next_phase(before, event.type, started=started)
        if after is None or event.version != expected:
            raise IllegalMoveError(str(event.stream), event.version, before, event.type)
        before_it = BLANK if record is None else record
        try:
            changes = _quickly_changed(before_it, event) or _changed(before_it, event, event.body())
        except (KeyError, TypeError, IndexError, NotJsonError) as error:
            raise UnreadableEventError(str(event.stream), event.version, event.type) from error
        changes["version"], changes["phase"] = expected, after
        return record_changed(before_it, changes)

    @staticmethod
    def _unknown(record: ToolInvocationRecord | None, event: StoredEvent) -> ToolInvocationRecord | None:
        if event.moves_state:
            raise UnknownEventError(str(event.stream), event.version, event.type)
        return None if record is None else record_with(record, version=event.version)


Changes = dict[str, Any]
Body = dict[str, Any]


def _changed(record: ToolInvocationRecord, event: StoredEvent, body: Body) -> Changes:
    """What a legal move changes in the record it meets, which is blank for the first event."""
    return _CHANGES[event.type](record, event, body)


def _quickly_changed(record: ToolInvocationRecord, event: StoredEvent) -> Changes | None:
    """What `_changed` says, at half the price; None in any doubt.

    Reading a stored payload exactly looks through all of it for doubles that are written like integers. The
    fold takes a few members only, so these are looked at: whatever is no plain text or number is a doubt.
    """
    try:
        body = from_json(event.payload, allow_inf_nan=False, cache_strings="none")
        if type(body) is not dict:
            return None
        changes = _changed(record, event, body)
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


def _requested(_record: ToolInvocationRecord, event: StoredEvent, body: Body) -> Changes:
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


def _nothing(_record: ToolInvocationRecord, _event: StoredEvent, _body: Body) -> Changes:
    return {}


def _reasoned(reason: Mapping[str, Any]) -> Changes:
    return {"reason_code": reason["code"], "reason": reason["sentence"]}


def _deferred(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return _reasoned(body["reasons"][0]) if body["reasons"] else {}


def _parked(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    reasons = body["snapshot"]["reasons"]
    return {"votes": 0, "approvers": (), **(_reasoned(reasons[0]) if reasons else {})}


def _voted(record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    vote, approvers = body["vote"], record.approvers
    if vote["decision"] == "approve":
        approvers = (*approvers, vote["approver"])
    return {"votes": record.votes + 1, "approvers": approvers}


def _granted(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return {
        "granted_by": body["by"],
        "permit_digest": terms_digest(body["permit"]["terms"]),
        "reason_code": None,
        "reason": None,
    }


def _denied(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return {"reason_code": "APPROVAL_DENIED", "reason": body["reason"]}


def _expired(_record: ToolInvocationRecord, _event: StoredEvent, _body: Body) -> Changes:
    return {"reason_code": "APPROVAL_EXPIRED", "reason": "nobody answered in time"}


def _returned(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return {"granted_by": None, "permit_digest": None, **_reasoned(body["reason"])}


def _started(record: ToolInvocationRecord, event: StoredEvent, body: Body) -> Changes:
    return {
        "status": _STARTED,
        "started_at_us": record.started_at_us if record.started_at_us is not None else event.at_us,
        "attempt": body["attempt"],
        "nonce": body["nonce"],
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


def _completed(_record: ToolInvocationRecord, event: StoredEvent, body: Body) -> Changes:
    return {
        "status": _COMPLETED,
        "completed_at_us": event.at_us,
        "nonce": None,
        **_receipted(body["sealed"]),
    }


def _failed(_record: ToolInvocationRecord, event: StoredEvent, body: Body) -> Changes:
    return {
        "status": _FAILED,
        "completed_at_us": event.at_us,
        "nonce": None,
        **_reasoned(body["failure"]),
        **_receipted(body["sealed"]),
    }


def _attempt_failed(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return {"nonce": None, **_reasoned(body["failure"])}


def _released(record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return {"nonce": None, "attempt": max(0, record.attempt - 1), **_reasoned(body["reason"])}


def _abandoned(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return {"nonce": None, **_reasoned(body["reason"])}


def _rejected(_record: ToolInvocationRecord, event: StoredEvent, body: Body) -> Changes:
    return {
        "status": Status.REJECTED.value,
        "completed_at_us": event.at_us,
        **_reasoned(body["reason"]),
    }


def _cancelling(_record: ToolInvocationRecord, _event: StoredEvent, _body: Body) -> Changes:
    return {"cancel_requested": True}


def _unknown_outcome(_record: ToolInvocationRecord, _event: StoredEvent, body: Body) -> Changes:
    return {"nonce": None, **_reasoned(body["reason"]), **_receipted(body["sealed"])}


def _resolved(_record: ToolInvocationRecord, event: StoredEvent, body: Body) -> Changes:
    executed = body["verdict"] == "executed"
    return {
        "status": (Status.COMPLETED if executed else Status.FAILED).value,
        "completed_at_us": event.at_us,
        "reason": body["reason"],
        **_receipted(body["sealed"]),
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

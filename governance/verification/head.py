"""What the head of each stream must be, by its events alone. Pure, and apart from whoever writes heads.

Never reads a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from governance.ledger import Head, head_with
from interlock.canonical import canonical
from interlock.contract import Tool
from interlock.event import PrincipalRegistered, SessionOpened, StoredEvent, StreamKind
from interlock.phase import NEW, next_phase

Body = Mapping[str, Any]

LIVENESS = frozenset(("published_us", "ready"))
"""Columns that follow from no event; `ready` is judged by the line it stands in."""


def standing_of(events: Sequence[StoredEvent], contract: Tool | None = None) -> Head | None:
    """The head that an invocation's events add up to, under the contract that its request names.

    Not derivable, for they are liveness only: `published_us` (when a hint was last sent), and `ready` (which
    others of its stage decide as well: a ready one must be the first open of its stage, and wait). Everything
    else is: `alone`, `boot` and `claimed_us` come from claims and what became of them. Raises KeyError and
    TypeError for a payload that is not what its type says.
    """
    head: Head | None = None
    for event in events:
        head = stand(head, event, event.body())
    return None if head is None else with_contract(head, contract)


def stand(head: Head | None, event: StoredEvent, body: Body) -> Head:
    """The head of an invocation after one more event, but for what only its contract says."""
    if head is None:
        return _requested(event, body)
    columns = _COLUMNS.get(event.type, _nothing)(head, event, body)
    phase = next_phase(head.phase, event.type, started=head.started) or head.phase
    return head_with(head, version=event.version, at_us=event.at_us, phase=phase, **columns)


def with_contract(head: Head, contract: Tool | None) -> Head:
    """The head with the columns that its contract says."""
    guards, batchable = (False, False) if contract is None else (contract.guards_twins, contract.is_batchable)
    return head_with(head, guards_twins=guards, batchable=batchable)


def _requested(event: StoredEvent, body: Body) -> Head:
    return Head(
        event.kind,
        event.stream_id,
        version=event.version,
        at_us=event.at_us,
        tenant=body["tenant"],
        session=body["session"],
        phase=next_phase(NEW, event.type) or NEW,
        client=body["client"],
        stage=body["stage"],
        tool=body["tool"],
        contract_digest=body["contract_digest"],
        pool=body["capability_pool"],
        priority=body["priority"],
        accepted_seq=event.seq,
        action_digest=body["action_digest"],
        request_digest=body["request_digest"],
        deadline_us=body["deadline_us"] or 0,
        may_repeat=body["may_repeat"],
        external=body["effect_scope"] == "external",
    )


Columns = dict[str, Any]


def _nothing(_head: Head, _event: StoredEvent, _body: Body) -> Columns:
    return {}


def _parked(_head: Head, _event: StoredEvent, _body: Body) -> Columns:
    return {"epoch": 0}


def _granted(_head: Head, _event: StoredEvent, body: Body) -> Columns:
    terms = body["permit"]["terms"]
    return {"epoch": terms["epoch"], "permit_until_us": terms["valid_until_us"]}


def _returned(head: Head, _event: StoredEvent, body: Body) -> Columns:
    return {"alone": head.alone or body["reason"]["code"] == _UNCLAIMED}


_UNCLAIMED = "TOOL_UNAVAILABLE"
"""Why the sweep gives a permit back that no pool claimed; what it offers next, it offers alone."""


def _started(_head: Head, event: StoredEvent, body: Body) -> Columns:
    return {
        "nonce": body["nonce"],
        "boot": body["boot"],
        "claimed_us": event.at_us,
        "attempt": body["attempt"],
        "started": True,
    }


def _idle(_head: Head, _event: StoredEvent, _body: Body) -> Columns:
    return {"nonce": "", "boot": ""}


def _released(head: Head, _event: StoredEvent, _body: Body) -> Columns:
    return {"nonce": "", "boot": "", "attempt": max(0, head.attempt - 1)}


def _abandoned(_head: Head, _event: StoredEvent, body: Body) -> Columns:
    return {"nonce": "", "boot": "", "alone": body["alone"]}


def _cancelling(_head: Head, _event: StoredEvent, _body: Body) -> Columns:
    return {"cancel": True}


_COLUMNS: Mapping[str, Callable[[Head, StoredEvent, Body], Columns]] = MappingProxyType(
    {
        "ApprovalRequested": _parked,
        "ApprovalGranted": _granted,
        "PermitReturned": _returned,
        "ToolExecutionStarted": _started,
        "ToolExecutionCompleted": _idle,
        "ToolExecutionFailed": _idle,
        "ToolExecutionRejected": _idle,
        "ExecutionAttemptFailed": _idle,
        "ExecutionReleased": _released,
        "ExecutionAbandoned": _abandoned,
        "CancellationRequested": _cancelling,
        "ReconciliationRequired": _idle,
        "ReconciliationResolved": _idle,
    }
)


# --- streams that are no invocation's ------------------------------------------------------------------


def record_standing_of(events: Sequence[StoredEvent]) -> Head:
    """The head of any other stream that has events. Raises what reading a payload raises."""
    first, last = events[0], events[-1]
    plain = Head(first.kind, first.stream_id, version=last.version, at_us=last.at_us)
    match first.kind:
        case StreamKind.SESSION:
            return _session(plain, events)
        case StreamKind.PRINCIPAL:
            payload = PrincipalRegistered.model_validate(last.body())
            data = canonical(payload.to_json()).decode()
            return head_with(plain, tenant=payload.tenant, phase="registered", data=data)
        case StreamKind.TOOL:
            digest = last.body()["contract_digest"]
            return head_with(plain, tool=first.stream_id, contract_digest=digest, phase="registered")
        case StreamKind.CONTROL if first.type == "InstallationStarted":
            return head_with(plain, phase="started")
        case _:
            return head_with(plain, tenant=first.tenant, session=first.session)


def _session(plain: Head, events: Sequence[StoredEvent]) -> Head:
    opened = SessionOpened.model_validate(events[0].body())
    name = plain.id.removeprefix(f"{opened.tenant}/")
    closed = any(event.type == "SessionClosed" for event in events)
    data = canonical({"mode": opened.mode, "client": opened.client, "closed": closed}).decode()
    phase = "closed" if closed else "open"
    return head_with(plain, tenant=opened.tenant, session=name, phase=phase, data=data)

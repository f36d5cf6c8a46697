"""One invocation as whoever executes needs it, read from its head and its events. Pure.

It never judges whether the permit covers the work; it says what was asked, what was allowed, and how often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from governance.action import action_of
from governance.ledger import Head
from interlock.canonical import JsonObject, canonical, sha256_hex
from interlock.contract import EffectScope
from interlock.event import StoredEvent, ToolInvocationRequested
from interlock.permit import Action, Permit
from interlock.phase import NEW, Phase, next_phase
from interlock.request import ToolRequest

Unseal = Callable[[JsonObject, Sequence[str], str], JsonObject]
"""Stored arguments, the pointers to what is sealed in them, and the invocation: the true arguments."""


CLAIMABLE = frozenset((Phase.QUEUED.value, Phase.RETRY_WAIT.value))


@dataclass(frozen=True, slots=True)
class Work:
    """One invocation as whoever executes needs it: what was asked, and what was allowed."""

    head: Head
    requested: ToolInvocationRequested
    """Without its arguments, which are those of `request`."""
    permit: Permit | None
    """The one that stands, None where none does."""
    permit_digest: str
    action: Action
    """Made of what is about to run, never of what was once computed."""
    request: ToolRequest
    """With the true arguments."""
    told_before: tuple[tuple[str, object], ...]
    """Fields of the action as the head, and the snapshot of a parked one, tell them for a second time."""
    permit_uses: int
    """Attempts begun under the permit that stands."""
    releases: int
    """How often it was given back since it last ran."""
    cause: str

    @property
    def invocation_id(self) -> str:
        return self.head.id


@dataclass(frozen=True, slots=True)
class Unusable:
    """An invocation that cannot be executed from what was read; nothing was written about it."""

    invocation_id: str
    code: str
    detail: str


def read_work(head: Head, events: Sequence[StoredEvent], unseal: Unseal) -> Work | Unusable:
    """The work behind a head and all events of its stream."""
    fault = _phase_fault(head, events)
    if fault is not None:
        return Unusable(head.id, "HEAD_DIFFERS", fault)
    body = events[0].body()
    # Kept once, as the request's: to freeze and thaw them again would cost more than all the rest.
    arguments = body.pop("arguments", None)
    requested = ToolInvocationRequested.model_validate({**body, "arguments": None})
    if not isinstance(arguments, dict):
        return Unusable(head.id, "ARGUMENTS_NOT_OBJECT", "there are no arguments to run with")
    if requested.sensitive:
        try:
            arguments = unseal(arguments, requested.sensitive, head.id)
        except ValueError as error:
            return Unusable(head.id, "SEAL_NOT_OPENED", str(error))
    work = _work(head, events, requested, arguments)
    fault = _column_fault(work, events[0])
    return work if fault is None else Unusable(head.id, "HEAD_DIFFERS", fault)


def _column_fault(work: Work, event: StoredEvent) -> str | None:
    """What the head, or the row of the request, says otherwise than the request that may be claimed.

    A request that is itself not what was permitted is left to the permit, which names what differs.
    """
    head, requested = work.head, work.requested
    if head.phase not in CLAIMABLE or work.permit is None:
        return None
    if work.permit.terms.action_digest != work.action.digest:
        return None
    told = {
        "tenant": (requested.tenant, head.tenant, event.tenant),
        "session": (requested.session, head.session, event.session),
        "stage": (requested.stage, head.stage),
        "client": (requested.client, head.client),
        "tool": (requested.tool, head.tool),
        "contract_digest": (requested.contract_digest, head.contract_digest),
        "pool": (requested.capability_pool, head.pool),
        "priority": (requested.priority, head.priority),
        "deadline_us": (requested.deadline_us or 0, head.deadline_us),
        "may_repeat": (requested.may_repeat, head.may_repeat),
        "external": (requested.effect_scope == EffectScope.EXTERNAL, head.external),
        "action_digest": (work.action.digest, head.action_digest, requested.action_digest),
        "request_digest": (requested.request_digest, head.request_digest),
    }
    names = [name for name, (true, *others) in told.items() if any(other != true for other in others)]
    return f"the head or the row says otherwise than the request of {', '.join(names)}" if names else None


def _phase_fault(head: Head, events: Sequence[StoredEvent]) -> str | None:
    """Whether head and events tell the same story: a head put back would offer what has already run."""
    phase, started = NEW, False
    for event in events:
        after = next_phase(phase, event.type, started=started)
        if after is None:
            return f"{event.type} at version {event.version} is no legal move from {phase}"
        phase, started = after, started or event.type == "ToolExecutionStarted"
    if phase != head.phase or events[-1].version != head.version:
        return f"events say {phase} at {events[-1].version}, the head {head.phase} at {head.version}"
    return None


def _work(
    head: Head, events: Sequence[StoredEvent], requested: ToolInvocationRequested, arguments: JsonObject
) -> Work:
    granted = _standing_grant(events)
    permit = None if granted is None else Permit.model_validate(granted.body()["permit"])
    digest = "" if permit is None else permit.digest
    return Work(
        head=head,
        requested=requested,
        permit=permit,
        permit_digest=digest,
        action=action_of(requested, sha256_hex(canonical(arguments))),
        request=ToolRequest(tool=requested.tool, arguments=arguments),
        told_before=_told_before(head, events, requested),
        permit_uses=_uses(events, digest),
        releases=_releases(events),
        cause=f"event:{(granted or events[-1]).seq}",
    )


def _told_before(
    head: Head, events: Sequence[StoredEvent], requested: ToolInvocationRequested
) -> tuple[tuple[str, object], ...]:
    names = ("tenant", "client", "session", "stage", "tool", "contract_digest", "pool")
    told: list[tuple[str, object]] = [(name, getattr(head, name)) for name in names]
    told.append(("arguments_hash", requested.arguments_hash))
    for event in events:
        if event.type == "ApprovalRequested":
            snapshot = event.body()["snapshot"]
            told += [
                (name, snapshot[name]) for name in (*names[:-1], "arguments_hash", "subject", "route", "tier")
            ]
    return tuple(told)


def _standing_grant(events: Sequence[StoredEvent]) -> StoredEvent | None:
    for event in reversed(events):
        if event.type == "ApprovalGranted":
            return event
        if event.type == "PermitReturned":
            return None
    return None


def _uses(events: Sequence[StoredEvent], permit_digest: str) -> int:
    uses = 0
    for event in events:
        if event.type == "ToolExecutionStarted" and event.body()["permit_digest"] == permit_digest:
            uses += 1
        elif event.type == "ExecutionReleased":
            uses = max(0, uses - 1)
    return uses


def _releases(events: Sequence[StoredEvent]) -> int:
    count = 0
    for event in events:
        if event.type == "ExecutionReleased":
            count += 1
        elif event.type in ("ExecutionAttemptFailed", "ExecutionAbandoned"):
            count = 0
    return count

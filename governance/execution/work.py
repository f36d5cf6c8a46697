"""One invocation as whoever executes needs it, read from its head and its events. Pure.

It never judges whether the permit covers the work; it says what was asked, what was allowed, and how often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from governance.action import action_of
from governance.ledger import Head
from interlock.canonical import JsonObject, canonical, sha256_hex, thaw
from interlock.contract import EffectScope
from interlock.event import StoredEvent, ToolInvocationRequested
from interlock.permit import Action, Permit
from interlock.phase import NEW, Phase, next_phase

Unseal = Callable[[JsonObject, Sequence[str], str], JsonObject]
"""Stored arguments, the pointers to what is sealed in them, and the invocation: the true arguments."""


CLAIMABLE = frozenset((Phase.QUEUED.value, Phase.RETRY_WAIT.value))


@dataclass(frozen=True, slots=True)
class Work:
    """One invocation as whoever executes needs it: what was asked, and what was allowed."""

    head: Head
    requested: ToolInvocationRequested
    """Without its arguments, which are those below."""
    permit: Permit | None
    """The one that stands, None where none does."""
    permit_digest: str
    action: Action
    """Made of what is about to run, never of what was once computed."""
    action_digest: str
    """That action's, computed once for every comparison."""
    arguments: JsonObject
    """The true ones, of which the action's hash was made. Nobody changes them: a tool gets a copy."""
    told_before: tuple[tuple[str, object], ...]
    """Where the action is not what was permitted: its fields as the head, and the snapshot of a parked one,
    tell them for a second time."""
    permit_uses: int
    """Attempts begun under the permit that stands."""
    releases: int
    """How often it was given back since it last ran."""
    cause: str

    @property
    def invocation_id(self) -> str:
        return self.head.id

    def arguments_copy(self) -> dict[str, Any]:
        """A fresh copy a tool may do with as it likes."""
        copy = thaw(self.arguments)
        assert isinstance(copy, dict)
        return copy


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
    head, requested, permit = work.head, work.requested, work.permit
    if head.phase not in CLAIMABLE or permit is None:
        return None
    if permit.terms.action_digest != work.action_digest:
        return None
    true = (
        requested.tenant, requested.session, requested.stage, requested.client, requested.tool,
        requested.contract_digest, requested.capability_pool, requested.priority, requested.deadline_us or 0,
        requested.may_repeat, requested.effect_scope == _EXTERNAL, work.action_digest,
        requested.request_digest,
    )  # fmt: skip
    again = (event.tenant, event.session, requested.action_digest)
    if true == _columns_of(head) and again == (requested.tenant, requested.session, work.action_digest):
        return None
    return _differing(true, head, event, requested.action_digest)


_EXTERNAL = EffectScope.EXTERNAL.value
_COLUMNS = (
    "tenant", "session", "stage", "client", "tool", "contract_digest", "pool", "priority", "deadline_us",
    "may_repeat", "external", "action_digest", "request_digest",
)  # fmt: skip
_columns_of = attrgetter(*_COLUMNS)


def _differing(true: tuple[object, ...], head: Head, event: StoredEvent, action_digest: str) -> str:
    told = dict(zip(_COLUMNS, _columns_of(head), strict=True))
    again = {"tenant": event.tenant, "session": event.session, "action_digest": action_digest}
    names = [
        name
        for name, value in zip(_COLUMNS, true, strict=True)
        if told[name] != value or again.get(name, value) != value
    ]
    return f"the head or the row says otherwise than the request of {', '.join(names)}"


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
    action = action_of(requested, sha256_hex(canonical(arguments)))
    action_digest = action.digest
    is_other = permit is not None and permit.terms.action_digest != action_digest
    return Work(
        head=head,
        requested=requested,
        permit=permit,
        permit_digest=digest,
        action=action,
        action_digest=action_digest,
        arguments=arguments,
        told_before=_told_before(head, events, requested) if is_other else (),
        permit_uses=_uses(events, digest),
        releases=_releases(events),
        cause=f"invocation:{head.id}@{(granted or events[-1]).version}",
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

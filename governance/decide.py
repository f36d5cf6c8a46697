"""Deciding: what the gate's judgement makes of an invocation, as events, head and due row.

Words what the gate decided; appends nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from governance.ledger import Append, Due, Head, head_with
from governance.park import approval_request, parked_due, parked_head
from interlock.canonical import canonical
from interlock.contract import Tool
from interlock.decision import Decision, DecisionKind, Reason
from interlock.event import (
    ApprovalGranted,
    DecisionDeferred,
    FailureDetail,
    NewEvent,
    ToolExecutionFailed,
    ToolExecutionRejected,
    ToolInvocationRequested,
    new_event,
)
from interlock.permit import Permit, PermitTerms
from interlock.phase import Phase
from interlock.seal import Purpose, Signer, seal_batch
from interlock.settings import Settings
from interlock.word import Word

ACTOR = "governance"
_QUEUED = Phase.QUEUED.value


@dataclass(frozen=True, slots=True)
class Matter:
    """One judged invocation: what was recorded of it, and the decision."""

    head: Head
    """As it stands, or as it will stand after the request is recorded."""
    requested: ToolInvocationRequested
    contract: Tool | None
    decision: Decision
    approvers: tuple[str, ...] = ()
    """Who answered yes, where a quorum did."""
    prior: tuple[NewEvent, ...] = ()
    """Events that come before the verdict in the same append."""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Clerk:
    """Words decisions: one append each, with permits under governance's seal."""

    signer: Signer
    settings: Settings

    def write(self, matters: Sequence[Matter], *, now_us: int) -> list[Append]:
        """One append each, in order; the permits of one call share one signature."""
        permits = self._permits(matters, now_us)
        records = _Records()
        return [self._append(matter, permits.get(matter.head.id), records, now_us) for matter in matters]

    def _permits(self, matters: Sequence[Matter], now_us: int) -> dict[str, Permit]:
        allowed = [
            self._terms(matter, now_us) for matter in matters if matter.decision.kind is DecisionKind.ALLOWED
        ]
        seals = seal_batch(self.signer, Purpose.PERMIT, [terms.digest for terms in allowed])
        return {
            terms.invocation_id: Permit.of_checked(terms=terms, seal=seal)
            for terms, seal in zip(allowed, seals, strict=True)
        }

    def _terms(self, matter: Matter, now_us: int) -> PermitTerms:
        until_us = now_us + self.settings.permit_ms * 1_000
        if matter.head.deadline_us:
            until_us = min(until_us, matter.head.deadline_us)
        return PermitTerms.of_checked(
            action_digest=matter.requested.action_digest,
            invocation_id=matter.head.id,
            epoch=matter.decision.epoch,
            valid_from_us=now_us,
            valid_until_us=until_us,
            attempts=attempts_of(matter.contract),
        )

    def _append(self, matter: Matter, permit: Permit | None, records: _Records, now_us: int) -> Append:
        payload, head, due = self._outcome(matter, permit, now_us)
        written = None
        if permit is not None:
            written = payload.to_bytes(verdicts=records.of(matter.decision))
        event = new_event(payload, cause=matter.cause, actor=ACTOR, written=written)
        return Append(
            head.stream,
            matter.head.version,
            [*matter.prior, event],
            head=head,
            due=due,
            tenant=head.tenant,
            session=head.session,
        )

    def _outcome(self, matter: Matter, permit: Permit | None, now_us: int) -> tuple[Word, Head, Due | None]:
        head, decision = matter.head, matter.decision
        if permit is not None:
            return self._granted(matter, permit, now_us)
        if decision.kind is DecisionKind.HELD:
            attempts = attempts_of(matter.contract)
            request = approval_request(
                head.id, matter.requested, decision, now_us=now_us, attempts=attempts, settings=self.settings
            )
            return request, parked_head(head), parked_due(head, request)
        if decision.kind is DecisionKind.DEFERRED:
            until_us = decision.until_us or now_us + self.settings.look_again_ms * 1_000
            deferred = DecisionDeferred(reasons=decision.reasons, until_us=until_us)
            waiting = head_with(head, phase=Phase.DECIDING.value)
            return deferred, waiting, Due(head.kind, head.id, "decide", until_us)
        return ending(head, decision.reasons[0], decision), done(head), None

    def _granted(self, matter: Matter, permit: Permit, now_us: int) -> tuple[Word, Head, Due]:
        granted = ApprovalGranted.of_checked(
            by="quorum" if matter.approvers else "policy",
            permit=permit,
            policy=matter.decision.policy,
            verdicts=matter.decision.verdicts,
            approvers=matter.approvers,
        )
        head = head_with(
            matter.head,
            phase=_QUEUED,
            epoch=permit.terms.epoch,
            permit_until_us=permit.terms.valid_until_us,
            published_us=0,
        )
        look_us = now_us + self.settings.look_again_ms * 1_000
        if head.deadline_us:
            look_us = min(look_us, head.deadline_us)
        return granted, head, Due(head.kind, head.id, "release", look_us)


class _Records:
    """The written verdicts of one batch: most of its decisions are the same one."""

    def __init__(self) -> None:
        self._last: tuple[Decision, bytes] | None = None

    def of(self, decision: Decision) -> bytes:
        """Canonical bytes of the verdicts."""
        if self._last is None or self._last[0] is not decision:
            self._last = decision, canonical([verdict.to_json() for verdict in decision.verdicts])
        return self._last[1]


def attempts_of(contract: Tool | None) -> int:
    """How many attempts a permit for this tool covers."""
    return 1 if contract is None else contract.attempts_max


def done(head: Head) -> Head:
    """The head of an invocation that is final."""
    return head_with(head, phase=Phase.DONE.value, ready=False, published_us=0, nonce="", boot="")


def ending(head: Head, reason: Reason, decision: Decision | None = None) -> Word:
    """How an invocation ends without an outcome: rejected before its first start, failed after it."""
    if head.started:
        detail = FailureDetail(code=reason.code, sentence=reason.sentence, recoverable=False, began=False)
        return ToolExecutionFailed(nonce="", failure=detail)
    return ToolExecutionRejected(reason=reason, verdicts=decision.verdicts if decision else ())

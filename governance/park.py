"""Parking: the approval request with its frozen snapshot, and what ends the wait for an answer.

Never counts votes and never grants.
"""

from __future__ import annotations

from governance.ledger import Due, Head, head_with
from governance.sensitive import masked_arguments
from interlock.approval import ApprovalNeed, ApprovalSnapshot
from interlock.canonical import thaw
from interlock.decision import Decision
from interlock.event import ApprovalRequested, ToolInvocationRequested
from interlock.permit import PermitTerms
from interlock.phase import Phase
from interlock.settings import Settings


def approval_request(
    invocation_id: str,
    requested: ToolInvocationRequested,
    decision: Decision,
    *,
    now_us: int,
    attempts: int,
    settings: Settings,
) -> ApprovalRequested:
    """The question as approvers see it: exact arguments, why it is asked, how long it waits."""
    expires_us = now_us + settings.approval_us(requested.tier)
    if requested.deadline_us:
        expires_us = min(expires_us, requested.deadline_us)
    terms = PermitTerms(
        action_digest=requested.action_digest,
        invocation_id=invocation_id,
        epoch=decision.epoch,
        valid_from_us=now_us,
        valid_until_us=expires_us,
        attempts=attempts,
    )
    stored = thaw(requested.arguments)
    assert isinstance(stored, dict)
    snapshot = ApprovalSnapshot(
        invocation_id=invocation_id,
        tool=requested.tool,
        tool_version=requested.tool_version,
        contract_digest=requested.contract_digest,
        tier=requested.tier,
        arguments=masked_arguments(stored, requested.sensitive),
        arguments_hash=requested.arguments_hash,
        tenant=requested.tenant,
        client=requested.client,
        subject=requested.subject,
        session=requested.session,
        stage=requested.stage,
        route=requested.route,
        terms=terms,
        reasons=[reason.to_json() for reason in decision.reasons],
    )
    return ApprovalRequested(
        snapshot=snapshot, need=ApprovalNeed(), expires_us=expires_us, verdicts=decision.verdicts
    )


def parked_head(head: Head) -> Head:
    """The head of an invocation that waits for an answer."""
    return head_with(head, phase=Phase.AWAITING_APPROVAL.value, ready=False, published_us=0, epoch=0)


def parked_due(head: Head, request: ApprovalRequested) -> Due:
    """When silence ends the wait."""
    return Due(head.kind, head.id, "approval_expiry", request.expires_us)

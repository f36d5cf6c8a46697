"""The words of an approval: what approvers see, what they answer, and what their answer signs.

Values only; counting votes is governance's.
"""

from __future__ import annotations

from typing import Literal

from interlock.canonical import digest_of
from interlock.permit import PermitTerms
from interlock.word import FrozenValue, Word


class ApprovalNeed(Word):
    """How many distinct approvers must agree."""

    count: int = 1


class ApprovalSnapshot(Word):
    """The frozen picture an approver decides from; nothing in it can change while it waits."""

    invocation_id: str
    tool: str
    tool_version: str
    contract_digest: str
    tier: str
    arguments: FrozenValue
    """Canonical arguments, sensitive values masked."""
    arguments_hash: str
    tenant: str
    client: str
    subject: str | None
    session: str
    stage: str
    route: str | None
    terms: PermitTerms
    """What a vote signs; its validity is the approval's, not yet the permit's."""
    need: ApprovalNeed = ApprovalNeed()
    reasons: FrozenValue = ()


class Vote(Word):
    """One approver's answer over one frozen snapshot."""

    invocation_id: str
    approver: str
    decision: Literal["approve", "deny"]
    decision_id: str
    """Chosen by the approver; the same answer sent again is the same answer."""
    terms_digest: str
    """The permit digest of the snapshot's terms."""
    expires_us: int = 0
    """The answer counts only before this moment; 0 is until the approval expires."""
    reason: str = ""
    via: str = "queue"
    """By which way in it came: `cli`, `queue`."""
    kid: str = ""
    signature: str = ""
    """Hex Ed25519 over `signed_bytes`, where the way in does not authenticate the approver itself."""

    def signed_bytes(self) -> bytes:
        """What a bot signs: digest, decision, decision id, expiry, itself."""
        return digest_of(
            [
                "interlock.vote.v1",
                self.invocation_id,
                self.approver,
                self.terms_digest,
                self.decision,
                self.decision_id,
                self.expires_us,
                self.reason,
            ]
        ).encode()

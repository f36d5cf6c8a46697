"""Whether a grant was due: the session's mode carries it, or enough persons said yes to just this.

Judges by events of other streams as they stood at that number; knows no policy but modes and quorums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from governance.principal import Principal
from governance.verification.fact import UNREADABLE, Facts
from governance.verification.fault import FaultCode, Faults
from governance.verification.key import RingOf, ring_name
from interlock.approval import Vote
from interlock.event import (
    ApprovalGranted,
    ApprovalRequested,
    ApprovalVoted,
    StoredEvent,
    ToolInvocationRequested,
)
from interlock.tier import SessionMode, Tier


class Ballots:
    """The question that stands in one stream, and the answers to exactly that question."""

    def __init__(self) -> None:
        self.request: ApprovalRequested | None = None
        self.votes: list[tuple[StoredEvent, ApprovalVoted]] = []

    def feed(self, event: StoredEvent, body: Mapping[str, Any]) -> None:
        """Take an event of the stream. Raises ValidationError."""
        if event.type == "ApprovalRequested":
            self.request, self.votes = ApprovalRequested.model_validate(body), []
        elif event.type == "ApprovalVoted":
            self.votes.append((event, ApprovalVoted.model_validate(body)))


class GrantCheck:
    """Judges grants by the facts of the page that is being read."""

    def __init__(self, facts: Facts, ring_of: RingOf, faults: Faults) -> None:
        self._facts = facts
        self._ring_of = ring_of
        self._faults = faults

    def check(
        self,
        event: StoredEvent,
        granted: ApprovalGranted,
        requested: ToolInvocationRequested,
        ballots: Ballots,
    ) -> None:
        """Name what a grant lacks."""
        differs = self._contract_fault(requested)
        if differs is not None:
            self._faults.add(event.seq, FaultCode.CONTRACT_DIFFERS, differs)
        match granted.by:
            case "policy":
                lacks = self._mode_fault(event, requested)
            case "quorum":
                lacks = self._quorum_fault(granted, requested, ballots)
            case _:
                lacks = f"nobody grants by {granted.by!r}"
        if lacks is not None:
            self._faults.add(event.seq, FaultCode.GRANT_UNFOUNDED, lacks)

    def _contract_fault(self, requested: ToolInvocationRequested) -> str | None:
        contract = self._facts.contract(requested.contract_digest)
        if contract is None:
            return "the ledger does not keep the contract it was granted under"
        pairs = {
            "tool": (requested.tool, contract.qualified_name),
            "tool_version": (requested.tool_version, contract.version),
            "tier": (requested.tier, contract.tier.value),
            "capability_pool": (requested.capability_pool, contract.pool.value),
            "may_repeat": (requested.may_repeat, contract.may_repeat),
            "effect_scope": (requested.effect_scope, contract.effect_scope.value),
            "timeout_ms": (requested.timeout_ms, contract.timeout_ms),
        }
        wrong = [
            f"{name} {said!r}, not {contracted!r}"
            for name, (said, contracted) in pairs.items()
            if said != contracted
        ]
        return f"its request says {'; '.join(wrong)}" if wrong else None

    def _mode_fault(self, event: StoredEvent, requested: ToolInvocationRequested) -> str | None:
        opened = self._facts.session(requested.tenant, requested.session)
        if opened is None or not opened.stands_at(event):
            return f"session {requested.session} was not open"
        if opened.client != requested.client:
            return f"session {requested.session} belongs to {opened.client}"
        asked = opened.mode if requested.mode is None else SessionMode(requested.mode)
        mode = opened.mode if asked.is_above(opened.mode) else asked
        if mode.grants(Tier(requested.tier)):
            return None
        return f"mode {mode.value} does not grant {requested.tier}"

    def _quorum_fault(
        self, granted: ApprovalGranted, requested: ToolInvocationRequested, ballots: Ballots
    ) -> str | None:
        request = ballots.request
        if request is None:
            return "nobody was asked"
        persons: dict[str, str] = {}
        why = "nobody answered"
        for event, voted in ballots.votes:
            fault = self._vote_fault(event, voted, requested, request)
            if fault is None:
                persons.setdefault(voted.person, voted.vote.approver)
            else:
                why = f"{voted.vote.approver}: {fault}"
        if len(persons) < request.need.count:
            return f"{len(persons)} of {request.need.count} answers count; {why}"
        if not set(granted.approvers) <= set(persons.values()):
            return f"it names {', '.join(granted.approvers)}, and not all of them count; {why}"
        return None

    def _vote_fault(
        self,
        event: StoredEvent,
        voted: ApprovalVoted,
        requested: ToolInvocationRequested,
        request: ApprovalRequested,
    ) -> str | None:
        vote, approver = voted.vote, self._facts.principal(voted.vote.approver, event.seq)
        if vote.decision != "approve":
            return "it is no yes"
        if approver is None or approver.person != voted.person:
            return "no such approver was registered for this person"
        if {approver.name, approver.person} & {requested.client, requested.subject}:
            return "who asks, or is acted for, cannot approve"
        if approver.tenant != requested.tenant or not approver.may_grant(requested.tool, requested.tier):
            return "this approver may not answer for this tool and tier"
        terms = request.snapshot.terms
        if vote.terms_digest != terms.digest or terms.action_digest != requested.action_digest:
            return "the answer is for other terms"
        if vote.invocation_id != event.stream_id or terms.invocation_id != event.stream_id:
            return "the answer is for another invocation"
        if vote.via == "queue" and not self._is_signed(vote, approver):
            return "the answer is not signed by its approver's key"
        return None

    def _is_signed(self, vote: Vote, approver: Principal) -> bool:
        try:
            kid = ring_name(approver.public_key)
            ring = self._ring_of({kid: approver.public_key})
            return ring.verify(kid, vote.signed_bytes(), bytes.fromhex(vote.signature))
        except UNREADABLE:
            return False

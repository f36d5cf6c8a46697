"""Voting: one table of rules for every way an answer comes in, and the append of those that count.

Never counts a quorum and never grants; a refused vote is evidence with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from governance.docket import Docket, load_dockets
from governance.ledger import Append, Due, Ledger, LedgerTransaction
from governance.principal import Principal, asking_persons, find_principal, is_asking, is_entitled
from interlock.approval import Vote
from interlock.decision import Reason
from interlock.event import ApprovalVoted, VoteRefused, evidence_stream, invocation_stream, new_event
from interlock.phase import Phase

VerifyKey = Callable[[str, bytes, bytes], bool]
"""(public key hex, data, signature) → whether it signed exactly this."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """Everything the rules look at."""

    vote: Vote
    docket: Docket
    approver: Principal | None
    authenticated: bool
    """Whether the way in proved who it is (its terminal's account, or a good signature)."""
    now_us: int
    asking: frozenset[str]
    """Names and persons behind the request."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason a vote does not count."""

    code: str
    sentence: str
    breaks: Callable[[Ballot], bool]


def _asked(ballot: Ballot) -> bool:
    return ballot.docket.head.phase == Phase.AWAITING_APPROVAL.value and ballot.docket.request is not None


def _is_requester(ballot: Ballot) -> bool:
    assert ballot.approver is not None
    return is_asking(ballot.approver, ballot.asking)


def _is_late(ballot: Ballot) -> bool:
    request = ballot.docket.request
    assert request is not None
    own = ballot.vote.expires_us
    return ballot.now_us >= request.expires_us or bool(own and ballot.now_us >= own)


def _other_digest(ballot: Ballot) -> bool:
    request = ballot.docket.request
    assert request is not None
    return ballot.vote.terms_digest != request.snapshot.terms.digest


def _answered_otherwise(ballot: Ballot) -> bool:
    return any(
        voted.vote.approver == ballot.vote.approver and voted.vote.decision != ballot.vote.decision
        for voted in ballot.docket.votes
    )


def _not_entitled(ballot: Ballot) -> bool:
    assert ballot.approver is not None
    return not is_entitled(ballot.approver, ballot.docket.requested)


RULES: tuple[Rule, ...] = (
    Rule("APPROVER_UNKNOWN", "no such approver is registered", lambda b: b.approver is None),
    Rule(
        "SIGNATURE_INVALID", "the answer is not signed by its approver's key", lambda b: not b.authenticated
    ),
    Rule("NOT_PARKED", "it does not wait for an approval", lambda b: not _asked(b)),
    Rule("VOTE_DIGEST_MISMATCH", "the answer is for other terms than those that wait", _other_digest),
    Rule("VOTE_LATE", "the answer came after its time", _is_late),
    Rule("APPROVER_IS_REQUESTER", "who asks, or is acted for, cannot approve", _is_requester),
    Rule("APPROVER_NOT_ENTITLED", "this approver may not answer for this tool and tier", _not_entitled),
    Rule("VOTE_CHANGED", "this approver has answered otherwise already", _answered_otherwise),
)
"""Every reason, in the order it is looked for; the first one found is the answer."""


def refusal(ballot: Ballot) -> Reason | None:
    """The first rule a ballot breaks."""
    broken = next((rule for rule in RULES if rule.breaks(ballot)), None)
    return None if broken is None else Reason(code=broken.code, sentence=broken.sentence)


def cast(ledger: Ledger, vote: Vote, *, verify: VerifyKey, trusted: bool = False) -> Reason | None:
    """Append a vote, or the evidence of why it does not count; the Reason where it does not.

    `trusted` says that the way in has authenticated the approver itself. The same vote again changes nothing.
    """
    while True:
        with ledger.write([str(invocation_stream(vote.invocation_id))]) as transaction:
            docket = load_dockets(transaction, [vote.invocation_id]).get(vote.invocation_id)
            if docket is None:
                return Reason(code="NOT_FOUND", sentence=f"there is no invocation {vote.invocation_id}")
            if _is_repeated(docket, vote):
                return None
            ballot = _ballot(transaction, docket, vote, verify, trusted)
            reason = refusal(ballot)
            if reason is not None:
                _record_refusal(transaction, docket, vote, reason)
                return reason
            assert ballot.approver is not None
            if not transaction.append([_append(docket, vote, ballot.approver, transaction.now_us)]):
                return None


def _is_repeated(docket: Docket, vote: Vote) -> bool:
    return any(
        voted.vote.approver == vote.approver
        and voted.vote.decision_id == vote.decision_id
        and voted.vote.decision == vote.decision
        for voted in docket.votes
    )


def _ballot(
    transaction: LedgerTransaction, docket: Docket, vote: Vote, verify: VerifyKey, trusted: bool
) -> Ballot:
    approver = find_principal(transaction, vote.approver)
    signed = approver is not None and approver.public_key != "" and _is_signed(vote, approver, verify)
    asking = asking_persons(transaction, docket.requested)
    return Ballot(vote, docket, approver, trusted or signed, transaction.now_us, asking)


def _is_signed(vote: Vote, approver: Principal, verify: VerifyKey) -> bool:
    try:
        signature = bytes.fromhex(vote.signature)
    except ValueError:
        return False
    return verify(approver.public_key, vote.signed_bytes(), signature)


def _append(docket: Docket, vote: Vote, approver: Principal, now_us: int) -> Append:
    head = docket.head
    payload = ApprovalVoted(vote=vote, person=approver.person)
    event = new_event(payload, cause=f"vote:{vote.decision_id}", actor=f"approver:{vote.approver}")
    # Due at once: if whoever voted dies before it wakes governance, the sweep does.
    review = Due(head.kind, head.id, "review", now_us)
    return Append(
        head.stream, head.version, [event], head=head, due=review, tenant=head.tenant, session=head.session
    )


def _record_refusal(transaction: LedgerTransaction, docket: Docket, vote: Vote, reason: Reason) -> None:
    head = docket.head
    event = new_event(
        VoteRefused(vote=vote.to_json(), reason=reason),
        cause=f"vote:{vote.decision_id}",
        actor=f"approver:{vote.approver}",
    )
    evidence = Append(evidence_stream(head.id), -1, [event], tenant=head.tenant, session=head.session)
    transaction.append([evidence])

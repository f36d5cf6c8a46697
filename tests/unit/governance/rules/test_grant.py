"""What becomes of parked invocations: votes, quorum, silence, cancellation, a world that changed."""

from __future__ import annotations

from typing import Any

import pytest

from governance.catalogue import add_tools
from governance.execution.attempt import Claim, Claimant, attempts_of, claim_step
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.receipt import SandboxReport
from interlock.tier import SessionMode
from tests.support.court import TOOLS, Court


@pytest.fixture
def court() -> Court:
    court = Court()
    court.approver()
    return court


def parked(court: Court, text: str = "x", **more: str) -> str:
    answer = court.say("note", {"text": text}, **more)
    assert answer.phase == "awaiting_approval"
    assert answer.invocation_id is not None
    return answer.invocation_id


def test_one_approval_grants_and_releases(court: Court) -> None:
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting)) is None
    hints = court.review(waiting)
    assert [hint.invocation_ids for hint in hints] == [(waiting,)]
    record = court.record(waiting)
    assert (record.phase, record.granted_by, record.approvers) == ("queued", "quorum", ("operator",))


def test_a_vote_makes_its_invocation_due_at_once(court: Court) -> None:
    waiting = parked(court)
    court.cast(court.vote_of(waiting))
    due = court.due(waiting)
    assert due is not None
    assert (due.what, due.at_us <= court.clock.now_us()) == ("review", True)


def test_reviewing_without_a_vote_changes_nothing(court: Court) -> None:
    waiting = parked(court)
    assert court.review(waiting) == []
    assert court.head(waiting).phase == "awaiting_approval"


def test_a_denial_is_final_for_the_action(court: Court) -> None:
    waiting = parked(court)
    court.cast(court.vote_of(waiting, "deny", reason="not today"))
    court.review(waiting)
    record = court.record(waiting)
    assert (record.status, record.reason_code, record.reason) == ("REJECTED", "APPROVAL_DENIED", "not today")
    assert court.say("note", {"text": "x"}).code == "DENIED_BEFORE"


def test_silence_ends_in_rejection(court: Court) -> None:
    waiting = parked(court)
    court.clock.advance(49 * 3600)
    court.review(waiting)
    assert court.record(waiting).reason_code == "APPROVAL_EXPIRED"
    assert court.due(waiting) is None


@pytest.mark.parametrize("excluded", ["local", "agent"])
def test_requester_and_subject_cannot_approve(court: Court, excluded: str) -> None:
    court.approver(excluded)
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting, approver=excluded)) == "APPROVER_IS_REQUESTER"
    assert court.review(waiting) == []


def test_another_principal_of_the_requesting_person_cannot_approve(court: Court) -> None:
    court.approver("second-account", person="agent")
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting, approver="second-account")) == "APPROVER_IS_REQUESTER"


@pytest.mark.parametrize("asking", ["local", "agent"])
def test_the_person_of_the_requesting_principal_cannot_approve_through_another(
    court: Court, asking: str
) -> None:
    court.approver(asking, person="Alice")
    court.approver("alice-approver", person="Alice")
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting, approver="alice-approver")) == "APPROVER_IS_REQUESTER"


@pytest.mark.parametrize(
    "change",
    [{"tools": ()}, {"tiers": ("T0",)}, {"tenant": "another"}, {"person": "local"}],
    ids=["tools", "tiers", "tenant", "person"],
)
def test_rights_are_those_of_the_grant_not_of_the_vote(court: Court, change: dict[str, Any]) -> None:
    court.approver("vera")
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting, approver="vera")) is None
    court.approver("vera", **change)
    assert court.review(waiting) == []
    due = court.due(waiting)
    assert (court.head(waiting).phase, due and due.what) == ("awaiting_approval", "approval_expiry")
    assert court.cast(court.vote_of(waiting)) is None, "somebody else may still answer"
    court.review(waiting)
    assert court.record(waiting).phase == "queued"


def test_a_yes_counts_only_until_its_own_end(court: Court) -> None:
    waiting = parked(court)
    vote = court.vote_of(waiting, expires_us=court.clock.now_us() + 1_000_000)
    assert court.cast(vote) is None
    court.clock.advance(2)
    assert court.review(waiting) == []


def returned(court: Court, invocation_id: str) -> None:
    """Claim it after its world changed, which gives it back to governance."""
    docket = court.docket(invocation_id)
    assert docket.granted is not None
    permit = docket.granted.permit
    claim = Claim(
        invocation_id=invocation_id,
        version=docket.head.version,
        attempt=1,
        nonce="n",
        permit=permit,
        permit_digest=permit.digest,
        stage=docket.head.stage_key,
        cause="test",
        sandbox=SandboxReport(),
    )
    with court.ledger.write(control=True) as transaction:
        epoch = transaction.raise_epoch()
        claimant = Claimant("w", "b", "fs")
        [attempt] = attempts_of(court.settings, claimant, [claim])
        step = claim_step(court.settings, transaction.now_us, epoch, docket.head, claimant, attempt)
        assert not transaction.append([step.append])


@pytest.mark.parametrize(
    ("revoked", "seconds", "phase"),
    [(False, 0, "queued"), (True, 0, "awaiting_approval"), (False, 49 * 3600, "awaiting_approval")],
    ids=["stands", "revoked", "expired"],
)
def test_an_approval_stands_for_a_new_permit_while_its_approver_may_and_it_has_not_expired(
    court: Court, revoked: bool, seconds: int, phase: str
) -> None:
    court.approver("vera")
    waiting = parked(court)
    court.cast(court.vote_of(waiting, approver="vera"))
    court.review(waiting)
    returned(court, waiting)
    if revoked:
        court.approver("vera", tiers=(), tools=())
    court.clock.advance(seconds)
    court.review(waiting)
    assert court.head(waiting).phase == phase


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"approver": "stranger"}, "APPROVER_UNKNOWN"),
        ({"terms_digest": "0" * 64}, "VOTE_DIGEST_MISMATCH"),
        ({"expires_us": 1}, "VOTE_LATE"),
    ],
)
def test_a_vote_that_does_not_count_is_evidence(court: Court, change: dict[str, Any], code: str) -> None:
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting, **change)) == code
    assert [event.type for event in court.evidence(waiting)] == ["VoteRefused"]
    assert court.review(waiting) == []


def test_a_vote_for_another_invocation_does_not_count(court: Court) -> None:
    one, two = parked(court, "one"), parked(court, "two", stage="h")
    other = court.vote_of(one)
    assert court.cast(other.model_copy(update={"invocation_id": two})) == "VOTE_DIGEST_MISMATCH"


def test_an_unsigned_vote_from_the_queue_does_not_count(court: Court) -> None:
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting), trusted=False) == "SIGNATURE_INVALID"


def test_a_bots_signature_covers_its_decision(court: Court) -> None:
    key = Ed25519Signer.generate()
    court.approver("bot", public_key=key.public_hex)
    waiting = parked(court)
    vote = court.vote_of(waiting, approver="bot")
    signed = vote.model_copy(update={"signature": key.sign(vote.signed_bytes()).hex()})
    assert court.cast(signed.model_copy(update={"decision": "deny"}), trusted=False) == "SIGNATURE_INVALID"
    assert court.cast(signed, trusted=False) is None


def test_the_same_answer_again_changes_nothing_and_another_is_refused(court: Court) -> None:
    waiting = parked(court)
    vote = court.vote_of(waiting)
    assert [court.cast(vote), court.cast(vote)] == [None, None]
    assert court.types(waiting).count("ApprovalVoted") == 1
    assert court.cast(court.vote_of(waiting, "deny")) == "VOTE_CHANGED"


def test_an_approver_answers_only_for_its_tools_and_tiers(court: Court) -> None:
    court.approver("narrow", tools=("pay",), tiers=("T4",))
    waiting = parked(court)
    assert court.cast(court.vote_of(waiting, approver="narrow")) == "APPROVER_NOT_ENTITLED"


def test_an_approval_given_twice_grants_once(court: Court) -> None:
    waiting = parked(court)
    court.cast(court.vote_of(waiting))
    court.review(waiting)
    assert court.review(waiting) == []
    assert court.types(waiting).count("ApprovalGranted") == 1


def test_a_contract_changed_while_parked_is_not_run_under_the_old_approval(court: Court) -> None:
    waiting = parked(court)
    court.cast(court.vote_of(waiting))
    changed = TOOLS[1].model_copy(update={"version": "2", "catalogue": "builtin"})
    add_tools(court.ledger, [changed], added_by="test", replace=True)
    court.review(waiting)
    assert court.record(waiting).reason_code == "CONTRACT_CHANGED"


def test_cancelling_what_is_parked_rejects_it(court: Court) -> None:
    waiting = parked(court)
    court.cancel(waiting)
    record = court.record(waiting)
    assert (record.status, record.reason_code, record.cancel_requested) == ("REJECTED", "CANCELLED", True)
    again = court.cancel(waiting)
    assert again is not None
    assert again.already_final


def test_a_deadline_ends_what_nobody_claimed(court: Court) -> None:
    answer = court.say("echo", {"value": 1}, deadline_ms=1_000)
    court.clock.advance(2)
    court.review(answer.invocation_id)
    assert court.record(answer.invocation_id).reason_code == "DEADLINE_PASSED"


def test_an_equal_external_call_waits_while_its_twin_is_unresolved(court: Court) -> None:
    court.open("s", SessionMode.OPERATE)
    first = court.say("pay", {"amount": 5}, stage="1")
    court.cast(court.vote_of(first.invocation_id))
    court.review(first.invocation_id)
    again = court.say("pay", {"amount": 5}, stage="1")
    reasons = court.docket(again.invocation_id).request
    assert reasons is not None
    assert [reason["code"] for reason in reasons.snapshot.reasons] == ["UNRESOLVED_TWIN", "TIER_ABOVE_MODE"]

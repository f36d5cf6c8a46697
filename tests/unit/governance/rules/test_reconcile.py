"""Resolving an unknown outcome: final once, frees its stage, and never while the claimant may still begin."""

from __future__ import annotations

import pytest

from governance.ledger import Append, Due, head_with
from governance.reconcile import KILL_GRACE_MS, BootProbe, Resolved, Verdict, resolve
from interlock.decision import Reason
from interlock.event import ReconciliationRequired, ToolExecutionStarted, invocation_stream, new_event
from interlock.receipt import SandboxReport
from interlock.tier import SessionMode
from tests.support.court import Court

LIFE_SECONDS = (10_000 + 60_000 + KILL_GRACE_MS) / 1_000


def is_dead(_boot: str) -> bool:
    return True


def lives(_boot: str) -> bool:
    return False


@pytest.fixture
def court() -> Court:
    """One session in which notes are written without asking."""
    made = Court()
    made.approver()
    made.open("s", SessionMode.EDIT)
    return made


def unknown(court: Court) -> str:
    """An invocation that was claimed, and whose outcome nobody knows."""
    identifier = str(court.say("note", {"text": "a"}).invocation_id)
    stream, head = invocation_stream(identifier), court.head(identifier)
    started = ToolExecutionStarted(
        worker="w", boot="b", nonce="n", attempt=1, pool=head.pool, permit_digest="", start_by_ms=10_000,
        sandbox=SandboxReport(strength="N", layers=()),
    )  # fmt: skip
    lost = ReconciliationRequired(nonce="n", reason=Reason(code="LEASE_LOST", sentence="lost"))
    after = head_with(head, phase="reconciliation_required", ready=False, started=True, attempt=1)
    due = Due(*stream, "reconcile", court.clock.now_us() + 1)
    events = [new_event(word, cause="test:test", actor="test") for word in (started, lost)]
    with court.ledger.write() as transaction:
        assert not transaction.append(
            [Append(stream, head.version, events, after, due, head.tenant, head.session)]
        )
    return identifier


def settle(court: Court, identifier: str, verdict: Verdict, probe: BootProbe = is_dead) -> Resolved | Reason:
    return resolve(
        court.ledger, court.line, identifier, verdict, by="operator", reason="asked them", is_dead=probe
    )


@pytest.mark.parametrize(("verdict", "status"), [("executed", "COMPLETED"), ("not_executed", "FAILED")])
def test_a_verdict_ends_it_and_lets_the_next_of_its_stage_go(court: Court, verdict: str, status: str) -> None:
    first = unknown(court)
    second = court.say("note", {"text": "b"}).invocation_id
    assert not court.head(second).ready
    done = settle(court, first, Verdict(verdict))
    assert isinstance(done, Resolved)
    assert [identifier for hint in done.hints for identifier in hint.invocation_ids] == [second]
    assert court.head(second).ready
    assert court.due(first) is None
    assert court.head(first).phase == "done"
    record = court.record(first)
    assert (record.status, record.reason) == (status, "asked them")


def test_nothing_is_called_not_executed_while_its_claimant_may_live(court: Court) -> None:
    identifier = unknown(court)
    refused = settle(court, identifier, Verdict.NOT_EXECUTED, lives)
    assert isinstance(refused, Reason)
    assert refused.code == "CLAIM_MAY_LIVE"
    assert court.head(identifier).phase == "reconciliation_required"
    court.clock.advance(LIFE_SECONDS + 1)
    assert isinstance(settle(court, identifier, Verdict.NOT_EXECUTED, lives), Resolved)


def test_what_happened_may_be_said_at_once(court: Court) -> None:
    assert isinstance(settle(court, unknown(court), Verdict.EXECUTED, lives), Resolved)


def test_a_final_state_never_flips(court: Court) -> None:
    identifier = unknown(court)
    settle(court, identifier, Verdict.EXECUTED)
    again = settle(court, identifier, Verdict.EXECUTED)
    assert isinstance(again, Resolved)
    assert again.already
    other = settle(court, identifier, Verdict.NOT_EXECUTED)
    assert isinstance(other, Reason)
    assert other.code == "NOT_UNRESOLVED"
    assert court.types(identifier).count("ReconciliationResolved") == 1


def test_only_an_unknown_outcome_is_resolved(court: Court) -> None:
    waiting = str(court.say("note", {"text": "a"}).invocation_id)
    for identifier, code in ((waiting, "NOT_UNRESOLVED"), ("0", "NOT_FOUND")):
        refused = settle(court, identifier, Verdict.EXECUTED)
        assert isinstance(refused, Reason)
        assert refused.code == code

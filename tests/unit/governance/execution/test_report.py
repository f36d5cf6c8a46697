"""Reporting: an outcome is written while its claim stands, and is evidence afterwards."""

from __future__ import annotations

import pytest

from governance.execution import Reported, ReportFate
from governance.ledger import Append, Due, head_with
from interlock.decision import Reason
from interlock.event import (
    ExecutionAbandoned,
    FailureDetail,
    NewEvent,
    ReconciliationRequired,
    ReconciliationResolved,
    ToolExecutionFailed,
    invocation_stream,
    new_event,
)
from interlock.word import Word
from tests.support.permitted import Asked, cancel, due_of, events_of, grant, phase_of, the_head, types_of
from tests.support.workbench import FailingLedger, Workbench, tools
from workers.claim import Prepared

ECHO = tools()["echo"]


def running(bench: Workbench, *stages: str) -> list[Prepared]:
    """Claimed, and about to be run."""
    ids = grant(bench.ledger, bench.governance, [Asked(ECHO, {"value": 1}, stage=stage) for stage in stages])
    prepared = bench.claiming.prepare(ids)
    claimed = bench.claiming.claim(prepared)
    assert claimed.winners == set(ids)
    return prepared


def outcome_of(bench: Workbench, item: Prepared) -> Reported:
    [report] = bench.reporting.reports(bench.running.run([item], bench.boottime_ns + 1_000_000_000))
    return report


def move(bench: Workbench, identifier: str, payload: Word, phase: str, what: str | None) -> None:
    """Another writer's move."""
    stream = invocation_stream(identifier)
    event: NewEvent = new_event(payload, cause="timer:lease", actor="scheduler")
    with bench.ledger.write() as transaction:
        head = transaction.heads([stream])[stream]
        after = head_with(head, phase=phase, nonce="", ready=phase == "queued")
        due = None if what is None else Due(*stream, what, 1)
        assert not transaction.append(
            [Append(stream, head.version, [event], after, due, head.tenant, head.session)]
        )


def test_an_outcome_ends_the_invocation(bench: Workbench) -> None:
    [item] = running(bench, "g")
    assert bench.execution.report([outcome_of(bench, item)]) == {item.invocation_id: ReportFate.RECORDED}
    head = the_head(bench.ledger, item.invocation_id)
    assert (head.phase, head.nonce, head.ready, head.published_us) == ("done", "", False, 0)
    assert due_of(bench.ledger, item.invocation_id) is None
    assert bench.waker.wait("relay", 0)


def test_the_same_outcome_again_changes_nothing(bench: Workbench) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    bench.execution.report([report])
    assert bench.execution.report([report]) == {item.invocation_id: ReportFate.KNOWN}
    assert types_of(bench.ledger, item.invocation_id, "evidence") == []


def test_an_outcome_that_meets_a_cancellation_is_written_all_the_same(bench: Workbench) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    cancel(bench.ledger, item.invocation_id)
    assert bench.execution.report([report]) == {item.invocation_id: ReportFate.RECORDED}
    assert types_of(bench.ledger, item.invocation_id)[-2:] == [
        "CancellationRequested",
        "ToolExecutionCompleted",
    ]


def test_one_conflict_in_a_batch_stops_no_other_outcome(bench: Workbench) -> None:
    items = running(bench, "a", "b", "c")
    reports = [outcome_of(bench, item) for item in items]
    lost = _abandoned(items[1])
    move(bench, items[1].invocation_id, lost, "queued", "release")
    fates = bench.execution.report(reports)
    assert [fates[item.invocation_id] for item in items] == ["recorded", "late", "recorded"]
    assert types_of(bench.ledger, items[1].invocation_id, "evidence") == ["LateOutcomeRecorded"]
    assert phase_of(bench.ledger, items[1].invocation_id) == "queued"


def test_a_late_receipt_of_the_very_claim_settles_an_unknown_outcome(bench: Workbench) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    unknown = ReconciliationRequired(nonce=item.nonce, reason=Reason(code="LEASE_LOST", sentence="lost"))
    move(bench, item.invocation_id, unknown, "reconciliation_required", "reconcile")
    assert bench.execution.report([report]) == {item.invocation_id: ReportFate.RECORDED}
    assert types_of(bench.ledger, item.invocation_id)[-1] == "ReconciliationResolved"
    assert (phase_of(bench.ledger, item.invocation_id), due_of(bench.ledger, item.invocation_id)) == (
        "done",
        None,
    )
    assert bench.execution.report([report]) == {item.invocation_id: ReportFate.KNOWN}
    assert events_of(bench.ledger, item.invocation_id, "evidence") == []


def test_a_late_outcome_of_another_claim_is_evidence_once(bench: Workbench) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    unknown = ReconciliationRequired(nonce="another", reason=Reason(code="LEASE_LOST", sentence="lost"))
    move(bench, item.invocation_id, unknown, "reconciliation_required", "reconcile")
    assert bench.execution.report([report]) == {item.invocation_id: ReportFate.LATE}
    assert bench.execution.report([report]) == {item.invocation_id: ReportFate.KNOWN}
    [evidence] = events_of(bench.ledger, item.invocation_id, "evidence")
    assert evidence.body()["outcome"]["type"] == "ToolExecutionCompleted"
    assert phase_of(bench.ledger, item.invocation_id) == "reconciliation_required"


@pytest.mark.parametrize(("verdict", "fate"), [("executed", "late"), ("not_executed", "contradicted")])
def test_a_late_truth_against_a_resolution_is_a_contradiction(
    bench: Workbench, verdict: str, fate: str
) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    unknown = ReconciliationRequired(nonce=item.nonce, reason=Reason(code="LEASE_LOST", sentence="lost"))
    move(bench, item.invocation_id, unknown, "reconciliation_required", "reconcile")
    resolved = ReconciliationResolved(verdict=verdict, by="operator", reason="asked")
    move(bench, item.invocation_id, resolved, "done", None)
    assert bench.execution.report([report]) == {item.invocation_id: fate}
    assert phase_of(bench.ledger, item.invocation_id) == "done"


def test_a_final_failure_never_flips(bench: Workbench) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    detail = FailureDetail(code="LEASE_LOST", sentence="lost", recoverable=False, began=True)
    move(bench, item.invocation_id, ToolExecutionFailed(nonce=item.nonce, failure=detail), "done", None)
    assert bench.execution.report([report]) == {item.invocation_id: ReportFate.CONTRADICTED}
    assert types_of(bench.ledger, item.invocation_id, "evidence") == ["OutcomeContradicted"]


def test_the_successor_in_a_stage_is_released_in_the_outcomes_transaction(bench: Workbench) -> None:
    first, second = grant(bench.ledger, bench.governance, [Asked(ECHO, {"value": n}) for n in (1, 2)])
    cancel(bench.ledger, second, cancel=False, ready=False)
    bench.serve(first)
    assert bench.hints.ids()[-1] == second
    head = the_head(bench.ledger, second)
    assert head.ready
    assert head.published_us > 0


def test_a_release_spends_no_attempt_and_is_offered_again(bench: Workbench) -> None:
    [item] = running(bench, "g")
    reason = Reason(code="POOL_STOPPING", sentence="it stops")
    assert bench.execution.release_seen([item.claim()], reason) == {item.invocation_id}
    head = the_head(bench.ledger, item.invocation_id)
    assert (head.phase, head.ready, head.attempt) == ("queued", True, 0)
    assert bench.hints.ids() == [item.invocation_id]
    bench.serve(item.invocation_id)
    assert phase_of(bench.ledger, item.invocation_id) == "done"


def test_an_outcome_commits_after_the_ledger_returns(bench: Workbench, ledger: FailingLedger) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    ledger.is_away = True
    bench.given_up.set()
    bench.delivery.deliver([report], is_spooled=True)
    assert bench.serving.refusal() == "an outcome waits for the ledger"
    ledger.is_away = False
    bench.serving.mend()
    assert bench.serving.refusal() is None
    assert phase_of(ledger, item.invocation_id) == "done"


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_unanswered_report_is_written_again_and_stands_once(
    bench: Workbench, ledger: FailingLedger, is_committed: bool
) -> None:
    [item] = running(bench, "g")
    report = outcome_of(bench, item)
    ledger.unanswered = [is_committed]
    bench.delivery.deliver([report], is_spooled=True)
    assert types_of(ledger, item.invocation_id)[-2:] == ["ToolExecutionStarted", "ToolExecutionCompleted"]
    assert types_of(ledger, item.invocation_id, "evidence") == []


def _abandoned(item: Prepared) -> ExecutionAbandoned:
    reason = Reason(code="LEASE_LOST", sentence="lost")
    return ExecutionAbandoned(nonce=item.nonce, attempt=1, reason=reason, alone=True)

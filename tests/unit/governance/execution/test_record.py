"""Computations: run first, claimed with their outcome, and worth nothing where that claim does not stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from governance.execution import Computed
from interlock.decision import Reason
from interlock.errors import LedgerUnavailableError
from interlock.event import ToolExecutionStarted
from interlock.fault import Fault, PlannedFaults
from tests.support.permitted import (
    Asked,
    body_of,
    cancel,
    due_of,
    events_of,
    grant,
    phase_of,
    the_head,
    types_of,
)
from tests.support.workbench import FailingLedger, Workbench, tools
from workers.receipt import output_rejected

ECHO = tools()["echo"]
GRANTED = ["ToolInvocationRequested", "ApprovalGranted"]
RUN = [*GRANTED, "ToolExecutionStarted", "ToolExecutionCompleted"]


def granted(bench: Workbench, count: int = 1, **fields: object) -> list[str]:
    asked = [
        Asked(ECHO, {"value": n}, stage=f"g{n}", **fields)  # type: ignore[arg-type]  # each has its own type
        for n in range(count)
    ]
    return grant(bench.ledger, bench.governance, asked)


def computed(bench: Workbench, ids: Sequence[str]) -> list[Computed]:
    ran = bench.running.compute(bench.claiming.prepare(ids))
    reports = bench.reporting.reports(ran)
    return [Computed(item.claim(), told) for (item, _), told in zip(ran, reports, strict=True)]


def record(bench: Workbench, made: Sequence[Computed]) -> set[str]:
    return bench.execution.record(bench.claiming._claimant, made)


def test_claim_and_outcome_are_written_in_one_transaction(bench: Workbench, ledger: FailingLedger) -> None:
    ids = granted(bench, 3)
    writes: list[str] = []

    def noted() -> None:
        writes.append("write")
        ledger.before_write = noted

    ledger.before_write = noted
    bench.serve(*ids)
    ledger.before_write = None
    assert writes == ["write"]
    for place, identifier in enumerate(ids):
        head = the_head(ledger, identifier)
        assert types_of(ledger, identifier) == RUN
        assert (head.phase, head.version, head.attempt, head.started) == ("done", 4, 1, True)
        assert (head.nonce, head.boot, head.ready, head.published_us) == ("", "", False, 0)
        assert head.claimed_us == events_of(ledger, identifier)[2].at_us
        assert due_of(ledger, identifier) is None
        started = body_of(ledger, identifier, "ToolExecutionStarted")
        completed = body_of(ledger, identifier, "ToolExecutionCompleted")
        assert (started["nonce"], started["batch"]) == (completed["nonce"], 3)
        assert completed["sealed"]["receipt"]["structured_output"] == {"value": place}


def test_a_start_has_the_bytes_of_its_word(bench: Workbench, ledger: FailingLedger) -> None:
    ids = granted(bench, 2)
    bench.serve(*ids)
    for identifier in ids:
        event = events_of(ledger, identifier)[2]
        assert event.payload == ToolExecutionStarted.model_validate(event.body()).to_bytes()


def test_the_second_of_two_writes_nothing(bench: Workbench, ledger: FailingLedger) -> None:
    ids = granted(bench, 2)
    first, second = computed(bench, ids[:1]), computed(bench, ids)
    assert record(bench, first) == {ids[0]}
    assert record(bench, second) == {ids[1]}
    assert [types_of(ledger, identifier) for identifier in ids] == [RUN, RUN]
    assert body_of(ledger, ids[0], "ToolExecutionStarted")["nonce"] == first[0].claim.nonce
    assert types_of(ledger, ids[0], "evidence") == []


def test_what_moved_while_it_was_computed_is_left_as_it_is(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = granted(bench)
    made = computed(bench, [identifier])
    cancel(ledger, identifier)
    assert record(bench, made) == set()
    assert types_of(ledger, identifier) == [*GRANTED, "CancellationRequested"]
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ToolExecutionRejected"


@pytest.mark.parametrize(
    ("fields", "event", "code", "due"),
    [
        ({"cancel": True}, "ToolExecutionRejected", "CANCELLED", None),
        ({"deadline_us": 1}, "ToolExecutionRejected", "DEADLINE_PASSED", None),
        ({"valid_us": (-10, -1)}, "PermitReturned", "PERMIT_EXPIRED", "decide"),
        ({"epoch": 0}, "PermitReturned", "CONTROL_EPOCH_CHANGED", "decide"),
    ],
)
def test_what_may_not_be_claimed_is_moved_on_and_its_outcome_thrown_away(
    bench: Workbench, ledger: FailingLedger, fields: dict[str, object], event: str, code: str, due: str | None
) -> None:
    good, other = granted(bench, 1), granted(bench, 1, session="other", **fields)
    bench.serve(*good, *other)
    assert types_of(ledger, good[0]) == RUN
    assert types_of(ledger, other[0]) == [*GRANTED, event]
    assert body_of(ledger, other[0], event)["reason"]["code"] == code
    assert due_of(ledger, other[0]) == due
    assert bench.waker.wait("governor", 0)


def test_what_it_makes_way_for_is_released_with_it(bench: Workbench, ledger: FailingLedger) -> None:
    first, second = grant(ledger, bench.governance, [Asked(ECHO, {"value": n}) for n in range(2)])
    cancel(ledger, second, cancel=False, ready=False)
    bench.serve(first)
    assert bench.hints.ids() == [second]
    assert the_head(ledger, second).published_us > 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_after_an_unknown_commit_nothing_is_kept_and_nothing_runs_again(
    bench: Workbench, ledger: FailingLedger, is_committed: bool
) -> None:
    [identifier] = granted(bench)
    ledger.unanswered = [is_committed]
    bench.serve(identifier)
    assert types_of(ledger, identifier) == (RUN if is_committed else GRANTED)
    assert bench.serving.refusal() is None
    assert not bench.serving._doubts._claims
    bench.serve(identifier)
    assert types_of(ledger, identifier) == RUN


def test_without_a_ledger_to_write_nothing_is_kept(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = granted(bench)

    def take_away() -> None:
        raise LedgerUnavailableError("taken away")

    ledger.before_write = take_away
    bench.serve(identifier)
    assert types_of(ledger, identifier) == GRANTED
    assert bench.serving.refusal() is None
    bench.serving.mend()
    assert types_of(ledger, identifier) == GRANTED


def test_a_pool_that_stops_leaves_the_rest_of_an_envelope(ledger: FailingLedger, tmp_path: Path) -> None:
    bench = Workbench(ledger, tmp_path, boot="boot-2")
    ids = granted(bench, 3)
    lot = bench.claiming.prepare(ids)
    asked: list[bool] = []

    def is_stopping() -> bool:
        asked.append(True)
        return len(asked) > 2

    bench.running._is_stopping = is_stopping
    assert [item.invocation_id for item, _ in bench.running.compute(lot)] == ids[:2]


def test_a_tool_that_fails_has_begun_an_attempt(ledger: FailingLedger, tmp_path: Path) -> None:
    faults = PlannedFaults((Fault("run.after_effect", 2, "raise"),), None)
    bench = Workbench(ledger, tmp_path, faults=faults, boot="boot-2")
    ids = granted(bench, 2)
    bench.serve(*ids)
    assert types_of(ledger, ids[0]) == RUN
    assert types_of(ledger, ids[1]) == [*GRANTED, "ToolExecutionStarted", "ExecutionAttemptFailed"]
    assert (phase_of(ledger, ids[1]), due_of(ledger, ids[1])) == ("retry_wait", "retry")
    assert the_head(ledger, ids[1]).attempt == 1


def test_evidence_goes_beside_what_stands_only(bench: Workbench, ledger: FailingLedger) -> None:
    ids = granted(bench, 2)
    word = output_rejected(Reason(code="OUTPUT_INVALID", sentence="no"), b"raw")
    made = [one._replace(reported=replace(one.reported, evidence=(word,))) for one in computed(bench, ids)]
    cancel(ledger, ids[1])
    assert record(bench, made) == {ids[0]}
    assert [types_of(ledger, identifier, "evidence") for identifier in ids] == [["OutputRejected"], []]


def test_what_ended_its_envelope_before_is_claimed_before_it_runs(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    faults = PlannedFaults((Fault("run.before_effect", 1, "raise"),), None)
    bench = Workbench(ledger, tmp_path, faults=faults, boot="boot-2")
    [identifier] = granted(bench, columns={"alone": True})
    phases: list[str] = []
    answer = bench.running._effected

    def look(item: object) -> object:
        phases.append(phase_of(ledger, identifier))
        return answer(item)  # type: ignore[arg-type]  # the pool's own

    bench.running._effected = look  # type: ignore[method-assign,assignment]  # one look, then as ever
    bench.serve(identifier)
    assert phases == ["running"]
    assert phase_of(ledger, identifier) == "retry_wait"

"""Claiming: one wins, a loser writes nothing, and what nobody may claim is moved on instead."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from governance.execution import Claim
from interlock.canonical import JsonObject
from interlock.decision import Reason
from tests.support.permitted import Asked, body_of, cancel, due_of, grant, phase_of, the_head, types_of
from tests.support.workbench import FailingLedger, Workbench, tools

ECHO = tools()["echo"]
STARTED = ["ToolInvocationRequested", "ApprovalGranted", "ToolExecutionStarted"]


def asked(**fields: object) -> Asked:
    return Asked(ECHO, {"value": 1}, **fields)  # type: ignore[arg-type]  # each field has its own type


def claims_for(bench: Workbench, *ids: str) -> list[Claim]:
    return [item.claim() for item in bench.claiming.prepare(ids)]


def test_a_claim_is_a_started_event_and_a_head_that_runs(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    [claim] = claims_for(bench, identifier)
    claimed = bench.execution.claim(bench.claiming._claimant, [claim])
    head = the_head(ledger, identifier)
    assert claimed.winners == {identifier}
    assert claimed.start_by_boottime_ns == bench.boottime_ns + 10_000_000_000
    assert types_of(ledger, identifier) == STARTED
    assert (head.phase, head.nonce, head.boot, head.attempt) == ("running", claim.nonce, "boot-1", 1)
    assert (head.ready, head.published_us, head.started) == (False, 0, True)
    assert due_of(ledger, identifier) == "lease"


def test_of_two_claims_at_one_version_the_second_writes_nothing(
    bench: Workbench, ledger: FailingLedger
) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    first, second = claims_for(bench, identifier) + claims_for(bench, identifier)
    assert bench.execution.claim(bench.claiming._claimant, [first]).winners == {identifier}
    assert bench.execution.claim(bench.claiming._claimant, [second]).winners == frozenset()
    assert types_of(ledger, identifier) == STARTED
    assert the_head(ledger, identifier).nonce == first.nonce


def test_ten_hints_at_once_are_one_execution(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    start = threading.Barrier(10)

    def deliver() -> None:
        start.wait()
        bench.serve(identifier)

    threads = [threading.Thread(target=deliver) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert types_of(ledger, identifier) == [*STARTED, "ToolExecutionCompleted"]


def test_a_batch_is_claimed_stream_by_stream(bench: Workbench, ledger: FailingLedger) -> None:
    ids = grant(ledger, bench.governance, [asked(stage=f"g{n}") for n in range(5)])
    claims = claims_for(bench, *ids)
    bench.execution.claim(bench.claiming._claimant, [claims[2]])
    claimed = bench.execution.claim(bench.claiming._claimant, claims)
    assert claimed.winners == set(ids) - {ids[2]}
    assert body_of(ledger, ids[0], "ToolExecutionStarted")["batch"] == 5


def test_what_moved_after_it_was_judged_is_not_claimed(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    [claim] = claims_for(bench, identifier)
    cancel(ledger, identifier)
    assert bench.execution.claim(bench.claiming._claimant, [claim]).winners == frozenset()
    assert phase_of(ledger, identifier) == "queued"


def test_a_permit_of_an_older_epoch_goes_back_to_governance(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    with ledger.write(control=True) as transaction:
        transaction.raise_epoch()
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "PermitReturned"
    assert body_of(ledger, identifier, "PermitReturned")["reason"]["code"] == "CONTROL_EPOCH_CHANGED"
    assert phase_of(ledger, identifier) == "deciding"
    assert bench.waker.wait("governor", 0)
    assert due_of(ledger, identifier) == "decide"


@pytest.mark.parametrize("valid_us", [(-10, -1), (1_000_000, 2_000_000)], ids=["past", "not yet"])
def test_validity_is_judged_by_the_stores_clock(
    bench: Workbench, ledger: FailingLedger, valid_us: tuple[int, int]
) -> None:
    [identifier] = grant(ledger, bench.governance, [asked(valid_us=valid_us)])
    bench.clock.advance(-7_200)
    bench.serve(identifier)
    assert body_of(ledger, identifier, "PermitReturned")["reason"]["code"] == "PERMIT_EXPIRED"


@pytest.mark.parametrize(
    ("fields", "code"), [({"cancel": True}, "CANCELLED"), ({"deadline_us": 1}, "DEADLINE_PASSED")]
)
def test_what_ended_before_it_began_is_rejected(
    bench: Workbench, ledger: FailingLedger, fields: dict[str, object], code: str
) -> None:
    [identifier] = grant(ledger, bench.governance, [asked(**fields)])
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ToolExecutionRejected"
    assert body_of(ledger, identifier, "ToolExecutionRejected")["reason"]["code"] == code
    assert due_of(ledger, identifier) is None


def test_what_ended_after_a_start_is_failed(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    [claim] = claims_for(bench, identifier)
    bench.execution.claim(bench.claiming._claimant, [claim])
    bench.is_stopping = True
    bench.execution.release_seen([claim], Reason(code="POOL_STOPPING", sentence="it stops"))
    bench.is_stopping = False
    cancel(ledger, identifier)
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ToolExecutionFailed"


def test_the_window_that_a_claim_frees_is_filled_after_the_commit(
    bench: Workbench, ledger: FailingLedger
) -> None:
    ids = grant(ledger, bench.governance, [asked(stage=f"g{n}") for n in range(3)])
    bench.execution.claim(bench.claiming._claimant, claims_for(bench, ids[0]))
    assert sorted(bench.hints.ids()) == sorted(ids[1:])


def test_an_unanswered_commit_that_stands_is_run(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    ledger.unanswered = [True]
    bench.serve(identifier)
    assert types_of(ledger, identifier) == [*STARTED, "ToolExecutionCompleted"]


def test_an_unanswered_commit_that_does_not_stand_is_not_run(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    ledger.unanswered = [False]
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "queued"
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "done"


def test_an_unanswered_commit_seen_too_late_is_given_back(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked(columns={"alone": True})])
    ledger.unanswered = [True]

    def answer_late() -> None:
        bench.boottime_ns += 11_000_000_000

    ledger.before_write = answer_late
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "running"
    bench.serving.mend()
    assert types_of(ledger, identifier)[-1] == "ExecutionReleased"
    assert the_head(ledger, identifier).attempt == 0


def test_an_unanswered_commit_that_cannot_be_read_again_is_watched(
    bench: Workbench, ledger: FailingLedger
) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    claims = claims_for(bench, identifier)
    ledger.unanswered, ledger.is_away_to_readers = [True], True
    claimed = bench.execution.claim(bench.claiming._claimant, claims)
    assert (claimed.winners, claimed.unknown) == (frozenset(), tuple(claims))


def test_a_ledger_that_is_away_leaves_the_hint_to_the_sweep(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [asked()])
    ledger.is_away = True
    bench.serve(identifier)
    ledger.is_away = False
    assert phase_of(ledger, identifier) == "queued"


def test_what_the_line_did_not_release_is_not_claimed(bench: Workbench, ledger: FailingLedger) -> None:
    """A hint with an id of which the stage's turn has not come is a forgery, or very old."""
    first, second = grant(ledger, bench.governance, [asked(), asked()])
    cancel(ledger, second, cancel=False, ready=False)
    bench.serve(second)
    assert phase_of(ledger, second) == "queued"
    bench.serve(first)
    assert second in bench.hints.ids()


class _Unreadable(Workbench):
    @staticmethod
    def _unseal(stored: JsonObject, pointers: Sequence[str], identifier: str) -> JsonObject:
        raise TypeError(identifier)


def test_one_that_cannot_be_read_stops_no_other_of_its_envelope(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    bench = _Unreadable(ledger, tmp_path, boot="boot-2")
    poison = asked(stage="poison", sensitive=("/value",))
    ids = grant(ledger, bench.governance, [asked(stage="g1"), poison, asked(stage="g2")])
    bench.serve(*ids)
    assert [phase_of(ledger, identifier) for identifier in ids] == ["done", "queued", "done"]
    assert bench.drops.counts() == {"INTERNAL": 1}
    assert bench.serving.refusal() is None

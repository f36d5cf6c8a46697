"""Running: looked at before each item, ended when asked, never begun on a claim that does not stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from governance.ledger import head_with
from interlock.fault import Fault, PlannedFaults
from tests.support.permitted import Asked, body_of, cancel, grant, put_contracts, types_of
from tests.support.workbench import FailingLedger, Workbench, tools
from workers.claim import Prepared
from workers.run import FRESH_NS, Watching, workspace_of
from workers.supervisor.port import Completed, NotStarted

ECHO = tools()["echo"]


def claimed(bench: Workbench, count: int) -> tuple[list[Prepared], int]:
    asked = [Asked(ECHO, {"value": n}, stage=f"g{n}") for n in range(count)]
    ids = grant(bench.ledger, bench.governance, asked)
    prepared = bench.claiming.prepare(ids)
    return prepared, bench.claiming.claim(prepared).start_by_boottime_ns


def codes(outcomes: Sequence[tuple[Prepared, object]]) -> list[str]:
    return [getattr(outcome, "code", "ran") for _, outcome in outcomes]


def test_an_envelope_runs_in_order(bench: Workbench) -> None:
    lot, start_by_ns = claimed(bench, 3)
    ran = bench.running.run(lot, start_by_ns)
    assert [outcome for _, outcome in ran] == [Completed(0, {"value": n}) for n in range(3)]


def test_what_was_cancelled_in_an_envelope_does_not_begin_and_the_others_do(bench: Workbench) -> None:
    lot, start_by_ns = claimed(bench, 3)
    cancel(bench.ledger, lot[1].invocation_id)
    ran = bench.running.run(lot, start_by_ns)
    assert codes(ran) == ["ran", "CANCELLED_BEFORE_START", "ran"]


def test_nothing_begins_after_its_start_by(bench: Workbench) -> None:
    lot, start_by_ns = claimed(bench, 1)
    bench.boottime_ns = start_by_ns
    assert codes(bench.running.run(lot, start_by_ns)) == ["CLAIM_NOT_HELD"]


def test_nothing_begins_without_the_ledger(bench: Workbench, ledger: FailingLedger) -> None:
    lot, start_by_ns = claimed(bench, 1)
    ledger.is_away_to_readers = True
    assert codes(bench.running.run(lot, start_by_ns)) == ["CLAIM_NOT_HELD"]


def test_the_rest_of_an_envelope_is_given_back_when_the_pool_stops(
    bench: Workbench, ledger: FailingLedger
) -> None:
    lot, start_by_ns = claimed(bench, 2)
    bench.is_stopping = True
    ran = bench.running.run(lot, start_by_ns)
    bench.delivery.deliver(bench.reporting.reports(ran), is_spooled=False)
    for item in lot:
        assert types_of(ledger, item.invocation_id)[-1] == "ExecutionReleased"
        reason = body_of(ledger, item.invocation_id, "ExecutionReleased")["reason"]
        assert reason["code"] == "POOL_STOPPING"


def test_a_stopping_pool_claims_nothing_new(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [Asked(ECHO, {"value": 1})])
    bench.is_stopping = True
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ApprovalGranted"


def test_a_look_is_fresh_for_a_hundredth_of_a_second(bench: Workbench) -> None:
    lot, start_by_ns = claimed(bench, 1)
    identifier = lot[0].invocation_id
    watching = Watching(bench.execution, lot, lambda: False, lambda: bench.boottime_ns)
    assert watching.may_begin(identifier, start_by_ns)
    cancel(bench.ledger, identifier)
    assert watching.reason_to_end(identifier) is None
    bench.boottime_ns += FRESH_NS
    assert watching.reason_to_end(identifier) == "CANCELLED"


def test_what_runs_is_not_ended_because_the_ledger_is_away(bench: Workbench, ledger: FailingLedger) -> None:
    lot, _ = claimed(bench, 1)
    watching = Watching(bench.execution, lot, lambda: False, lambda: bench.boottime_ns)
    ledger.is_away_to_readers = True
    assert watching.reason_to_end(lot[0].invocation_id) is None


def test_a_claim_that_another_took_over_is_lost(bench: Workbench, ledger: FailingLedger) -> None:
    lot, _ = claimed(bench, 1)
    cancel(ledger, lot[0].invocation_id, nonce="another's")
    watching = Watching(bench.execution, lot, lambda: False, lambda: bench.boottime_ns)
    assert watching.reason_to_end(lot[0].invocation_id) == "CLAIM_LOST"


def test_a_fault_around_a_tool_ends_in_an_outcome(ledger: FailingLedger, tmp_path: Path) -> None:
    faults = PlannedFaults((Fault("run.before_effect", 1, "raise"),), None)
    bench = Workbench(ledger, tmp_path, faults=faults, boot="boot-2")
    [identifier] = grant(ledger, bench.governance, [Asked(ECHO, {"value": 1})])
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ExecutionAttemptFailed"


def test_a_fault_after_the_claim_gives_it_back(ledger: FailingLedger, tmp_path: Path) -> None:
    faults = PlannedFaults((Fault("claim.after_commit", 1, "raise"),), None)
    bench = Workbench(ledger, tmp_path, faults=faults, boot="boot-2")
    [identifier] = grant(ledger, bench.governance, [Asked(ECHO, {"value": 1}, columns={"alone": True})])
    with pytest.raises(Exception, match="injected"):
        bench.serve(identifier)
    bench.serving.mend()
    assert types_of(ledger, identifier)[-1] == "ExecutionReleased"


def test_a_supervisor_that_raises_ends_in_an_outcome(ledger: FailingLedger, tmp_path: Path) -> None:
    def crash(_call: object) -> NotStarted:
        raise RuntimeError("broken")

    shell = tools()["shell.run"]
    put_contracts(ledger, [shell])
    bench = Workbench(ledger, tmp_path, pool="shell", answer=crash, boot="boot-2")
    [identifier] = grant(ledger, bench.governance, [Asked(shell, {"argv": ["true"]})])
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ToolExecutionFailed"
    failure = body_of(ledger, identifier, "ToolExecutionFailed")["failure"]
    assert (failure["code"], failure["began"]) == ("TOOL_CRASHED", True)


def test_while_it_runs_the_deadline_is_the_limit(ledger: FailingLedger, tmp_path: Path) -> None:
    shell = tools()["shell.run"]
    bench = Workbench(ledger, tmp_path, pool="shell", boot="boot-2")
    with ledger.read() as view:
        deadline_us = view.now_us + 2_000_000
    asked = Asked(shell, {"argv": ["true"]}, deadline_us=deadline_us)
    [identifier] = grant(ledger, bench.governance, [asked])
    bench.serve(identifier)
    [call] = bench.supervisor.calls
    assert call.wall_limit_ms == 2_000


@pytest.mark.parametrize("session", ["..", ".", "", "a/b", "a\nb", "=x", "ü", "a" * 200])
def test_no_session_names_a_folder_outside_or_of_another(tmp_path: Path, session: str) -> None:
    folder = workspace_of(tmp_path, "default", session)
    assert folder.parent == tmp_path
    assert folder.name.startswith("=")
    assert folder.name != session


def test_a_plain_session_has_a_folder_of_its_name(tmp_path: Path) -> None:
    assert workspace_of(tmp_path, "default", "agent-1") == tmp_path / "agent-1"


@pytest.mark.parametrize("session", ["agent-1", "", "a/b", ".."])
def test_one_name_in_two_tenants_is_two_folders(tmp_path: Path, session: str) -> None:
    folders = {workspace_of(tmp_path, tenant, session) for tenant in ("default", "a", "b", "a/b", "")}
    assert len(folders) == 5
    assert {folder.parent for folder in folders} == {tmp_path}


def test_a_call_runs_in_the_workspace_of_what_was_permitted(ledger: FailingLedger, tmp_path: Path) -> None:
    shell = tools()["shell.run"]
    bench = Workbench(ledger, tmp_path, pool="shell", boot="boot-2")
    [identifier] = grant(ledger, bench.governance, [Asked(shell, {"argv": ["true"]}, tenant="other")])
    [item] = bench.claiming.prepare([identifier])
    head = head_with(item.work.head, session="victim", tenant="default")
    call = bench.running._call(replace(item, work=replace(item.work, head=head)), 0)
    assert (call.session_id, call.workspace) == ("s", workspace_of(tmp_path / "workspaces", "other", "s"))


def test_a_pool_out_of_time_ends_what_runs(bench: Workbench, ledger: FailingLedger) -> None:
    lot, _ = claimed(bench, 1)
    ends: list[bool] = []
    watching = Watching(
        bench.execution, lot, lambda: True, lambda: bench.boottime_ns, must_end=lambda: bool(ends)
    )
    identifier = lot[0].invocation_id
    assert watching.reason_to_end(identifier) is None
    ends.append(True)
    assert watching.reason_to_end(identifier) == "POOL_STOPPING"
    ledger.is_away_to_readers = True
    assert watching.reason_to_end(identifier) == "POOL_STOPPING"


def test_a_claim_just_made_is_a_look(bench: Workbench, ledger: FailingLedger) -> None:
    lot, start_by_ns = claimed(bench, 2)
    ledger.is_away_to_readers = True
    seen_ns = bench.boottime_ns
    bench.boottime_ns += FRESH_NS - 1
    assert codes(bench.running.run(lot, start_by_ns, seen_ns)) == ["ran", "ran"]
    bench.boottime_ns += 1
    assert codes(bench.running.run(lot, start_by_ns, seen_ns)) == ["CLAIM_NOT_HELD"] * 2


def test_a_claim_is_seen_before_it_is_committed(bench: Workbench) -> None:
    asked = [Asked(ECHO, {"value": 1})]
    prepared = bench.claiming.prepare(grant(bench.ledger, bench.governance, asked))
    assert bench.claiming.claim(prepared).seen_boottime_ns == bench.boottime_ns


def test_what_has_an_effect_is_looked_at_however_fresh_its_claim_is(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    shell = tools()["shell.run"]
    put_contracts(ledger, [shell])
    bench = Workbench(ledger, tmp_path, pool="shell", boot="boot-2")
    lot = bench.claiming.prepare(grant(ledger, bench.governance, [Asked(shell, {"argv": ["true"]})]))
    made = bench.claiming.claim(lot)
    ledger.is_away_to_readers = True
    assert codes(bench.running.run(lot, made.start_by_boottime_ns, made.seen_boottime_ns)) == [
        "CLAIM_NOT_HELD"
    ]
    assert bench.supervisor.calls == []


def test_only_what_has_not_run_yet_is_looked_at(bench: Workbench) -> None:
    lot, start_by_ns = claimed(bench, 3)
    looked: list[int] = []
    execution = bench.execution

    class Looking(type(execution)):  # type: ignore[misc]  # of whatever class the bench uses
        def stop_reasons(self, claims: Mapping[str, str]) -> dict[str, str]:
            looked.append(len(claims))
            bench.boottime_ns += FRESH_NS
            return execution.stop_reasons(claims)

    values = {field.name: getattr(execution, field.name) for field in fields(execution)}
    bench.running._execution = Looking(**values)
    assert codes(bench.running.run(lot, start_by_ns)) == ["ran"] * 3
    assert looked == [3, 3, 2, 2, 1, 1]

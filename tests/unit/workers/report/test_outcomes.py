"""What each outcome becomes: completed, failed, tried again, given back, or unknown; and its receipt."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.adapters.ed25519 import Ed25519KeyRing
from interlock.clock import ManualClock
from interlock.contract import Effects, EffectScope, Executor, Limits, Tool
from interlock.receipt import SealedReceipt
from interlock.seal import Purpose, SealVerifier
from interlock.tier import Tier, ToolCapability
from tests.support.permitted import (
    Asked,
    body_of,
    due_of,
    grant,
    phase_of,
    put_contracts,
    the_head,
    types_of,
)
from tests.support.workbench import Workbench, tools
from workers.supervisor.port import AffectedEntity, Call, Completed, Failed, NotStarted, Outcome
from workers.supervisor.port import SandboxReport as Held

SHELL = tools()["shell.run"]
READ = SHELL.model_copy(
    update={"effects": Effects(read_only=True), "limits": Limits(attempts=2), "output": None}
)
PLAIN = SHELL.model_copy(update={"output": None})
MAIL = SHELL.model_copy(update={"output": None, "effect_scope": EffectScope.EXTERNAL})
ANY = {"argv": ["true"]}


class Case:
    """One shell tool under one contract; what the supervisor says may be changed between runs."""

    def __init__(self, folder: Path, contract: Tool, said: Outcome) -> None:
        self.said = said
        self.clock = ManualClock()
        self.ledger = InMemoryLedger(self.clock)
        put_contracts(self.ledger, [contract])
        self.bench = Workbench(
            self.ledger, folder, pool="shell", answer=self._answer, contracts=[contract], clock=self.clock
        )
        [self.id] = grant(self.ledger, self.bench.governance, [Asked(contract, ANY)])

    def _answer(self, _call: Call) -> Outcome:
        return self.said

    def run(self) -> str:
        """The type of the last event after one hint."""
        self.bench.serve(self.id)
        return types_of(self.ledger, self.id)[-1]

    def body(self, type_: str, kind: str = "invocation") -> dict[str, Any]:
        return body_of(self.ledger, self.id, type_, kind)


def test_a_program_that_ran_to_its_end_is_completed_with_its_exit_code(tmp_path: Path) -> None:
    said = Completed(
        3,
        {"x": 1},
        affected=(AffectedEntity("file", "a.txt", None, "sha256:" + "a" * 64),),
        metrics={"stdout_bytes": 7},
        duration_ms=12,
        sandbox=Held("N", ("landlock",)),
        truncated=("stdout",),
    )
    case = Case(tmp_path, PLAIN, said)
    assert case.run() == "ToolExecutionCompleted"
    receipt = case.body("ToolExecutionCompleted")["sealed"]["receipt"]
    assert receipt["exit_code"] == 3
    assert receipt["structured_output"] == {"x": 1}
    assert receipt["output_summary"] == '{"x":1}'
    assert receipt["affected_entities"] == [
        {"kind": "file", "name": "a.txt", "before": None, "after": "a" * 64}
    ]
    assert (receipt["duration_ms"], receipt["attempt"], receipt["truncated"]) == (12, 1, ["stdout"])
    assert receipt["sandbox"] == {"strength": "N", "layers": ["landlock"]}


def test_a_receipt_is_sealed_by_the_pools_key(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAIN, Completed(0, {}))
    case.run()
    sealed = SealedReceipt.model_validate(case.body("ToolExecutionCompleted")["sealed"])
    signer = case.bench.pool_signer
    verifier = SealVerifier(Ed25519KeyRing({signer.kid: signer.public_hex}), Purpose.RECEIPT)
    assert sealed.receipt.digest == sealed.receipt_digest
    assert verifier.verify(sealed.receipt_digest, sealed.seal)


def test_output_that_breaks_its_schema_is_a_failure_with_its_bytes_kept(tmp_path: Path) -> None:
    case = Case(tmp_path, SHELL, Completed(0, {"surprise": 1}))
    assert case.run() == "ToolExecutionFailed"
    assert case.body("ToolExecutionFailed")["failure"]["code"] == "OUTPUT_INVALID"
    evidence = case.body("OutputRejected", "evidence")
    assert base64.b64decode(evidence["raw_base64"]) == b'{"surprise":1}'


def test_what_has_no_json_form_is_marked(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAIN, Completed(0, {"x": float("nan")}))
    assert case.run() == "ToolExecutionCompleted"
    output = case.body("ToolExecutionCompleted")["sealed"]["receipt"]["structured_output"]
    assert output == {"x": {"$interlock": "not_finite", "value": "NaN"}}


def test_what_was_ended_inside_the_workspace_is_failed(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAIN, Failed("WALL_LIMIT", "too long", began=True))
    assert case.run() == "ToolExecutionFailed"
    failed = case.body("ToolExecutionFailed")
    assert (failed["failure"]["code"], failed["failure"]["began"]) == ("WALL_LIMIT", True)
    assert failed["sealed"]["receipt"]["exit_code"] is None


@pytest.mark.parametrize("code", ["WALL_LIMIT", "CANCELLED", "SUPERVISOR_LOST", "OUTPUT_INVALID"])
def test_an_external_effect_that_may_have_begun_is_unknown(tmp_path: Path, code: str) -> None:
    case = Case(tmp_path, MAIL, Failed(code, "ended", began=True))
    assert case.run() == "ReconciliationRequired"
    assert phase_of(case.ledger, case.id) == "reconciliation_required"
    assert due_of(case.ledger, case.id) == "reconcile"
    case.said = Completed(0, {})
    assert case.run() == "ReconciliationRequired"


def test_an_external_effect_that_did_not_begin_is_failed(tmp_path: Path) -> None:
    case = Case(tmp_path, MAIL, Failed("CONNECT_FAILED", "refused", began=False))
    assert case.run() == "ToolExecutionFailed"
    failure = case.body("ToolExecutionFailed")["failure"]
    assert (failure["code"], failure["recoverable"], failure["began"]) == (
        "UPSTREAM_UNREACHABLE",
        True,
        False,
    )


def test_what_may_be_repeated_is_tried_again_up_to_the_cap(tmp_path: Path) -> None:
    case = Case(tmp_path, READ, Failed("SUPERVISOR_FAULT", "crashed", began=True))
    assert case.run() == "ExecutionAttemptFailed"
    assert phase_of(case.ledger, case.id) == "retry_wait"
    assert due_of(case.ledger, case.id) == "retry"
    assert case.run() == "ExecutionAttemptFailed"  # its moment has not come: nobody made it ready
    with case.ledger.write() as transaction:
        transaction.mark_ready([case.id])
    assert case.run() == "ToolExecutionFailed"
    assert case.body("ToolExecutionFailed")["failure"]["code"] == "ATTEMPTS_EXHAUSTED"
    assert the_head(case.ledger, case.id).attempt == 2


@pytest.mark.parametrize(
    ("contract", "last"),
    [
        ("PLAIN", "ToolExecutionFailed"),
        ("READ", "ExecutionAttemptFailed"),
        ("MAIL", "ReconciliationRequired"),
    ],
)
def test_what_a_stopping_pool_ended_is_tried_again_only_where_that_does_no_harm(
    tmp_path: Path, contract: str, last: str
) -> None:
    said = Failed("CANCELLED", "POOL_STOPPING", began=True)
    case = Case(tmp_path, {"PLAIN": PLAIN, "READ": READ, "MAIL": MAIL}[contract], said)
    assert case.run() == last


def test_a_limit_is_not_tried_again(tmp_path: Path) -> None:
    case = Case(tmp_path, READ, Failed("WALL_LIMIT", "too long", began=True))
    assert case.run() == "ToolExecutionFailed"


def test_without_a_sandbox_it_is_refused_by_name(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAIN, NotStarted("SANDBOX_UNAVAILABLE", "no bubblewrap"))
    assert case.run() == "ToolExecutionFailed"
    failure = case.body("ToolExecutionFailed")["failure"]
    assert (failure["code"], failure["began"]) == ("SANDBOX_UNAVAILABLE", False)


def test_what_could_not_be_set_up_is_given_back_with_a_wait_and_at_last_given_up(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAIN, NotStarted("SANDBOX_SETUP_FAILED", "no process"))
    for _ in range(4):
        assert case.run() == "ExecutionReleased"
        head = the_head(case.ledger, case.id)
        assert (head.phase, head.attempt, head.ready) == ("queued", 0, True)
        assert head.published_us > 0, "it keeps its place in the window while it waits"
    assert case.run() == "ToolExecutionFailed"
    assert case.body("ToolExecutionFailed")["failure"]["code"] == "ATTEMPTS_EXHAUSTED"


@pytest.mark.parametrize("code", ["START_BY_PASSED", "CLAIM_NOT_HELD"])
def test_what_was_too_late_goes_back_to_the_line_at_once(tmp_path: Path, code: str) -> None:
    case = Case(tmp_path, PLAIN, NotStarted(code, "late"))
    assert case.run() == "ExecutionReleased"
    assert case.bench.hints.ids() == [case.id]


def test_a_cancelled_one_that_did_not_begin_has_failed_as_cancelled(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAIN, NotStarted("CANCELLED_BEFORE_START", "CANCELLED"))
    assert case.run() == "ToolExecutionFailed"
    assert case.body("ToolExecutionFailed")["failure"]["code"] == "CANCELLED"


def test_a_tool_without_code_is_answered_by_the_mock_which_says_so(tmp_path: Path) -> None:
    mock = Tool(name="weather", catalogue="demo", executor=Executor.MOCK, effects=Effects(read_only=True))
    ledger = InMemoryLedger(ManualClock())
    put_contracts(ledger, [mock])
    bench = Workbench(ledger, tmp_path)
    [identifier] = grant(ledger, bench.governance, [Asked(mock, {"city": "Rome"})])
    bench.serve(identifier)
    receipt = body_of(ledger, identifier, "ToolExecutionCompleted")["sealed"]["receipt"]
    assert (receipt["kind"], receipt["tool_name"]) == ("mock", "demo/weather")
    assert receipt["metrics"]["mock"] == 1


def test_no_sensitive_value_stands_in_a_receipt(tmp_path: Path) -> None:
    said = Completed(0, {"text": "the word is swordfish!", "again": "swordfish", "swordfish": 4711})
    ledger = InMemoryLedger(ManualClock())
    put_contracts(ledger, [PLAIN])
    bench = Workbench(ledger, tmp_path, pool="shell", answer=lambda _call: said, contracts=[PLAIN])
    arguments = {"argv": ["true"], "stdin": "swordfish", "limit": 4711}
    [identifier] = grant(ledger, bench.governance, [Asked(PLAIN, arguments)])
    [item] = bench.claiming.prepare([identifier])
    told = item.work.requested.model_copy(update={"sensitive": ("/stdin", "/limit")})
    [report] = bench.reporting.reports([(replace(item, work=replace(item.work, requested=told)), said)])
    written = report.outcome.to_bytes()
    assert b"swordfish" not in written
    assert b"4711" not in written
    assert b"the word is [masked]!" in written


def test_capabilities_become_the_call(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAIN, Completed(0, {}))
    case.run()
    [call] = case.bench.supervisor.calls
    assert call.capabilities == {capability.value for capability in SHELL.capabilities}
    assert call.workspace == tmp_path / "workspaces" / "s"
    assert call.wall_limit_ms == SHELL.timeout_ms
    assert call.start_by_boottime_ns == case.bench.boottime_ns + 10_000_000_000
    assert PLAIN.tier is Tier.T3
    assert ToolCapability.SHELL_EXEC in PLAIN.capabilities

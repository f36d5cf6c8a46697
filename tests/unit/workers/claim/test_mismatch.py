"""What is about to run against what was permitted: rejected by name, or left to others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from governance.execution import Work
from governance.execution.work import read_work
from governance.ledger import head_with
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.contract import Executor, Tool
from interlock.tier import Tier, ToolCapability
from tests.support.permitted import (
    Asked,
    body_of,
    events_of,
    grant,
    phase_of,
    put_contracts,
    types_of,
)
from tests.support.workbench import FailingLedger, Workbench, tools
from workers.serve import HALT_ROUNDS

ECHO = tools()["echo"]
ASKED = Asked(ECHO, {"value": "true"})

CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "arguments": ({"arguments": {"value": "other"}}, "arguments_hash"),
    "session": ({"session": "other"}, "session"),
    "stage": ({"stage": "other"}, "stage"),
    "client": ({"client": "other"}, "client"),
    "tenant": ({"tenant": "other"}, "tenant"),
    "subject": ({"subject": "other"}, "action"),
    "route": ({"route": "other"}, "action"),
    "tool": ({"tool": "shell.run"}, "tool"),
    "contract": ({"contract_digest": "0" * 64}, "contract_digest"),
    "pool": ({"capability_pool": "shell"}, "pool"),
    "tier": ({"tier": "T1"}, "action"),
    "repeat": ({"repeat": 1}, "action"),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_each_bound_field_that_was_changed_is_a_mismatch(
    bench: Workbench, ledger: FailingLedger, name: str
) -> None:
    changed, field = CHANGES[name]
    [identifier] = grant(ledger, bench.governance, [ASKED], changed=changed)
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ToolExecutionRejected"
    reason = body_of(ledger, identifier, "ToolExecutionRejected")["reason"]
    assert reason["code"] == "PERMIT_MISMATCH"
    assert str(reason["sentence"]).startswith(f"{field}: ")
    assert body_of(ledger, identifier, "PermitMismatched", "evidence")["field"] == field


def test_a_permit_of_another_invocation_is_a_mismatch(bench: Workbench, ledger: FailingLedger) -> None:
    ids = grant(ledger, bench.governance, [ASKED, replace(ASKED, stage="g2")])
    works = bench.execution.load(ids)
    mine, other = works[ids[0]], works[ids[1]]
    assert isinstance(mine, Work)
    assert isinstance(other, Work)
    taken = replace(mine, permit=other.permit, permit_digest=other.permit_digest)
    verdict = bench.claiming._verdict(taken)
    assert getattr(verdict, "field", None) == "invocation_id"


def test_a_permit_under_the_digest_of_another_is_not_what_was_sealed(
    bench: Workbench, ledger: FailingLedger
) -> None:
    ids = grant(ledger, bench.governance, [ASKED, replace(ASKED, stage="g2")])
    works = bench.execution.load(ids)
    mine, other = works[ids[0]], works[ids[1]]
    assert isinstance(mine, Work)
    assert isinstance(other, Work)
    verdict = bench.claiming._verdict(replace(mine, permit=other.permit))
    assert getattr(verdict, "code", None) == "PERMIT_UNVERIFIABLE"


def test_a_permit_by_another_key_runs_nothing_and_is_a_security_event(
    bench: Workbench, ledger: FailingLedger
) -> None:
    [identifier] = grant(ledger, Ed25519Signer.generate(), [ASKED])
    bench.serve(identifier)
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "queued"
    assert types_of(ledger, identifier, "evidence") == ["PermitMismatched"]
    assert body_of(ledger, identifier, "PermitMismatched", "evidence")["field"] == "seal"
    assert bench.drops.counts() == {"PERMIT_UNVERIFIABLE": 2}


def test_a_permit_used_twice_is_a_mismatch(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [ASKED])
    work = bench.execution.load([identifier])[identifier]
    assert isinstance(work, Work)
    verdict = bench.claiming._verdict(replace(work, permit_uses=ECHO.attempts_max))
    assert getattr(verdict, "field", None) == "attempts"


def test_a_head_that_was_put_back_offers_nothing_again(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [ASKED])
    bench.serve(identifier)
    work = bench.execution.load([identifier])[identifier]
    assert isinstance(work, Work)
    events = events_of(ledger, identifier)
    put_back = read_work(head_with(work.head, phase="queued", ready=True), events, bench.execution.unseal)
    assert getattr(put_back, "code", None) == "HEAD_DIFFERS"


HEADS: dict[str, Any] = {
    "tenant": "other", "session": "victim", "stage": "g", "client": "other", "tool": "shell.run",
    "contract_digest": "0" * 64, "priority": 0, "deadline_us": 1, "may_repeat": False,
    "external": True, "action_digest": "x", "request_digest": "x", "guards_twins": True, "batchable": False,
}  # fmt: skip


@pytest.mark.parametrize("name", list(HEADS))
def test_a_head_that_says_otherwise_than_what_was_permitted_runs_nothing(
    bench: Workbench, ledger: FailingLedger, name: str
) -> None:
    [identifier] = grant(ledger, bench.governance, [replace(ASKED, columns={name: HEADS[name]})])
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "queued"
    assert bench.drops.counts() == {"HEAD_DIFFERS": 1}


@pytest.mark.parametrize(
    "changed",
    [{"may_repeat": False}, {"effect_scope": "external"}, {"timeout_ms": 86_400_000}, {"priority": 0}],
    ids=lambda changed: next(iter(changed)),
)
def test_a_request_that_says_otherwise_than_its_contract_runs_nothing(
    bench: Workbench, ledger: FailingLedger, changed: dict[str, Any]
) -> None:
    [identifier] = grant(ledger, bench.governance, [ASKED], changed=changed)
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "queued"
    assert bench.drops.counts() == {"HEAD_DIFFERS": 1}


def test_ten_wrong_hints_in_a_row_stop_the_claiming(bench: Workbench, ledger: FailingLedger) -> None:
    stranger = Ed25519Signer.generate()
    wrong = grant(ledger, stranger, [replace(ASKED, stage=f"g{n}") for n in range(10)])
    for identifier in wrong:
        assert bench.serving.refusal() is None
        bench.serve(identifier)
    assert bench.serving.refusal() == "too many wrong hints in a row"
    [right] = grant(ledger, bench.governance, [replace(ASKED, stage="right")])
    bench.serve(right)
    assert phase_of(ledger, right) == "queued"


def test_one_right_hint_between_wrong_ones_goes_on(bench: Workbench, ledger: FailingLedger) -> None:
    wrong = grant(ledger, Ed25519Signer.generate(), [replace(ASKED, stage=f"g{n}") for n in range(9)])
    for identifier in wrong:
        bench.serve(identifier)
    [right] = grant(ledger, bench.governance, [replace(ASKED, stage="right")])
    bench.serve(right)
    for identifier in wrong:
        bench.serve(identifier)
    assert bench.serving.refusal() is None


def test_one_id_named_again_and_again_halts_nobody(bench: Workbench, ledger: FailingLedger) -> None:
    [wrong] = grant(ledger, Ed25519Signer.generate(), [ASKED])
    for _ in range(30):
        bench.serve(wrong)
    assert bench.serving.refusal() is None


def test_hints_on_the_wrong_queue_halt_nobody(bench: Workbench, ledger: FailingLedger) -> None:
    asked = Asked(tools()["shell.run"], {"argv": ["true"]})
    ids = grant(ledger, bench.governance, [replace(asked, stage=f"g{n}") for n in range(12)])
    for identifier in ids:
        bench.serve(identifier)
    assert bench.drops.counts() == {"CAPABILITY_MISMATCH": 12}
    assert bench.serving.refusal() is None


def test_a_halted_pool_ends_after_a_while_to_be_started_anew(bench: Workbench, ledger: FailingLedger) -> None:
    for identifier in grant(
        ledger, Ed25519Signer.generate(), [replace(ASKED, stage=f"g{n}") for n in range(10)]
    ):
        bench.serve(identifier)
    for _ in range(HALT_ROUNDS - 1):
        bench.serving.mend()
    assert not bench.has_failed
    bench.serving.mend()
    assert bench.has_failed


def test_a_contract_gone_with_an_older_epoch_is_given_back(bench: Workbench, ledger: FailingLedger) -> None:
    [identifier] = grant(ledger, bench.governance, [Asked(Tool(name="gone"), {})])
    with ledger.write(control=True) as transaction:
        transaction.raise_epoch()
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "PermitReturned"
    assert phase_of(ledger, identifier) == "deciding"
    assert bench.drops.counts() == {}


def test_a_contract_without_code_is_answered_in_the_pool_its_capabilities_name(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    reader = Tool(name="search", tier=Tier.T1, capabilities=(ToolCapability.FILE_READ,), effects=ECHO.effects)
    put_contracts(ledger, [reader])
    bench = Workbench(ledger, tmp_path, pool="fs", boot="boot-2")
    [identifier] = grant(ledger, bench.governance, [Asked(reader, {})])
    bench.serve(identifier)
    assert types_of(ledger, identifier)[-1] == "ToolExecutionCompleted"
    assert bench.supervisor.calls == []


DROPPED: dict[str, tuple[Callable[[], Asked], str]] = {
    "another pool": (lambda: Asked(tools()["shell.run"], {"argv": ["true"]}), "CAPABILITY_MISMATCH"),
    "an unknown contract": (lambda: Asked(Tool(name="new"), {}), "CONTRACT_CHANGED"),
}


@pytest.mark.parametrize("name", list(DROPPED))
def test_what_only_this_worker_finds_wrong_is_left_to_others(
    bench: Workbench, ledger: FailingLedger, name: str
) -> None:
    asked, code = DROPPED[name]
    [identifier] = grant(ledger, bench.governance, [asked()])
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "queued"
    assert bench.drops.counts() == {code: 1}


def test_a_tool_of_another_version_is_left_to_a_pool_that_has_it(
    bench: Workbench, ledger: FailingLedger
) -> None:
    newer = ECHO.model_copy(update={"version": "2", "executor": Executor.BUILTIN})
    put_contracts(ledger, [newer])
    [identifier] = grant(ledger, bench.governance, [Asked(newer, {"value": 1})])
    bench.serve(identifier)
    assert phase_of(ledger, identifier) == "queued"
    assert bench.drops.counts() == {"TOOL_UNAVAILABLE": 1}


def test_an_unknown_id_is_no_error(bench: Workbench) -> None:
    bench.serve("01890000-0000-7000-8000-000000000000")
    assert bench.drops.counts() == {}


def test_sealed_arguments_are_opened_and_hashed_by_their_true_value(
    ledger: FailingLedger, tmp_path: Path
) -> None:
    from governance.sensitive import sealed_arguments
    from tests.support.workbench import PlainSealer

    secret = Tool(name="login", effects=ECHO.effects)
    put_contracts(ledger, [secret])
    bench = Workbench(ledger, tmp_path, boot="boot-2", contracts=[secret])
    asked = Asked(secret, {"password": "true-secret"}, sensitive=("/password",))
    identifiers = grant(ledger, bench.governance, [asked])
    events = events_of(ledger, identifiers[0])
    sealed = sealed_arguments({"password": "true-secret"}, ("/password",), PlainSealer(), identifiers[0])
    body = {**events[0].body(), "arguments": sealed}
    from interlock.canonical import canonical

    events[0] = events[0]._replace(payload=canonical(body))
    with ledger.read() as view:
        head = next(iter(view.heads_of("invocation", limit=1)))
    work = read_work(head, events, bench.execution.unseal)
    assert isinstance(work, Work)
    assert work.arguments_copy() == {"password": "true-secret"}
    assert work.permit is not None
    assert work.action.digest == work.permit.terms.action_digest

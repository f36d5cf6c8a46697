"""A tool that says what it was given: no form of a secret is recorded, whatever became of the call."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from governance.memory_ledger import InMemoryLedger
from governance.secrecy import Secrecy
from interlock.canonical import canonical
from interlock.clock import ManualClock
from interlock.contract import Tool
from interlock.event import OutputRejected
from interlock.tier import Tier, ToolCapability
from tests.support.permitted import Asked, grant, put_contracts
from tests.support.workbench import Workbench
from workers.mask import Masking
from workers.report_form import report_to_json
from workers.supervisor.port import AffectedEntity, Completed, Failed, NotStarted, Outcome

SECRET = 'sword"fish-ä-4711'
PARTS = (b"fish-", b"sword")
TOKEN: dict[str, Any] = {"type": "string", "sensitive": True}
CONTRACT = Tool(
    name="vault",
    parameters={"type": "object", "patternProperties": {"^t": {"properties": {"deep": TOKEN}}}},
    tier=Tier.T3,
    capabilities=(ToolCapability.SHELL_EXEC,),
)
CHECKED = CONTRACT.model_copy(update={"output": {"properties": {"n": {"enum": ["right"]}}}})


ARGUMENTS: dict[str, Any] = {"t1": {"deep": SECRET}}


SAID: list[tuple[Tool, Outcome]] = [
    (CONTRACT, Completed(0, {"text": f"it is {SECRET}!", "all": SECRET, SECRET: [SECRET]})),
    (CONTRACT, Completed(0, {"json": '{"t": "sword\\"fish-\\u00e4-4711"}', "raw": '"sword\\"fish-ä-4711"'})),
    (CONTRACT, Completed(0, {}, affected=(AffectedEntity("file", f"{SECRET}.txt", None, None),))),
    (CHECKED, Completed(0, {"n": SECRET})),
    (CONTRACT, Failed("TOOL_FAILED", "x" * 490 + SECRET * 9, began=True)),
    (CONTRACT, Failed("OUTPUT_INVALID", SECRET, began=True, raw_output=b'{"t": "sword\\"fish-\\u00e4-4711"')),
    (CONTRACT, NotStarted("SANDBOX_UNAVAILABLE", f"no folder {SECRET}")),
    (CONTRACT, NotStarted("SANDBOX_SETUP_FAILED", f"no folder {SECRET}")),
]


@pytest.mark.parametrize(("contract", "said"), SAID)
def test_no_form_of_a_secret_is_recorded_or_spooled(tmp_path: Path, contract: Tool, said: Outcome) -> None:
    ledger = InMemoryLedger(ManualClock())
    put_contracts(ledger, [contract])
    bench = Workbench(ledger, tmp_path, pool="shell", contracts=[contract])
    [identifier] = grant(ledger, bench.governance, [Asked(contract, ARGUMENTS)])
    [item] = bench.claiming.prepare([identifier])
    pointers = Secrecy(contract.parameters).pointers(ARGUMENTS)
    told = item.work.requested.model_copy(update={"sensitive": pointers})
    [report] = bench.reporting.reports([(replace(item, work=replace(item.work, requested=told)), said)])
    kept = canonical(report_to_json(report))
    events = [report.outcome, *report.evidence]
    raw = b"".join(b64decode(event.raw_base64) for event in events if isinstance(event, OutputRejected))
    assert not [part for part in PARTS if part in kept + raw]
    assert b"masked" in kept + raw


def test_a_value_that_is_no_text_is_masked_where_it_stands_alone() -> None:
    masking = Masking({"a": [4711, 17, True]}, ("/a",))
    assert masking.masked({"n": 4711, "m": 17, "t": "4711 and 17", "b": True}) == {
        "n": "[masked]",
        "m": "[masked]",
        "t": "[masked] and 17",
        "b": True,
    }

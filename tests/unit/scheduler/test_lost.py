"""What becomes of the claim of a dead worker when its head was changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from governance.ledger import head_with
from governance.line import Line
from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.fault import NoFaults
from interlock.settings import Settings
from scheduler.lost import Lost
from tests.support.permitted import Asked, grant, phase_of, put_contracts, the_head
from tests.support.workbench import Workbench, tools


@pytest.mark.parametrize(
    ("tool", "arguments", "columns", "phase"),
    [
        ("echo", {"value": 1}, {}, "queued"),
        ("shell.run", {"argv": ["true"]}, {}, "reconciliation_required"),
        ("shell.run", {"argv": ["true"]}, {"may_repeat": True}, "reconciliation_required"),
    ],
)
def test_only_what_request_and_head_call_repeatable_runs_again(
    tmp_path: Path, tool: str, arguments: dict[str, Any], columns: dict[str, Any], phase: str
) -> None:
    ledger = InMemoryLedger(ManualClock())
    contract = tools()[tool]
    put_contracts(ledger, [contract])
    bench = Workbench(ledger, tmp_path, pool=contract.pool.value)
    [identifier] = grant(ledger, bench.governance, [Asked(contract, arguments)])
    [item] = bench.claiming.prepare([identifier])
    assert bench.claiming.claim([item]).winners == {identifier}
    head = head_with(the_head(ledger, identifier), **columns)
    ledger._state.heads[head.stream] = head
    settings = Settings()
    Lost(ledger, Line(settings), settings, NoFaults()).settle([head])
    assert phase_of(ledger, identifier) == phase
    bench.spool.close()

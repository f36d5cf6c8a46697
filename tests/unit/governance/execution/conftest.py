"""A pool without processes over each ledger that needs no service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.ledger import Ledger
from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from tests.support.permitted import put_contracts
from tests.support.workbench import FailingLedger, Workbench, tools


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FailingLedger]:
    """A ledger that knows the built-in contracts."""
    made = FailingLedger(open_ledger(request.param, tmp_path))
    put_contracts(made, list(tools().values()))
    yield made
    made.close()


def open_ledger(kind: str, folder: Path) -> Ledger:
    """A new ledger with a clock of its own."""
    if kind == "memory":
        return InMemoryLedger(ManualClock())
    return SqliteLedger.open(folder / "ledger.db", ManualClock(), create=True)


@pytest.fixture
def bench(ledger: FailingLedger, tmp_path: Path) -> Iterator[Workbench]:
    """The pure pool."""
    made = Workbench(ledger, tmp_path)
    yield made
    made.spool.close()

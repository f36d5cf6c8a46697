"""A pool without processes over a ledger in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from tests.support.permitted import put_contracts
from tests.support.workbench import FailingLedger, Workbench, tools


@pytest.fixture
def ledger() -> FailingLedger:
    """A ledger that knows the built-in contracts."""
    made = FailingLedger(InMemoryLedger(ManualClock()))
    put_contracts(made, list(tools().values()))
    return made


@pytest.fixture
def bench(ledger: FailingLedger, tmp_path: Path) -> Iterator[Workbench]:
    """The pure pool."""
    made = Workbench(ledger, tmp_path)
    yield made
    made.spool.close()

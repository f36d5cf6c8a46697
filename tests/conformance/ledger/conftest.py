"""Every ledger the suite is asked of, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.ledger import Ledger
from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.fault import FaultPoints

OpenLedger = Callable[[FaultPoints | None], Ledger]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[OpenLedger]:
    """Makes ledgers of one kind; each is closed at the end."""
    opened: list[Ledger] = []

    def make(faults: FaultPoints | None = None) -> Ledger:
        if request.param == "memory":
            ledger: Ledger = InMemoryLedger(clock, faults=faults)
        else:
            path = tmp_path / f"ledger{len(opened)}.db"
            ledger = SqliteLedger.open(path, clock, create=True, faults=faults)
        opened.append(ledger)
        return ledger

    yield make
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: OpenLedger) -> Ledger:
    return open_ledger(None)

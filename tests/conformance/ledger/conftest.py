"""Every ledger the suite is asked of, with a clock that the test moves.

Where numbers are given after the commit, a reading of these ledgers gives them first: what the port promises
about a number it promises of events that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from governance.adapters.postgres_ledger.reading import PostgresView
from governance.adapters.sqlite_ledger import SqliteLedger
from governance.ledger import Ledger
from governance.memory_ledger import InMemoryLedger
from interlock.clock import ManualClock
from interlock.fault import FaultPoints
from tests.support.postgres import PostgresServer
from tests.support.postgres import postgres as postgres

OpenLedger = Callable[[FaultPoints | None], Ledger]


class NumberedLedger(PostgresLedger):
    """Sequenced before each reading, as a relay beside it would have done by then."""

    @contextmanager
    def read(self) -> Iterator[PostgresView]:
        sequencer = PostgresSequencer(self, "the suite")
        while sequencer.sequence():
            pass
        with super().read() as view:
            yield view


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_postgres(
    request: pytest.FixtureRequest, clock: ManualClock
) -> Iterator[Callable[[FaultPoints | None], PostgresLedger]]:
    """Makes ledgers in databases of their own; skipped where there is no server to start."""
    with ExitStack() as databases:

        def make(faults: FaultPoints | None = None) -> PostgresLedger:
            server: PostgresServer = request.getfixturevalue("postgres")
            url = databases.enter_context(server.database())
            return NumberedLedger.open(url, clock, create=True, faults=faults)

        yield make


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_ledger(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: ManualClock,
    open_postgres: Callable[[FaultPoints | None], PostgresLedger],
) -> Iterator[OpenLedger]:
    """Makes ledgers of one kind; each is closed at the end."""
    opened: list[Ledger] = []

    def make(faults: FaultPoints | None = None) -> Ledger:
        if request.param == "memory":
            ledger: Ledger = InMemoryLedger(clock, faults=faults)
        elif request.param == "postgres":
            ledger = open_postgres(faults)
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

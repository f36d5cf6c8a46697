"""A genuine ledger on SQLite with every kind of invocation in it, and a hand on its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from governance.verify import Report
from interlock.clock import ManualClock
from tests.support.installation import Installation, action_of

Change = Callable[..., None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path, clock: ManualClock) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger.open(path, clock, create=True)
    yield ledger
    ledger.close()


@pytest.fixture
def installation(ledger: SqliteLedger, clock: ManualClock) -> Installation:
    """Events: 1-4 start, 5-8 complete run, 9 deciding, 10-11 queued, 12-14 running, 15-18 a run."""
    made = Installation(ledger, clock)
    made.start()
    made.run("i-1")
    made.request("i-2")
    queued = made.request("i-3", stage="g-3")
    made.grant("i-3", made.permit("i-3", action_of(queued)))
    running = made.request("i-4", stage="g-2")
    permit = made.permit("i-4", action_of(running))
    made.grant("i-4", permit)
    made.claim("i-4", permit.digest, nonce="n-4")
    made.run("i-5", session="s-2")
    return made


@pytest.fixture
def change(installation: Installation, path: Path) -> Change:
    """Runs statements on the file as an intruder would: past triggers and foreign keys, then closed."""

    def run(*statements: str, values: tuple[Any, ...] = ()) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            names = [
                name
                for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
            ]
            for name in names:
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement, values if "?" in statement else ())
            connection.execute("COMMIT")

    return run


@pytest.fixture
def checked(installation: Installation, ledger: SqliteLedger) -> Callable[..., Report]:
    """What `verify` says now, against these anchors."""
    return lambda *anchors: installation.verify(ledger.records(), *anchors)

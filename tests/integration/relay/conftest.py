"""A real broker of each test's own, and a ledger on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from tests.support.valkey import ValkeyServer, valkey_server


@pytest.fixture
def server(short_tmp_path: Path) -> Iterator[ValkeyServer]:
    with valkey_server(short_tmp_path) as server:
        yield server


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger.open(tmp_path / "ledger.db", SystemClock(), create=True)
    yield ledger
    ledger.close()

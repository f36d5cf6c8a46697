"""Ledgers in a database of the test's own, and plain connections that stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from governance.adapters.postgres_ledger import PostgresLedger
from interlock.clock import SystemClock
from tests.support.postgres import postgres as postgres
from tests.support.postgres import postgres_url as postgres_url

Plain = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def open_ledger(postgres_url: str) -> Iterator[Callable[[], PostgresLedger]]:
    """Opens the ledger of this test's database, as often as asked; closed at the end."""
    with ExitStack() as opened:

        def open_it() -> PostgresLedger:
            ledger = PostgresLedger.open(postgres_url, SystemClock(), create=True)
            opened.callback(ledger.close)
            return ledger

        yield open_it


@pytest.fixture
def ledger(open_ledger: Callable[[], PostgresLedger]) -> PostgresLedger:
    return open_ledger()


@pytest.fixture
def beside(ledger: PostgresLedger, postgres_url: str) -> Iterator[Callable[[], Plain]]:
    """Opens plain connections to the same database; closed at the end."""
    with ExitStack() as opened:

        def connect() -> Plain:
            return opened.enter_context(psycopg.connect(postgres_url, autocommit=True))

        yield connect

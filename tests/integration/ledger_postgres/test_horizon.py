"""For how long events wait for their numbers, as anybody can ask, and whose transaction holds them back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from governance.adapters.postgres_ledger import horizon as module
from governance.adapters.postgres_ledger.horizon import Horizon, horizon
from tests.integration.ledger_postgres.conftest import Plain
from tests.support.ledger import an_append, write
from tests.support.wait import until


def test_events_without_numbers_wait_for_a_sequencer_or_for_an_open_transaction(
    ledger: PostgresLedger, beside: Callable[[], Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert horizon(ledger) == Horizon()
    write(ledger, an_append("i-1"))
    waiting = horizon(ledger)
    assert waiting.waiting_s > 0
    assert not waiting.is_held
    sequencer = PostgresSequencer(ledger, "a")
    until(lambda: not sequencer.sequence(), 20, "every event has its number")
    assert horizon(ledger) == Horizon()

    monkeypatch.setattr(module, "HIGH_SECONDS", -1.0)
    long = beside()
    long.execute("BEGIN")
    long.execute("SELECT pg_current_xact_id()")
    write(ledger, an_append("i-2"))
    held = horizon(ledger)
    assert held.is_held
    assert held.pid == long.execute("SELECT pg_backend_pid()").fetchall()[0][0]
    long.execute("COMMIT")

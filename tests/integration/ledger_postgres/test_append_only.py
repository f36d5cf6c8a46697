"""Events are never changed: whatever way of changing a row there is, the database refuses it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from tests.integration.ledger_postgres.conftest import Plain
from tests.support.ledger import an_append, write

CHANGES = (
    "UPDATE {} SET ord = ord",
    "UPDATE {} SET ord = ord WHERE false",
    "DELETE FROM {}",
    "TRUNCATE {} CASCADE",
    "INSERT INTO {} SELECT * FROM {} ON CONFLICT DO NOTHING; DELETE FROM {}",
    "MERGE INTO {} t USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
)


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize("table", ["tool_event", "event_seq"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_statement_changes_or_removes_an_event(
    ledger: PostgresLedger, beside: Callable[[], Plain], role: str, table: str, change: str
) -> None:
    write(ledger, an_append("i-1"))
    PostgresSequencer(ledger, "a").sequence()
    connection = beside()
    connection.execute(f"SET session_replication_role = {role}")
    with pytest.raises(psycopg.errors.RestrictViolation, match="never changed"):
        connection.execute(change.replace("{}", table))
    with ledger.read() as view:
        assert [event.version for event in view.range(0, 9)] == [1]


def test_an_insert_that_would_rather_update_is_refused(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1"))
    replace = """INSERT INTO tool_event SELECT * FROM tool_event
        ON CONFLICT (kind, stream, version) DO UPDATE SET payload = 'x'"""
    with pytest.raises(psycopg.errors.RestrictViolation, match="never changed"):
        beside().execute(replace)


def test_a_second_event_at_one_version_is_refused(
    ledger: PostgresLedger, beside: Callable[[], Plain]
) -> None:
    write(ledger, an_append("i-1"))
    again = """INSERT INTO tool_event (kind, stream, version, type, format, at_us, cause, actor, tenant,
        session, moves_state, payload, payload_sha) SELECT kind, stream, version, type, format, at_us, cause,
        actor, tenant, session, moves_state, payload, payload_sha FROM tool_event"""
    with pytest.raises(psycopg.errors.UniqueViolation):
        beside().execute(again)

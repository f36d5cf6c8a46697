"""What each database role may do, and what it must not: tried, as each of them, against a real server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from governance.adapters.migration import upgrade
from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from governance.execution.step import evidence_append
from governance.ledger import StageKey
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.clock import SystemClock
from interlock.event import SandboxViolation, evidence_stream, invocation_stream, new_event
from interlock.projection import ToolProjector
from tests.support.permitted import Asked, grant, put_contracts
from tests.support.postgres import OWNER, PostgresServer
from tests.support.workbench import KEY, Workbench, tools
from workers.adapters.postgres_projection import PostgresProjection

ROLES_SQL = Path(__file__).parents[3] / "deploy" / "postgres" / "roles.sql"
NAMES = ("owner", "governor", "scheduler", "worker", "projector", "reader")
EVENT = """INSERT INTO tool_event (kind, stream, version, type, format, at_us, cause, actor, tenant, session,
    moves_state, payload, payload_sha{more})
    VALUES ('{kind}', '{stream}', 7, '{type}', 1, 1, 'c', 'a', 't', 's', true, '', ''{values})"""
TABLES = (
    "tool_event", "event_seq", "head", "due", "boot", "idempotency", "denial", "contract", "control", "meta",
    "sequencer",
)  # fmt: skip
VIEWS = ("checkpoint", "record", "stop", "format")


@dataclass(frozen=True)
class Roles:
    """One database with its roles applied, and a login of each."""

    admin: str
    logins: dict[str, str]
    granted: list[str]

    def may(self, role: str, *statements: str) -> None:
        """Every statement is allowed; nothing of it stays."""
        for statement in statements:
            assert self._refusal(role, statement) is None, f"{role}: {statement}"

    def may_not(self, role: str, *statements: str) -> None:
        """Every statement is refused for want of a right."""
        for statement in statements:
            refusal = self._refusal(role, statement)
            assert isinstance(refusal, psycopg.errors.InsufficientPrivilege), (
                f"{role}: {statement}: {refusal}"
            )

    def _refusal(self, role: str, statement: str) -> psycopg.Error | None:
        with psycopg.connect(self.logins[role]) as connection:
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                return error
            finally:
                connection.rollback()
        return None


def _event(name: str, *, kind: str = "invocation", xid: str = "", stream: str = "i-9") -> str:
    more, values = (", xid", f", {xid}") if xid else ("", "")
    return EVENT.format(kind=kind, stream=stream, type=name, more=more, values=values)


@pytest.fixture(scope="module")
def roles(postgres: PostgresServer) -> Iterator[Roles]:
    suffix = secrets.token_hex(3)
    with postgres.database() as admin:
        upgrade(admin)
        PostgresProjection.open(admin).close()
        for _ in range(2):  # it may be run again at any time
            with psycopg.connect(admin) as connection:
                connection.execute(ROLES_SQL.read_bytes())
        logins = {name: f"t_{name}_{suffix}" for name in NAMES}
        for name, login in logins.items():
            postgres.run(
                sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}").format(
                    sql.Identifier(login), sql.Identifier(f"interlock_{name}")
                )
            )
        ledger = PostgresLedger.open(admin, SystemClock())
        put_contracts(ledger, list(tools().values()))
        granted = grant(
            ledger,
            Ed25519Signer.from_bytes(KEY),
            [Asked(tools()["echo"], {"value": "hello"}, session=s) for s in "ab"],
        )
        ledger.close()
        urls = {name: admin.replace(f"{OWNER}@", f"{login}@", 1) for name, login in logins.items()}
        yield Roles(admin, urls, granted)
    for login in logins.values():
        postgres.run(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))


def test_a_worker_appends_execution_events_and_nothing_else(roles: Roles) -> None:
    roles.may(
        "worker",
        _event("ToolExecutionStarted"),
        _event("ToolExecutionCompleted"),
        _event("ExecutionReleased"),
        _event("SandboxViolation", kind="evidence"),
    )
    roles.may_not(
        "worker",
        _event("ApprovalGranted"),
        _event("ToolInvocationRequested"),
        _event("CancellationRequested"),
        _event("ToolExecutionStarted", kind="control"),
        _event("KeyAdded", kind="control"),
        _event("ToolExecutionStarted", xid="'3'"),
        "INSERT INTO event_seq VALUES (1, '1', 1, '')",
        "UPDATE sequencer SET holder = 'me'",
        "UPDATE control SET epoch = epoch + 1",
        "UPDATE meta SET value = '9'",
        "INSERT INTO denial VALUES ('a', 'b')",
        "INSERT INTO contract VALUES ('a', '')",
        "INSERT INTO idempotency VALUES ('t', 'c', 'k', 'i', 'd')",
        "SELECT setval('tool_event_ord', 1)",
    )


def test_a_worker_moves_only_what_claim_and_report_move(roles: Roles) -> None:
    roles.may(
        "worker",
        "UPDATE head SET version = version, nonce = 'n', phase = 'running' WHERE kind = 'invocation'",
        "UPDATE due SET at_us = 1 WHERE kind = 'invocation'",
        "DELETE FROM due WHERE kind = 'invocation'",
        "INSERT INTO boot VALUES ('b', 'pool', 'h', 1, 1, 1, false)",
    )
    for column in ("tool", "action_digest", "contract_digest", "client", "tenant", "session", "accepted_seq"):
        roles.may_not("worker", f"UPDATE head SET {column} = {column}")
    roles.may_not("worker", "DELETE FROM head", "UPDATE due SET kind = 'x'", "DELETE FROM boot")
    with psycopg.connect(roles.admin) as connection:
        connection.execute(
            """INSERT INTO head SELECT (jsonb_populate_record(h, '{"kind": "session"}')).*
            FROM head h LIMIT 1"""
        )
    with psycopg.connect(roles.logins["worker"]) as connection:
        assert connection.execute("UPDATE head SET data = '' WHERE kind = 'session'").rowcount == 0
        connection.rollback()
    with psycopg.connect(roles.admin) as connection:
        connection.execute("DELETE FROM head WHERE kind = 'session'")


def test_nobody_but_the_owner_defines_anything_and_nobody_empties_the_log(roles: Roles) -> None:
    for name in NAMES[1:]:
        roles.may_not(
            name,
            "CREATE TABLE mine (n int)",
            "CREATE TABLE views.mine (n int)",
            "CREATE SCHEMA mine",
            "CREATE TEMP TABLE mine (n int)",
            "ALTER TABLE tool_event DISABLE TRIGGER ALL",
            "DROP TABLE head",
            "CREATE INDEX ON head (tool)",
            "SET session_replication_role = replica",
            *(f"TRUNCATE {table} CASCADE" for table in TABLES),
            *(f"DELETE FROM {table}" for table in TABLES if table != "due"),
            "UPDATE tool_event SET type = 'x'",
            "UPDATE event_seq SET hash = ''",
        )
    roles.may("owner", "CREATE TABLE mine (n int)", "ALTER TABLE head ADD COLUMN mine int")
    for statement in ("TRUNCATE tool_event", "DELETE FROM tool_event", "UPDATE event_seq SET hash = ''"):
        assert isinstance(roles._refusal("owner", statement), psycopg.errors.RestrictViolation), statement


def test_a_reader_and_a_projector_read_everything_and_write_no_log(roles: Roles) -> None:
    for name in ("reader", "projector"):
        roles.may(name, *(f"SELECT * FROM {table}" for table in TABLES))
        roles.may(name, *(f"SELECT * FROM views.{table}" for table in VIEWS))
        roles.may_not(
            name,
            _event("ToolExecutionStarted"),
            "UPDATE head SET phase = 'done'",
            "INSERT INTO due VALUES ('a', 'b', 'c', 1)",
            "INSERT INTO boot VALUES ('b', 'pool', 'h', 1, 1, 1, false)",
        )
    roles.may_not("reader", *(f"DELETE FROM views.{table}" for table in VIEWS))
    roles.may("projector", *(f"DELETE FROM views.{table}" for table in VIEWS[:3]))
    for name in ("governor", "scheduler", "worker"):
        roles.may_not(name, "SELECT * FROM views.record")


def test_a_scheduler_sequences_and_neither_decides_nor_executes(roles: Roles) -> None:
    roles.may(
        "scheduler",
        _event("ExecutionAbandoned"),
        "INSERT INTO event_seq VALUES (1, '1', 1, '')",
        "UPDATE sequencer SET holder = 'me'",
    )
    roles.may_not(
        "scheduler",
        _event("ApprovalGranted"),
        _event("ToolExecutionStarted"),
        _event("ToolExecutionCompleted"),
        "UPDATE control SET epoch = epoch + 1",
        "INSERT INTO contract VALUES ('a', '')",
    )


def test_a_governor_decides_and_gives_no_numbers(roles: Roles) -> None:
    roles.may(
        "governor",
        _event("ApprovalGranted"),
        _event("KeyAdded", kind="control"),
        "UPDATE control SET epoch = epoch + 1",
        "INSERT INTO denial VALUES ('a', 'b')",
    )
    roles.may_not(
        "governor",
        _event("ApprovalGranted", xid="'3'"),
        "INSERT INTO event_seq VALUES (1, '1', 1, '')",
        "UPDATE sequencer SET holder = 'me'",
        "UPDATE meta SET value = '9'",
    )


def test_each_role_does_its_real_work_with_its_own_rights(roles: Roles, tmp_path: Path) -> None:
    identifier, other = roles.granted
    worker = PostgresLedger.open(roles.logins["worker"], SystemClock())
    bench = Workbench(worker, tmp_path)
    bench.serve(identifier)
    assert not bench.has_failed
    with worker.read() as view:
        stream = invocation_stream(identifier)
        types = [event.type for event in view.events([stream])[stream]]
        assert view.heads([stream])[stream].phase == "done"
    assert types[-2:] == ["ToolExecutionStarted", "ToolExecutionCompleted"]
    for count in (1, 2):  # the first begins the stream, the second moves it
        violation = SandboxViolation(violation="egress", detail=str(count))
        note = new_event(violation, cause="claim:n", actor="worker")
        with worker.write() as transaction:
            transaction.append([evidence_append(identifier, [note], StageKey("default", "a", "default"))])
        with worker.read() as view:
            assert len(view.events([evidence_stream(identifier)])[evidence_stream(identifier)]) == count
    bench.spool.close()
    worker.close()

    scheduler = PostgresLedger.open(roles.logins["scheduler"], SystemClock())
    sequencer = PostgresSequencer(scheduler, "scheduler-1")
    while sequencer.sequence():
        pass
    sequencer.close()
    scheduler.close()

    reader = PostgresLedger.open(roles.logins["projector"], SystemClock(), read_only=True)
    projection = PostgresProjection.open(roles.logins["projector"])
    with reader.read() as view:
        events = view.range(0, 100)
    assert ToolProjector(projection, reader.info.incarnation).apply(events) is not None
    projection.close()
    shown = PostgresProjection.open(roles.logins["reader"], read_only=True)
    assert shown.records([identifier])[identifier].status == "COMPLETED"
    assert shown.records([other])[other].status == "REQUESTED"
    shown.close()
    reader.close()

    governor = PostgresLedger.open(roles.logins["governor"], SystemClock())
    grant(governor, Ed25519Signer.from_bytes(KEY), [Asked(tools()["echo"], {"value": "again"})])
    put_contracts(governor, list(tools().values()))
    governor.close()

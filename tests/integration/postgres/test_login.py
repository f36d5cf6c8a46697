"""The account of the containers, made by the very command that docker-compose.yml runs after `migrate`."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from governance.adapters.migration import upgrade
from governance.adapters.postgres_ledger import PostgresLedger
from interlock.clock import SystemClock
from tests.support.compose import compose_file
from tests.support.ledger import an_append, write
from tests.support.postgres import find_binaries
from tests.support.postgres import postgres as postgres
from tests.support.postgres import postgres_url as postgres_url
from tests.support.source import ROOT
from workers.adapters.postgres_projection import PostgresProjection


@pytest.fixture
def login(postgres_url: str) -> Iterator[str]:
    """The address of a migrated database for that account."""
    upgrade(postgres_url)
    PostgresProjection.open(postgres_url).close()
    service = compose_file()["services"]["rights"]
    folder = service["volumes"][0].split(":")[0]
    command = [word.replace("/deploy/", f"{ROOT / folder}/") for word in service["command"]]
    psql = find_binaries()
    assert psql is not None
    password = secrets.token_hex(8) + "'$"
    for _ in "ab":  # again at any time
        subprocess.run(
            [str(psql / command[0]), *command[1:], postgres_url],
            env={"LEDGER_PASSWORD": password, "PATH": os.environ["PATH"]},
            check=True,
        )
    yield postgres_url.replace("interlock@", "interlock_app@")
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("DROP ROLE interlock_app")


def test_the_account_of_the_containers_does_the_work_and_defines_nothing(login: str) -> None:
    with closing(PostgresLedger.open(login, SystemClock(), create=True)) as ledger:
        write(ledger, an_append("i-1"))
    PostgresProjection.open(login).close()
    with psycopg.connect(login, autocommit=True) as connection:
        for statement in ("CREATE TABLE public.mine (n integer)", "TRUNCATE tool_event", "DROP TABLE head"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())

"""The tests' own server: what it keeps through a kill, and that nothing of it outlives its parent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gateway.embedded import kernel
from tests.support.postgres import PostgresServer, postgres_server

ROOT = Path(__file__).parents[3]
PARENT = """
import os, sys
from tests.support.postgres import postgres_server
with postgres_server() as server:
    print(os.getpid(), server.pid, server.data, flush=True)
    if sys.argv[1] == "frozen":
        server.pause()
    print("ready", flush=True)
    sys.stdin.read()
"""
ADOPTER = f"""
import os, subprocess, sys
from gateway.embedded import kernel
kernel.adopt_orphans()
subprocess.Popen([sys.executable, "-c", {PARENT!r}, sys.argv[1]])
try:
    while True:
        os.waitpid(-1, 0)
except ChildProcessError:
    os._exit(0)
"""


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server to be killed and frozen, which the run's one is not."""
    with postgres_server() as server:
        yield server


def _one(url: str, statement: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return str(row[0])


def test_nothing_that_durability_rests_on_is_off(postgres: PostgresServer) -> None:
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert _one(postgres.url(), f"SHOW {name}") == "on"


def test_a_fresh_database_holds_what_its_template_holds_and_is_gone_afterwards(
    postgres: PostgresServer,
) -> None:
    def prepare(url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept (n int)")

    name = postgres.template("template_of_this_test", prepare)
    with postgres.database(name) as url, psycopg.connect(url) as still_connected:
        still_connected.execute("INSERT INTO kept VALUES (1)")
        with postgres.database(name) as other:
            assert other != url
            assert _one(other, "SELECT count(*) FROM kept") == "0"
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)
    postgres.drop(name)


def test_what_was_committed_survives_a_kill_of_every_process(own: PostgresServer) -> None:
    with psycopg.connect(own.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    port = own.port
    own.kill()
    own.start()
    assert _one(own.url(), "SELECT n FROM kept") == "7"
    own.restart()
    assert _one(own.url(), "SELECT n FROM kept") == "7"
    assert own.port == port


def test_a_frozen_server_answers_nothing_until_it_goes_on(own: PostgresServer) -> None:
    with psycopg.connect(own.url(), autocommit=True) as connection:
        with own.paused(), pytest.raises(psycopg.OperationalError, match="timeout"):
            psycopg.connect(own.url(), connect_timeout=2)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_port_asks_for_a_password_and_the_socket_for_none(postgres: PostgresServer) -> None:
    assert _one(postgres.tcp_url(), "SELECT current_user") == "interlock"
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://interlock@127.0.0.1:{postgres.port}/postgres")


@pytest.mark.parametrize("how", ["running", "frozen"])
def test_nothing_outlives_a_parent_that_is_killed(how: str) -> None:
    # Whoever adopts what is left is in the session of the killed parent: nothing there becomes an orphan.
    adopter = subprocess.Popen(
        [sys.executable, "-c", ADOPTER, how],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with adopter:
        assert adopter.stdout is not None
        parent, pid, data = adopter.stdout.readline().split()
        assert adopter.stdout.readline() == "ready\n"
        family = [found for found in map(kernel.identify, (int(pid), *kernel.descendants(int(pid)))) if found]
        segment = (Path(data) / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6].split()[1]
        assert len(family) > 1
        os.kill(int(parent), signal.SIGKILL)
        try:
            assert adopter.wait(60) == 0  # nothing is left that it could wait for
        finally:
            left = [identity for identity in family if kernel.is_alive(identity)]
            for identity in left:
                os.kill(identity.pid, signal.SIGKILL)
            adopter.kill()
            shutil.rmtree(Path(data).parents[1])  # all that a killed parent leaves
        assert left == []
    assert segment not in {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}

"""The database server itself is ended, frozen and away, and answers get lost: nothing is lost or doubled."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.support.calling import Traffic, shell
from tests.support.crashing import ONE, hurt_system, settle
from tests.support.cutting import cutting
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.store import fresh_database
from tests.support.wait import until

LEASE_SECONDS = 2.0
AWAY_SECONDS = 3.0
CUTS = 10


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of these tests' own, to be hurt."""
    with postgres_server() as server:
        yield server


def more_calls(traffic: Traffic, count: int) -> None:
    before = len(traffic.calls)
    until(lambda: len(traffic.calls) >= before + count, 30, f"{count} further calls")


def wait(seconds: float) -> None:
    began = time.monotonic()
    until(lambda: time.monotonic() - began >= seconds, seconds + 5, "some time passed")


def test_a_server_that_is_killed_and_one_that_is_away_lose_nothing_and_nobody(
    server: PostgresServer, rng: random.Random
) -> None:
    with (
        fresh_database(server.url()) as url,
        hurt_system(rng, ledger_url=url) as (system, traffic),
    ):
        more_calls(traffic, 10)
        server.kill()
        server.start()
        more_calls(traffic, 10)
        server.stop()
        wait(AWAY_SECONDS)
        accepted = [call for call in traffic.calls if call.code]
        server.start()
        more_calls(traffic, 10)
        assert settle(system, traffic) == []
        assert system.faulted_pids() == set()  # so that a claim given up would have been a finding
        assert accepted == []


def test_a_server_that_stands_still_for_longer_than_a_lease_costs_nobody_its_claim(
    server: PostgresServer, rng: random.Random
) -> None:
    with (
        fresh_database(server.url()) as url,
        hurt_system(rng, replicas=ONE, ledger_url=url) as (system, traffic),
    ):
        more_calls(traffic, 10)
        traffic.send([shell("one", "slow", seconds=0.5), shell("two", "slow", seconds=0.5)])
        with server.paused():
            wait(2 * LEASE_SECONDS)
        more_calls(traffic, 10)
        assert settle(system, traffic) == []
        assert system.faulted_pids() == set()


def test_commits_whose_answers_are_lost_are_neither_lost_nor_doubled(
    server: PostgresServer, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_database(server.tcp_url()) as url, cutting(server.port, rng) as proxy:
        # A directory does not note a password: whoever reads beside the system brings it along.
        monkeypatch.setenv("PGPASSWORD", url.partition("@")[0].rpartition(":")[2])
        through = url.replace(f":{server.port}/", f":{proxy.port}/")
        with hurt_system(rng, ledger_url=through) as (system, traffic):
            proxy.is_cutting.set()
            until(lambda: proxy.cuts >= CUTS, 40, f"{CUTS} answers were lost")
            proxy.is_cutting.clear()
            more_calls(traffic, 5)
            # Who lost an answer may have given its claim up, as somebody whose process was ended would.
            system.faulted |= set(system.roles().values())
            assert settle(system, traffic) == []
            print(f"{proxy.cuts} answers were lost")


def test_a_start_without_its_server_says_so_in_one_line_and_starts_nothing(
    server: PostgresServer, rng: random.Random
) -> None:
    with (
        fresh_database(server.url()) as url,
        hurt_system(rng, producers=0, replicas=ONE, ledger_url=url) as (system, _),
    ):
        system.stop()
        server.stop()
        system.start(wait=False)
        assert system.process is not None
        assert system.process.wait(60) == 1
        said = system.directory.path.with_name("up.log").read_text()
        [line] = [line for line in said.splitlines() if "LEDGER_UNAVAILABLE" in line]
        assert "Traceback" not in said
        assert line.startswith("LEDGER_UNAVAILABLE: ")
        until(lambda: not system.pids(), 30, "nothing of it lives")
        server.start()
        system.start()
        assert system.all_ready()

"""The whole system is killed in mid-work: nothing of it lives on, and the next start finishes everything."""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.calling import shell
from tests.support.crashing import fire_all, hurt_system, settle
from tests.support.postgres import postgres_server
from tests.support.running import RunningSystem
from tests.support.store import fresh_database
from tests.support.wait import until

GONE_SECONDS = 2.0
AWAY_SECONDS = 3.0
LEASE_SECONDS = 2.0
LOST_ON_RESTART = (
    "propose.after_commit",  # the row is there, nothing was published
    "propose.after_publish",
    "vote.after_commit",  # between an approval and what follows
    "grant.after_commit",
    "run.before_effect",  # while running
    "run.after_effect",  # between execution and receipt
)


def kill_whole(system: RunningSystem) -> None:
    """Kill `up`; within two seconds nothing of it lives."""
    before = system.pids()
    assert len(before) > 8
    system.kill()
    until(lambda: not system.pids(), GONE_SECONDS, "every process that it started is gone")


def test_up_killed_in_mid_work_leaves_nothing_and_starts_again_at_once(rng: random.Random) -> None:
    with hurt_system(rng) as (system, traffic):
        for _ in range(2):
            traffic.send([shell("one", "slow", seconds=0.5)])
            kill_whole(system)
            began = time.monotonic()
            system.start()
            assert time.monotonic() - began < 10  # one and a half on an idle machine
        assert settle(system, traffic) == []


@pytest.mark.sqlite
def test_what_a_crash_left_half_done_is_finished_after_two_restarts_without_a_ledger(
    rng: random.Random,
) -> None:
    """Case QUE-02, under load, with two of each."""
    with hurt_system(rng, plan=[f"{point}:2:kill" for point in LOST_ON_RESTART]) as (system, traffic):
        fire_all(system, len(LOST_ON_RESTART))
        kill_whole(system)
        with ledger_away(system, AWAY_SECONDS):
            system.start(wait=False, faults=False)
        assert not system.directory.ready_file.exists()
        system.wait_ready()
        kill_whole(system)
        system.start(faults=False)
        assert settle(system, traffic) == []


def test_the_same_on_a_server_that_is_away_at_one_start_and_dies_in_the_next(rng: random.Random) -> None:
    """Case QUE-02 on PostgreSQL, under load, with two of each."""
    plan = [f"{point}:2:kill" for point in LOST_ON_RESTART]
    with (
        postgres_server() as server,
        fresh_database(server.url()) as url,
        hurt_system(rng, plan=plan, ledger_url=url) as (system, traffic),
    ):
        fire_all(system, len(LOST_ON_RESTART))
        kill_whole(system)
        server.stop()
        system.start(wait=False, faults=False)
        assert system.process is not None
        assert system.process.wait(60) == 1  # and whoever supervises it starts it again
        server.start()
        system.start(faults=False)
        server.kill()
        began = time.monotonic()
        until(lambda: time.monotonic() - began >= AWAY_SECONDS, 30, "the server was away")
        server.start()
        kill_whole(system)
        system.start(faults=False)
        assert settle(system, traffic) == []


@pytest.mark.sqlite
def test_a_ledger_that_takes_no_writes_for_longer_than_a_lease_costs_nobody_its_claim(
    rng: random.Random,
) -> None:
    with hurt_system(rng) as (system, traffic):
        traffic.send([shell("one", "slow", seconds=0.5), shell("two", "slow", seconds=0.5)])
        with ledger_away(system, 2 * LEASE_SECONDS):
            pass
        assert settle(system, traffic) == []
        assert system.faulted_pids() == set()  # so that a claim given up would have been a finding


@contextmanager
def ledger_away(system: RunningSystem, seconds: float) -> Iterator[None]:
    """Nobody can write the ledger for so long: its turn is taken and not given back."""
    descriptor = os.open(system.directory.ledger_lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        began = time.monotonic()
        yield
        until(lambda: time.monotonic() - began >= seconds, seconds + 5, "the ledger was away")
    finally:
        os.close(descriptor)

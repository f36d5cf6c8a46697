"""Each process is ended or stopped from outside while work flows; the broker is ended and emptied."""

from __future__ import annotations

import fcntl
import os
import random
import signal
from contextlib import closing
from typing import BinaryIO

from gateway.reading import LedgerOutcomes, open_reading
from interlock.adapters.celery_hints import CeleryHintPublisher
from interlock.adapters.redis_client import connect
from interlock.adapters.redis_stream import RedisEventStream
from interlock.errors import BrokerUnavailableError
from interlock.hint import Hint
from tests.support.calling import BEGUN, Call, Fate, Traffic, shell
from tests.support.checker import check
from tests.support.crashing import ONE, hurt_system, settle
from tests.support.effects import effects_of
from tests.support.quiet import wait_until_quiet
from tests.support.running import RunningSystem
from tests.support.store import wanted
from tests.support.wait import until


def more_calls(traffic: Traffic, count: int) -> None:
    """Until so many further calls were answered."""
    before = len(traffic.calls)
    until(lambda: len(traffic.calls) >= before + count, 30, f"{count} further calls")


def test_each_process_killed_from_outside(rng: random.Random) -> None:
    with hurt_system(rng) as (system, traffic):
        for name in sorted(system.roles()):
            if name != "broker":
                more_calls(traffic, 2)
                system.wait_restarted(name, system.kill_role(name))
        for name in ("pool-shell", "pool-fs"):
            kill_below(system, name)
        assert settle(system, traffic) == []


def kill_below(system: RunningSystem, name: str) -> None:
    """End a pool's supervisors, then its spawner, while a call runs."""
    until(system.all_ready, 20, "all roles serve")  # before, a pool has only a spawner to try itself with
    pool = system.roles()[name]
    [spawner] = system.children(pool)
    for supervisor in system.children(spawner):
        os.kill(supervisor, signal.SIGKILL)
    # Without its spawner a pool can serve no more: it ends itself, and that is a fault of ours.
    system.faulted |= {pool, spawner}
    os.kill(spawner, signal.SIGKILL)
    system.wait_restarted(name, pool)


def test_a_broker_that_is_killed_and_emptied_loses_and_doubles_nothing(rng: random.Random) -> None:
    with hurt_system(rng) as (system, traffic):
        for _ in range(2):
            more_calls(traffic, 5)
            system.wait_restarted("broker", system.kill_role("broker"))
            more_calls(traffic, 5)
            empty(system)
        traffic.close()
        wait_until_quiet(system.directory, traffic.calls)
        url = system.directory.broker_client_url
        with closing(connect(url)) as client, closing(connect(url, blocking=True)) as waiting:
            stream = RedisEventStream(client, waiting)
            assert check(system.directory, traffic.calls, system.faulted_pids(), stream=stream) == []


def empty(system: RunningSystem) -> None:
    """Empty the broker, as soon as it is there."""

    def is_emptied() -> bool:
        try:
            with closing(connect(system.directory.broker_client_url)) as client:
                return bool(client.flushall())
        except Exception:  # noqa: BLE001 - it is being started
            return False

    until(is_emptied, 30, "the broker is emptied")


def test_one_hint_delivered_ten_times_at_once_runs_once(rng: random.Random) -> None:
    with hurt_system(rng, producers=1) as (system, traffic):
        calls = [shell("one", f"many-{place}", seconds=0.2) for place in range(4)]
        publisher = CeleryHintPublisher(system.directory.broker_url)
        for call in calls:
            traffic.send([call])
            deliver(publisher, call, 10)
        assert all(call.fate is Fate.OK for call in calls)
        assert settle(system, traffic) == []


def deliver(publisher: CeleryHintPublisher, call: Call, times: int) -> None:
    """The same hint, many times."""
    try:
        publisher.publish([Hint("shell", (call.id,))] * times)
    except BrokerUnavailableError as error:
        raise AssertionError("the broker was left alone") from error


def test_a_pool_stopped_past_its_lease_and_woken_runs_nothing_twice(rng: random.Random) -> None:
    with hurt_system(rng, replicas=ONE) as (system, traffic):
        more_calls(traffic, 5)
        running = shell("one", "long", seconds=1.5)
        traffic.close()
        traffic.send([running])
        until((system.directory.workspaces / "one" / f"{BEGUN}{running.nonce}").exists, 15, "it runs")
        pool = stop_role(system, "pool-shell")
        until(lambda: phase_of(system, running) == "reconciliation_required", 15, "its lease ran out")
        until(lambda: effects_of(system.directory.workspaces)[running.nonce], 15, "its effect happened")
        os.kill(pool, signal.SIGCONT)
        until(lambda: phase_of(system, running) == "done", 15, "its own late outcome settles it")
        assert settle(system, traffic) == []


def stop_role(system: RunningSystem, name: str) -> int:
    """Stop a role's process where it does not have the ledger's turn: that would stop everybody.

    Where the ledger is a server's, it has its sessions end that stand still in a transaction.
    """
    if wanted() != "sqlite":
        return system.kill_role(name, signal.SIGSTOP)
    while True:
        pid = system.kill_role(name, signal.SIGSTOP)
        with open(system.directory.ledger_lock, "rb") as lock:
            try:
                until(lambda: has_turn(lock), 0.3, "the ledger's turn")
            except AssertionError:
                os.kill(pid, signal.SIGCONT)
            else:
                return pid


def has_turn(lock: BinaryIO) -> bool:
    """Whether it is this process's turn now to write the ledger."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def phase_of(system: RunningSystem, call: Call) -> str:
    """Where a call stands."""
    with open_reading(system.directory) as reading:
        heads = LedgerOutcomes(reading.ledger).heads([call.id])
    return heads[call.id].phase if heads else ""

"""The pure pool: a real Celery worker, a real broker, a real ledger."""

from __future__ import annotations

import os
import signal

from tests.integration.pool.system import PoolSystem
from tests.support.permitted import body_of, types_of
from tests.support.wait import until

RUN_ONCE = [
    "ToolInvocationRequested",
    "ApprovalGranted",
    "ToolExecutionStarted",
    "ToolExecutionCompleted",
]


def boots_of(system: PoolSystem) -> list[bool]:
    return [lock.exists() for lock in system.directory.boots.iterdir()]


def test_a_hint_becomes_an_outcome_and_the_pool_ends_cleanly(system: PoolSystem) -> None:
    pool = system.start_pool("pure")
    identifier = system.ask("echo", {"value": {"n": 1}})
    system.publish("pure", identifier)
    assert system.outcome(identifier) == "done"
    assert types_of(system.ledger, identifier) == RUN_ONCE
    receipt = body_of(system.ledger, identifier, "ToolExecutionCompleted")["sealed"]["receipt"]
    assert receipt["structured_output"] == {"value": {"n": 1}}
    with system.ledger.read() as view:
        [boot] = view.boots()
    assert (boot.role, boot.pid) == ("pool.pure", pool.pid)
    assert system.end(pool) == 0
    assert boots_of(system) == []
    with system.ledger.read() as view:
        assert view.boots() == []


def test_celerys_command_line_alone_serves(system: PoolSystem) -> None:
    identifier = system.ask("echo", {"value": 1})
    system.publish("pure", identifier)
    worker = system.start_celery("-Q", "interlock.pool.pure", "-P", "prefork", "-c", "7", "-E")
    assert system.outcome(identifier) == "done"
    assert system.end(worker) == 0


def test_celerys_command_line_serves_exactly_one_pool(system: PoolSystem) -> None:
    for queues in ("interlock.pool.pure,interlock.pool.fs", "celery"):
        worker = system.start_celery("-Q", queues)
        assert worker.wait(30) != 0


def test_the_same_hint_ten_times_at_two_pools_runs_once(system: PoolSystem) -> None:
    identifiers = [system.ask("echo", {"value": n}, stage=f"g{n}") for n in range(20)]
    for _ in range(10):
        for identifier in identifiers:
            system.publish("pure", identifier)
    for _ in range(2):
        system.start_pool("pure")
    for identifier in identifiers:
        system.outcome(identifier)
    until(lambda: system.publisher.queue_length("pure") == 0, 15, "every hint is taken")
    assert all(types_of(system.ledger, identifier) == RUN_ONCE for identifier in identifiers)


def test_a_broker_that_was_killed_and_came_back_is_consumed_again(system: PoolSystem) -> None:
    system.start_pool("pure")
    first = system.ask("echo", {"value": 1})
    system.publish("pure", first)
    system.outcome(first)
    for round_ in range(2):
        system.broker.kill()
        system.broker.start()
        again = system.ask("echo", {"value": round_}, stage=f"again{round_}")
        system.publish("pure", again)
        assert system.outcome(again) == "done"


def test_a_pool_that_was_killed_leaves_its_lock_free(system: PoolSystem) -> None:
    from workers.lease import is_boot_alive

    pool = system.start_pool("pure")
    with system.ledger.read() as view:
        [boot] = view.boots()
    assert is_boot_alive(system.directory.boots, boot.boot_id)
    system.end(pool, signal.SIGKILL)
    assert not is_boot_alive(system.directory.boots, boot.boot_id)
    with system.ledger.read() as view:
        assert [left.boot_id for left in view.boots()] == [boot.boot_id]


def test_a_pool_survives_hints_that_are_none(system: PoolSystem) -> None:
    pool = system.start_pool("pure")
    client = system.broker.client()
    for item in (b"no json", b"{}", b"[]", os.urandom(64)):
        client.lpush("interlock.pool.pure", item)
    identifier = system.ask("echo", {"value": 1})
    system.publish("pure", identifier, "no-such-id", identifier)
    assert system.outcome(identifier) == "done"
    assert pool.poll() is None

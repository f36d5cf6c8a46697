"""What no caller should send, and a world that is not as it should be: refused by code, or waited out."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from redis import Redis
from redis.exceptions import RedisError

from gateway.reading import open_reading
from interlock.adapters.celery_wire import encode_task
from interlock.adapters.redis_client import connect
from interlock.answer import Answer, read_answer
from interlock.event import StoredEvent
from interlock.identifier import new_id
from interlock.proposal import PROPOSE_QUEUE, PROPOSE_TASK, REPLY_PREFIX
from tests.support.calling import Fate, Traffic, echo, shell
from tests.support.crashing import ONE, hurt_system, settle
from tests.support.running import REPO, RunningSystem
from tests.support.wait import until

HUGE_BYTES = 50 * 2**20
DEPTH = 10_000
TWO_HOURS_S = 7_200


@pytest.fixture
def quiet(rng: random.Random) -> Iterator[tuple[RunningSystem, Traffic]]:
    """A running system without traffic of its own."""
    with hurt_system(rng, producers=0, replicas=ONE) as (system, traffic):
        yield system, traffic


def proposed(client: Redis, arguments: str, tool: str = "echo") -> Answer:
    """The answer to a proposal whose arguments are this text."""
    identifier = new_id()
    reply_to = REPLY_PREFIX + identifier
    text = f'{{"id":"{identifier}","tool":"{tool}","session":"one","arguments":{arguments}}}'
    item = encode_task(
        PROPOSE_TASK, text.encode(), queue=PROPOSE_QUEUE, task_id=identifier, reply_to=reply_to
    )
    client.lpush(PROPOSE_QUEUE, item)
    found: list[bytes] = []

    def is_answered() -> bool:
        said = client.rpop(reply_to)
        found.extend([said] if isinstance(said, bytes) else [])
        return bool(found)

    until(is_answered, 30, "it is answered")
    return read_answer(found[0])


def dead_letters(system: RunningSystem) -> list[StoredEvent]:
    with open_reading(system.directory) as reading, reading.ledger.read() as view:
        return [event for event in view.range(0, 100_000) if event.type == "DeadLettered"]


def require_unharmed(system: RunningSystem, traffic: Traffic, roles: dict[str, int]) -> None:
    """A good call works, every process is the one it was, and the checker finds nothing."""
    [good] = traffic.send([shell("one", "good")])
    assert good.fate is Fate.OK
    assert settle(system, traffic) == []
    assert system.roles() == roles


def test_bad_proposals_are_refused_by_their_codes(quiet: tuple[RunningSystem, Traffic]) -> None:
    system, traffic = quiet
    roles = system.roles()
    with closing(connect(system.directory.broker_client_url)) as client:
        codes = {
            "unknown tool": proposed(client, '{"value":1}', tool="no.such.tool").code,
            "NaN": proposed(client, '{"value":NaN}').code,
            "deep": proposed(client, '{"value":' + "[" * DEPTH + "]" * DEPTH + "}").code,
            "half": proposed(client, '{"value":').code,
            "twice": proposed(client, '{"value":1,"value":2}').code,
            "no object": proposed(client, "[1]").code,
        }
    assert codes == {
        "unknown tool": "UNKNOWN_TOOL",
        "NaN": "JSON_NOT_FINITE",
        "deep": "JSON_DEPTH",
        "half": "JSON_SYNTAX",
        "twice": "JSON_DUPLICATE_KEY",
        "no object": "ARGUMENTS_NOT_OBJECT",
    }
    require_unharmed(system, traffic, roles)


def test_what_is_no_message_becomes_a_dead_letter(quiet: tuple[RunningSystem, Traffic]) -> None:
    system, traffic = quiet
    roles = system.roles()
    items = [b"no JSON at all", b"\xff\x00\xfe", b"[" * DEPTH, b"{}", json.dumps({"body": 1}).encode(), b""]
    with closing(connect(system.directory.broker_client_url)) as client:
        client.lpush(PROPOSE_QUEUE, *items)
        client.lpush("interlock.decide", *items)
        client.lpush("interlock.pool.pure", b"no JSON at all")
    until(lambda: len(dead_letters(system)) >= 2 * len(items), 15, "they are recorded as dead letters")
    require_unharmed(system, traffic, roles)


def test_a_huge_item_is_refused_at_the_broker_or_becomes_a_dead_letter(
    quiet: tuple[RunningSystem, Traffic],
) -> None:
    system, traffic = quiet
    roles = system.roles()
    with closing(connect(system.directory.broker_client_url)) as client:
        try:
            client.lpush(PROPOSE_QUEUE, b"x" * HUGE_BYTES)
            until(lambda: len(dead_letters(system)) == 1, 15, "it is recorded as a dead letter")
        except (RedisError, OSError) as error:
            print(f"refused: {error}")
    require_unharmed(system, traffic, roles)


def test_a_pool_whose_clock_is_two_hours_off_is_not_taken_for_dead(
    quiet: tuple[RunningSystem, Traffic],
) -> None:
    system, traffic = quiet
    with skewed_role(system, "pool-shell"):
        traffic.send([shell("one", f"skewed-{place}", seconds=0.3) for place in range(8)])
        traffic.send([echo("one", "skewed")])
        assert settle(system, traffic) == []
        assert len(set(receipt_hours(system))) == 2  # so it did its share, and its clock was wrong


def receipt_hours(system: RunningSystem) -> Iterator[int]:
    """The hours that the pools put on their receipts, by their own clocks."""
    with open_reading(system.directory) as reading, reading.ledger.read() as view:
        for event in view.range(0, 100_000):
            if event.type == "ToolExecutionCompleted":
                yield round((event.body()["sealed"]["receipt"]["timestamp_us"] - event.at_us) / 3.6e9)


@contextmanager
def skewed_role(system: RunningSystem, role: str) -> Iterator[None]:
    """A second process of a role, two hours ahead of everybody else; it does its share."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gateway.cli.main",
            "run",
            *role.split("-"),
            "--data",
            str(system.directory.path),
        ],
        env={**os.environ, **system.environment, "INTERLOCK_CLOCK_OFFSET_S": str(TWO_HOURS_S)},
        cwd=REPO,
    )
    try:
        until(lambda: len(boots_of(system, "pool.shell")) == 2, 15, "both pools beat")
        yield
    finally:
        process.terminate()
        process.wait(60)


def boots_of(system: RunningSystem, role: str) -> list[int]:
    with open_reading(system.directory) as reading, reading.ledger.read() as view:
        return [boot.pid for boot in view.boots() if boot.role == role]

"""What a process waits for in the broker ends when it stops, and nobody else's waits do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from governance.adapters.redis_intake import RedisIntake
from interlock.adapters.redis_client import connect, end_waits
from interlock.adapters.redis_waker import RedisWaker
from interlock.proposal import PROPOSE_QUEUE
from tests.support.valkey import ValkeyServer
from tests.support.wait import until

LONG_SECONDS = 600.0
OURS, THEIRS = "interlock:here:1", "interlock:here:2"


@pytest.fixture
def waiting(server: ValkeyServer) -> Iterator[Redis]:
    client = connect(server.url, blocking=True, name=OURS)
    yield client
    client.close()


def take(broker: Redis, waiting: Redis) -> None:
    intake = RedisIntake(broker, waiting, boot="b", queues=(PROPOSE_QUEUE,))
    assert intake.take(9, LONG_SECONDS).items == ()


def wait_for_a_wake(broker: Redis, waiting: Redis) -> None:
    assert not RedisWaker(broker, waiting).wait("nobody", LONG_SECONDS)


def read_a_stream(_broker: Redis, waiting: Redis) -> None:
    assert not waiting.xread({"nothing": "$"}, block=int(LONG_SECONDS * 1000))


def blocked(broker: Redis, name: str) -> bool:
    """Whether it waits in a command, or to be told of a change."""
    return any(each["name"] == name and set("bt") & set(each["flags"]) for each in broker.client_list())


@pytest.mark.parametrize("wait", [take, wait_for_a_wake, read_a_stream])
def test_a_wait_ends_as_if_its_time_had_run_out(
    wait: Callable[[Redis, Redis], None], server: ValkeyServer, broker: Redis, waiting: Redis
) -> None:
    ended = threading.Event()

    def run() -> None:
        wait(broker, waiting)
        ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: blocked(broker, OURS), 30, "it waits")

    def ends() -> bool:
        end_waits(broker, OURS)
        return ended.is_set()

    until(ends, 30, "the wait is over")
    thread.join()


def test_what_another_process_waits_for_goes_on(server: ValkeyServer, broker: Redis, waiting: Redis) -> None:
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(waiting.blpop(["list"], timeout=LONG_SECONDS)))
    thread.start()
    until(lambda: blocked(broker, OURS), 30, "it waits")
    end_waits(broker, THEIRS)
    broker.lpush("list", b"x")
    thread.join()
    assert got == [(b"list", b"x")]

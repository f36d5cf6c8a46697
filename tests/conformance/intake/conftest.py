"""Every intake the suite is asked of: several intakes over one broker, emptied before each test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest
from redis import Redis

from governance.adapters.redis_intake import INDEX, PRIORITY_SUFFIXES, RedisIntake
from governance.intake import InMemoryBroker, InMemoryIntake, IntakeQueue
from interlock.answer import Answer, read_answer
from tests.support.valkey import ValkeyServer

QUEUES = ("interlock.propose", "interlock.propose.shop")
TAKE_SIZE_MAX = 1_000
Own = Callable[[], Sequence[str]]


class Bench(Protocol):
    """A broker as the suite sees it."""

    def intake(self, boot: str, queues: tuple[str, ...] = QUEUES, own_queues: Own = tuple) -> IntakeQueue: ...
    def put(self, raw: bytes, queue: str = QUEUES[0]) -> None: ...
    def waiting(self) -> int: ...
    def kept(self) -> int: ...
    def replies(self, name: str) -> list[Answer]: ...


class MemoryBench:
    """The broker in memory."""

    def __init__(self) -> None:
        self._broker = InMemoryBroker()

    def intake(self, boot: str, queues: tuple[str, ...] = QUEUES, own_queues: Own = tuple) -> IntakeQueue:
        return InMemoryIntake(
            self._broker, boot=boot, queues=queues, own_queues=own_queues, take_size_max=TAKE_SIZE_MAX
        )

    def put(self, raw: bytes, queue: str = QUEUES[0]) -> None:
        self._broker.put(queue, raw)

    def waiting(self) -> int:
        return sum(map(len, self._broker.queues.values()))

    def kept(self) -> int:
        return sum(len(kept.items) for kept in self._broker.kept.values())

    def replies(self, name: str) -> list[Answer]:
        return self._broker.replies.get(name, [])


class ValkeyBench:
    """A real server."""

    def __init__(self, server: ValkeyServer) -> None:
        self._server = server
        self._client: Redis = server.client()
        self._client.flushall()

    def intake(self, boot: str, queues: tuple[str, ...] = QUEUES, own_queues: Own = tuple) -> IntakeQueue:
        return RedisIntake(
            self._client,
            self._server.client(blocking=True),
            boot=boot,
            queues=queues,
            own_queues=own_queues,
            take_size_max=TAKE_SIZE_MAX,
            look_seconds=0,
        )

    def put(self, raw: bytes, queue: str = QUEUES[0]) -> None:
        self._client.lpush(queue, raw)

    def waiting(self) -> int:
        return sum(self._client.llen(queue + suffix) for queue in QUEUES for suffix in PRIORITY_SUFFIXES)

    def kept(self) -> int:
        names = [f"{INDEX}:{_bytes(field).decode()}" for field in self._client.hkeys(INDEX)]
        assert len(names) == len(list(self._client.scan_iter(f"{INDEX}:*")))
        return sum(self._client.llen(name) for name in names)

    def replies(self, name: str) -> list[Answer]:
        return [read_answer(_bytes(data)) for data in reversed(self._client.lrange(name, 0, -1))]


def _bytes(value: bytes | str) -> bytes:
    assert isinstance(value, bytes)
    return value


@pytest.fixture(params=["memory", "valkey"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "memory":
        return MemoryBench()
    return ValkeyBench(request.getfixturevalue("server"))

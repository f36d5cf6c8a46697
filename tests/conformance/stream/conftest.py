"""Every stream the suite is asked of, emptied before each test; and every notice and waker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interlock.adapters.redis_stream import RedisEventStream, RedisProjectionNotice
from interlock.adapters.redis_waker import RedisWaker
from interlock.hint import Waker
from interlock.memory_stream import InMemoryEventStream, InMemoryProjectionNotice, ManualWaker
from interlock.stream import EventStream, ProjectionNotice
from tests.support.valkey import ValkeyServer

Lose = Callable[[], object]


@pytest.fixture(params=["memory", "valkey"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stream(kind: str, request: pytest.FixtureRequest) -> EventStream:
    if kind == "memory":
        return InMemoryEventStream()
    server: ValkeyServer = request.getfixturevalue("server")
    client = server.client()
    client.flushall()
    return RedisEventStream(client, server.client(blocking=True))


@pytest.fixture
def lose(kind: str, stream: EventStream, request: pytest.FixtureRequest) -> Lose:
    """Loses everything that the stream holds."""
    if isinstance(stream, InMemoryEventStream):
        return stream.lose
    server: ValkeyServer = request.getfixturevalue("server")
    return server.client().flushall


@pytest.fixture
def waker(kind: str, request: pytest.FixtureRequest) -> Waker:
    if kind == "memory":
        return ManualWaker()
    server: ValkeyServer = request.getfixturevalue("server")
    server.client().flushall()
    return RedisWaker(server.client(), server.client(blocking=True))


@pytest.fixture
def notice(kind: str, request: pytest.FixtureRequest) -> ProjectionNotice:
    if kind == "memory":
        return InMemoryProjectionNotice()
    server: ValkeyServer = request.getfixturevalue("server")
    server.client().flushall()
    return RedisProjectionNotice(server.client())

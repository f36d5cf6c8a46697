"""What only a real server can do to the stream: hands that tamper with it, other clients, lost scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.adapters.redis_client import connect
from interlock.adapters.redis_stream import RedisEventStream
from interlock.errors import BrokerUnavailableError
from interlock.event import StoredEvent
from interlock.memory_stream import ManualWaker
from interlock.stream import EMPTY, STREAM, StreamTail, entry_of, tail_at
from scheduler.relay import Relay
from tests.support.entry import an_entry, entries
from tests.support.history import append_lives
from tests.support.valkey import ValkeyServer
from tests.support.wait import until


@pytest.fixture
def client(server: ValkeyServer) -> Redis:
    return server.client()


@pytest.fixture
def stream(server: ValkeyServer, client: Redis) -> RedisEventStream:
    return RedisEventStream(client, server.client(blocking=True))


def _fields(client: Redis) -> dict[Any, Any]:
    """Names and values of the first entry, as they lie in the server."""
    answer: Any = client.xrange(STREAM, count=1)
    fields: dict[Any, Any] = answer[0][1]
    return fields


def _tamper_last(client: Redis) -> None:
    client.xdel(STREAM, "20-0")


def _tamper_all(client: Redis) -> None:
    client.xtrim(STREAM, maxlen=0)


def _tamper_foreign(client: Redis) -> None:
    client.xadd(STREAM, {"hello": "world"})


def _tamper_gone(client: Redis) -> None:
    client.delete(STREAM)


@pytest.mark.parametrize("tamper", [_tamper_last, _tamper_all, _tamper_foreign, _tamper_gone])
def test_a_stream_that_somebody_damaged_is_filled_again(
    tamper: Callable[[Redis], None], client: Redis, stream: RedisEventStream, ledger: SqliteLedger
) -> None:
    append_lives(ledger, 4)
    relay = Relay(ledger, stream, ManualWaker())
    assert relay.step() == 20
    tamper(client)
    append_lives(ledger, 1)
    until(lambda: relay.step() == 0 and stream.tail().seq == 25, seconds=30, what="the stream is level")
    assert [entry.seq for entry in stream.read(0, 100, 0)] == list(range(1, 26))


def test_an_entry_is_small_and_has_a_version_whatever_the_names(
    client: Redis, stream: RedisEventStream
) -> None:
    long = "é" * 5_000
    event = StoredEvent(1, "invocation", long, 1, long, 1, 5, "c", "a", long, long, True, b"{}", "a" * 64)
    stream.publish([entry_of(event, "i" * 36)], after=EMPTY)
    fields = _fields(client)
    assert sum(len(name) + len(value) for name, value in fields.items()) <= 1024
    assert fields[b"v"] == b"1"
    assert stream.read(0, 1, 0)[0].session.startswith("sha256:")


def test_what_is_no_entry_of_a_known_version_is_left_out(client: Redis, stream: RedisEventStream) -> None:
    stream.publish([an_entry(1)], after=EMPTY)
    client.xadd(STREAM, {**_fields(client), b"v": b"2"}, id="2-0")
    client.xadd(STREAM, {"hello": "world"}, id="3-0")
    assert stream.read(0, 10, 0) == [an_entry(1)]
    assert stream.tail() == StreamTail(3, "", "")


def test_scripts_that_the_server_forgot_are_sent_again(client: Redis, stream: RedisEventStream) -> None:
    stream.publish([an_entry(1)], after=EMPTY)
    client.script_flush()
    assert stream.publish([an_entry(2)], after=tail_at(an_entry(1))).seq == 2


def test_a_batch_of_thousands_is_one_command(stream: RedisEventStream) -> None:
    assert stream.publish(entries(1, 5_000), after=EMPTY).seq == 5_000


def test_every_way_to_write_the_address_reaches_the_same_server(server: ValkeyServer, client: Redis) -> None:
    client.set("here", 1)
    for url in (server.url, server.celery_url):
        other = connect(url)
        assert other.get("here") == b"1"
        other.close()


def test_a_server_that_is_gone_is_our_own_error(server: ValkeyServer, stream: RedisEventStream) -> None:
    server.kill()
    for call in (
        stream.tail,
        stream.slowest,
        lambda: stream.read(0, 1, 10),
        lambda: stream.register("r", 1, 1_000),
        lambda: stream.trim(entries_max=1),
        lambda: stream.publish([an_entry(1)], after=EMPTY),
        lambda: stream.restart(after=0, last=0),
    ):
        with pytest.raises(BrokerUnavailableError):
            call()


def test_a_server_that_refuses_writes_is_our_own_error(client: Redis, stream: RedisEventStream) -> None:
    client.set(STREAM, "no stream at all")
    with pytest.raises(BrokerUnavailableError):
        stream.tail()


def test_a_key_that_is_no_stream_is_set_aside(client: Redis, stream: RedisEventStream) -> None:
    client.set(STREAM, "x")
    with pytest.raises(BrokerUnavailableError):
        stream.tail()
    assert stream.tail() == EMPTY
    [aside] = client.keys(f"{STREAM}.bad.*")
    assert client.get(aside) == b"x"

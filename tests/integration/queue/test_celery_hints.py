"""Hints reach a pool's queue in the form a Celery worker runs, and a lost broker is said so in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Consumer, Queue
from redis import Redis

from interlock.adapters.celery_hints import CeleryHintPublisher
from interlock.adapters.celery_wire import Envelope, decode_task, encode_task
from interlock.errors import BrokerUnavailableError
from interlock.hint import RUN_TASK, Hint
from interlock.identifier import new_id
from interlock.tier import Pool
from tests.support.valkey import ValkeyServer, valkey_server
from tests.support.wait import until


@pytest.fixture
def publisher(server: ValkeyServer, broker: Redis) -> Iterator[CeleryHintPublisher]:
    publisher = CeleryHintPublisher(server.celery_url)
    yield publisher
    publisher.close()


def ids(count: int) -> tuple[str, ...]:
    return tuple(new_id() for _ in range(count))


def test_hints_are_small_messages_in_their_order(broker: Redis, publisher: CeleryHintPublisher) -> None:
    hints = [Hint("pure", ids(3)), Hint("shell", ids(1)), Hint("pure", ids(1))]
    publisher.publish(hints)
    publisher.publish([])
    raw = broker.lrange(Pool.PURE.queue, 0, -1)
    read = [decode_task(item) for item in reversed(raw) if isinstance(item, bytes)]
    for envelope, hint in zip(read, (hints[0], hints[2]), strict=True):
        assert isinstance(envelope, Envelope)
        assert (envelope.task, envelope.wants_result, envelope.refused_options) == (RUN_TASK, False, ())
        assert all(name.encode() in envelope.kwargs_json for name in hint.invocation_ids)
    assert max(map(len, raw)) < 700
    assert broker.llen(Pool.SHELL.queue) == 1


def test_the_ids_that_wait_are_counted(broker: Redis, publisher: CeleryHintPublisher) -> None:
    assert publisher.queued_ids() == {"pure": 0, "fs": 0, "shell": 0, "network": 0}
    publisher.publish([Hint("pure", ids(64)), Hint("pure", ids(10)), Hint("network", ids(1))])
    broker.lpush(Pool.FS.queue, b"something else")
    assert publisher.queued_ids() == {"pure": 74, "fs": 1, "shell": 0, "network": 1}
    assert publisher.queue_length("pure") == 2


def test_a_key_that_is_no_queue_is_set_aside(broker: Redis, publisher: CeleryHintPublisher) -> None:
    broker.set(Pool.PURE.queue, "x")
    with pytest.raises(BrokerUnavailableError):
        publisher.queued_ids()
    publisher.publish([Hint("pure", ids(1))])
    assert publisher.queue_length("pure") == 1
    assert len(broker.keys(f"{Pool.PURE.queue}.bad.*")) == 1


def test_the_ids_of_a_long_queue_are_estimated(publisher: CeleryHintPublisher) -> None:
    publisher.publish([Hint("pure", ids(2)) for _ in range(200)])
    assert publisher.queued_ids()["pure"] == 400


def test_a_celery_worker_runs_what_is_published_and_what_is_encoded(
    server: ValkeyServer, broker: Redis, publisher: CeleryHintPublisher
) -> None:
    """The bytes as kombu's consumer and Celery's request read them; the pool itself is tested elsewhere."""
    sent = ids(2)
    publisher.publish([Hint("pure", sent)])
    broker.lpush(
        Pool.PURE.queue,
        encode_task(RUN_TASK, b'{"ids":["\xc3\xa4"]}', queue=Pool.PURE.queue, task_id=new_id()),
    )
    app = Celery("pool", broker=server.celery_url, set_as_current=False)
    seen: list[Any] = []

    @app.task(name=RUN_TASK)
    def run(ids: list[str]) -> None:
        seen.append(ids)

    app.finalize()
    with Connection(server.celery_url, transport_options={"priority_steps": [0]}) as connection:
        queue = Queue(Pool.PURE.queue)

        def execute(message: Any) -> None:
            args, kwargs, _ = message.decode()
            app.tasks[message.headers["task"]].apply(args, kwargs, task_id=message.headers["id"]).get()
            message.ack()

        with Consumer(connection, [queue], on_message=execute, accept=["json"]):
            while len(seen) < 2:
                connection.drain_events(timeout=10)
    app.close()
    assert seen == [list(sent), ["ä"]]


def test_many_threads_publish_at_once(broker: Redis, publisher: CeleryHintPublisher) -> None:
    threads = [
        threading.Thread(target=publisher.publish, args=([Hint("fs", ids(1)) for _ in range(20)],))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publisher.queue_length("fs") == 160


def test_a_lost_broker_is_said_so_and_found_again(short_tmp_path: Path) -> None:
    with valkey_server(short_tmp_path) as server:
        publisher = CeleryHintPublisher(server.celery_url)
        publisher.publish([Hint("fs", ids(1))])
        server.stop()
        for _ in range(4):
            with pytest.raises(BrokerUnavailableError):
                publisher.publish([Hint("fs", ids(1))])
        with pytest.raises(BrokerUnavailableError):
            publisher.queued_ids()
        server.start()

        def published() -> bool:
            try:
                publisher.publish([Hint("fs", ids(1))])
            except BrokerUnavailableError:
                return False
            return True

        until(published, 30, "the broker is found again")
        assert publisher.queue_length("fs") == 2
        publisher.close()


def test_a_publisher_for_a_broker_that_never_was_does_not_hang(short_tmp_path: Path) -> None:
    publisher = CeleryHintPublisher(f"redis+socket://{short_tmp_path}/none.sock?virtual_host=0")
    with pytest.raises(BrokerUnavailableError):
        publisher.publish([Hint("fs", ids(1))])

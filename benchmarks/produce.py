"""The producers: Celery's own `send_task`, one call at a time, or batches of the same messages.

Both sides are fed by this one module; only task, queue and arguments differ. An identifier is made when its
call is sent, and holds the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from celery import Celery
from kombu import Producer

from interlock.identifier import new_id

BATCH = 500
"""Messages in one batch, on both sides."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One call as a Celery producer sends it."""

    task: str
    queue: str
    kwargs: dict[str, Any]


Send = Callable[[Iterable[Submission]], None]
"""Sends all of them over a connection that is held."""
Open = Callable[[str], AbstractContextManager[Send]]
"""Opens one way to send many to a broker."""


@contextmanager
def one_by_one(broker_url: str) -> Iterator[Send]:
    """Each by a `send_task` of its own over one held producer, as a service in front of a queue does it."""
    app = _app(broker_url)
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        connection.ensure_connection()

        def send(submissions: Iterable[Submission]) -> None:
            for item in submissions:
                app.send_task(
                    item.task,
                    kwargs=item.kwargs,
                    queue=item.queue,
                    task_id=new_id(),
                    producer=producer,
                    ignore_result=True,
                )

        yield send
    app.close()


@contextmanager
def in_batches(broker_url: str) -> Iterator[Send]:
    """The same messages through kombu's `Producer.batch`."""
    app = _app(broker_url)
    with app.connection_for_write() as connection:
        producer: Any = Producer(connection.default_channel)

        def send(submissions: Iterable[Submission]) -> None:
            waiting = iter(submissions)
            while items := list(islice(waiting, BATCH)):
                with producer.batch(max_size=len(items)):
                    for item in items:
                        _publish(producer, item)

        yield send
    app.close()


WAYS: Mapping[str, Open] = MappingProxyType({"single": one_by_one, "batch": in_batches})


def _publish(producer: Any, item: Submission) -> None:
    identifier = new_id()
    producer.publish(
        [[], item.kwargs, {}],
        routing_key=item.queue,
        exchange="",
        serializer="json",
        headers={"lang": "py", "task": item.task, "id": identifier, "ignore_result": True},
        correlation_id=identifier,
    )


def _app(broker_url: str) -> Celery:
    app = Celery("bench-producer", broker=broker_url, set_as_current=False)
    app.conf.update(result_backend=None, task_ignore_result=True, task_send_sent_event=False)
    return app

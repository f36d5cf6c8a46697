"""The producers: Celery's own `send_task`, one call at a time, or batches of the same messages.

Both sides are fed by this one module; only task, queue and arguments differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from celery import Celery
from kombu import Producer

BATCH = 500
"""Messages in one batch, on both sides."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One call as a Celery producer sends it."""

    task: str
    queue: str
    task_id: str
    kwargs: dict[str, Any]


class Produce(Protocol):
    """One way to send many."""

    def __call__(self, broker_url: str, submissions: Iterable[Submission]) -> None: ...


def one_by_one(broker_url: str, submissions: Iterable[Submission]) -> None:
    """Each by a `send_task` of its own over one held producer, as a service in front of a queue does it."""
    app = _app(broker_url)
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for item in submissions:
            app.send_task(
                item.task,
                kwargs=item.kwargs,
                queue=item.queue,
                task_id=item.task_id,
                producer=producer,
                ignore_result=True,
            )
    app.close()


def in_batches(broker_url: str, submissions: Iterable[Submission]) -> None:
    """The same messages through kombu's `Producer.batch`."""
    app = _app(broker_url)
    waiting = iter(submissions)
    with app.connection_for_write() as connection:
        producer: Any = Producer(connection.default_channel)
        while items := list(islice(waiting, BATCH)):
            with producer.batch(max_size=len(items)):
                for item in items:
                    _publish(producer, item)
    app.close()


def _publish(producer: Any, item: Submission) -> None:
    producer.publish(
        [[], item.kwargs, {}],
        routing_key=item.queue,
        exchange="",
        serializer="json",
        headers={"lang": "py", "task": item.task, "id": item.task_id, "ignore_result": True},
        correlation_id=item.task_id,
    )


def _app(broker_url: str) -> Celery:
    app = Celery("bench-producer", broker=broker_url, set_as_current=False)
    app.conf.update(result_backend=None, task_ignore_result=True, task_send_sent_event=False)
    return app

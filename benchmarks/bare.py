"""Bare Celery: one task that increments a number on the same kind of Valkey, and its worker as a program.

Late acknowledgement, no result backend, prefetch 64, prefork 2, no events; or tuned as well as we know how.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from celery import Celery
from redis import Redis

TASK = "bench.increment"
QUEUE = "bench"
COUNTER = "bench:done"
PREFETCH = 64
PROCESSES = 2

USUAL: Mapping[str, Any] = MappingProxyType(
    {
        "result_backend": None,
        "task_ignore_result": True,
        "task_acks_late": True,
        "worker_prefetch_multiplier": PREFETCH // PROCESSES,
        "worker_send_task_events": False,
        "task_default_queue": QUEUE,
    }
)
TUNED: Mapping[str, Any] = MappingProxyType(
    {
        **USUAL,
        "task_acks_late": False,
        "worker_prefetch_multiplier": PREFETCH,
        "worker_enable_remote_control": False,
        "broker_transport_options": {"ack_emulation": False},
    }
)


def make_app(broker_url: str, client_url: str, settings: Mapping[str, Any]) -> Celery:
    """The app with its one task."""
    app = Celery("bench", broker=broker_url, set_as_current=True)
    app.conf.update(dict(settings))
    client = Redis.from_url(client_url)

    @app.task(name=TASK)
    def increment() -> None:
        client.incr(COUNTER)

    return app


def main(arguments: list[str]) -> None:
    """Be a worker: `usual|tuned BROKER_URL CLIENT_URL NAME`."""
    kind, broker_url, client_url, name = arguments
    tuned = kind == "tuned"
    app = make_app(broker_url, client_url, TUNED if tuned else USUAL)
    quick = ("--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat") if tuned else ()
    pool = quick or ("--pool=prefork", f"--concurrency={PROCESSES}")
    app.worker_main(["worker", "-Q", QUEUE, "-n", f"{name}@bench", "-l", "ERROR", *pool])


if __name__ == "__main__":
    main(sys.argv[1:])

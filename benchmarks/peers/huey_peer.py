"""Huey as a peer: its Redis list, two worker processes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peers.frame import WORKERS, Peer, increment, main, redis_url, timed


def _queue() -> tuple[Any, Any]:
    huey = import_module("huey").RedisHuey("bench", url=redis_url(), results=False, store_none=False)
    return huey, huey.task(name="increment")(increment)


def serve() -> None:
    """Huey's own consumer, without its scheduler's periodic tasks."""
    huey, _ = _queue()
    huey.create_consumer(workers=WORKERS, worker_type="process", periodic=False).run()


def send(count: int, await_word: Callable[[], None]) -> float:
    """One call of the task after the other."""
    huey, task = _queue()
    huey.pending_count()  # the connection is made
    await_word()
    return timed(task, count)


PEER = Peer(
    "huey",
    "RedisHuey, blocking, no results, 2 worker processes, no periodic tasks",
    "none beyond the broker's: a worker that is killed loses what it took",
    serve,
    send,
)

if __name__ == "__main__":
    main(PEER)

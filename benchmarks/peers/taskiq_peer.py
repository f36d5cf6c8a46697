"""Taskiq as a peer: its Redis list, two worker processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peers.frame import COUNTER, WORKERS, Peer, become, main, redis_url


def set_up() -> Any:
    """The broker with its one task, as taskiq's own program asks for it."""
    broker = import_module("taskiq_redis").ListQueueBroker(redis_url(), queue_name="bench")
    client = import_module("redis.asyncio").Redis.from_url(redis_url())

    async def increment() -> None:
        await client.incr(COUNTER)

    broker.register_task(increment, task_name="increment")
    return broker


def serve() -> None:
    """Taskiq's own program."""
    become("taskiq", "worker", "benchmarks.peers.taskiq_peer:set_up", "--workers", str(WORKERS))


def send(count: int, await_word: Callable[[], None]) -> float:
    """One kick after the other."""
    return asyncio.run(_send(count, await_word))


async def _send(count: int, await_word: Callable[[], None]) -> float:
    broker = set_up()
    await broker.startup()
    task = broker.find_task("increment")
    await_word()
    before = time.process_time()
    for _ in range(count):
        await task.kiq()
    taken = time.process_time() - before
    await broker.shutdown()
    return taken


PEER = Peer(
    "taskiq-redis",
    "ListQueueBroker, no results, 2 worker processes, usual settings",
    "none beyond the broker's: a worker that is killed loses what it took",
    serve,
    send,
)

if __name__ == "__main__":
    main(PEER)

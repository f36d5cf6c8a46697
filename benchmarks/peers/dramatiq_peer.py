"""Dramatiq as a peer: its Redis broker, two worker processes with its usual threads."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peers.frame import WORKERS, Peer, become, increment, main, redis_url, timed


def set_up() -> Any:
    """The broker with its one actor, as dramatiq's own program asks for it."""
    dramatiq = import_module("dramatiq")
    broker = import_module("dramatiq.brokers.redis").RedisBroker(url=redis_url())
    dramatiq.set_broker(broker)
    dramatiq.actor(increment, actor_name="increment", max_retries=0)
    return broker


def serve() -> None:
    """Dramatiq's own program."""
    become("dramatiq", "benchmarks.peers.dramatiq_peer:set_up", "--processes", str(WORKERS))


def send(count: int, await_word: Callable[[], None]) -> float:
    """One message after the other."""
    broker = set_up()
    broker.client.ping()
    await_word()
    return timed(broker.get_actor("increment").send, count)


PEER = Peer(
    "dramatiq",
    "RedisBroker, no results, 2 worker processes of 8 threads (its default), usual middleware",
    "acknowledged after the work: a killed worker's messages come back after its heartbeat ran out (60 s)",
    serve,
    send,
)

if __name__ == "__main__":
    main(PEER)

"""What every peer's program does alike: says what it is, serves, or sends when told to. Standard library.

`check` prints version and settings; `work` serves until it is ended; `send` takes a count and then the word
on standard input, as our own producers do. Where the servers are stands in the environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

COUNTER = "bench:done"
WORKERS = 2
REDIS_URL, POSTGRES_URL = "BENCH_PEER_REDIS_URL", "BENCH_PEER_POSTGRES_URL"


@dataclass(frozen=True)
class Peer:
    """One other queue."""

    distribution: str
    settings: str
    """How it is set up here."""
    durability: str
    """What a call survives."""
    serve: Callable[[], None]
    """Serves until the process is ended; may become the queue's own worker program."""
    send: Callable[[int, Callable[[], None]], float]
    """Gets ready, calls the function, enqueues so many one at a time; the CPU seconds that took."""


def redis_url() -> str:
    """The broker of this run."""
    return os.environ[REDIS_URL]


def increment() -> None:
    """The work."""
    _client().incr(COUNTER)


@lru_cache(maxsize=1)
def _client() -> Any:
    """One connection a process, made when it is first needed."""
    from redis import Redis

    return Redis.from_url(redis_url())


def become(*command: str) -> None:
    """Go on as a program of this interpreter's environment."""
    folder = os.path.dirname(sys.executable)
    os.execv(os.path.join(folder, command[0]), list(command))


def main(peer: Peer) -> None:
    """`check`, `work` or `send`."""
    verb = sys.argv[1]
    if verb == "check":
        version = f"{peer.distribution} {metadata.version(peer.distribution)}"
        print(json.dumps({"version": version, "settings": peer.settings, "durability": peer.durability}))
    elif verb == "work":
        peer.serve()
    else:
        count = int(sys.stdin.readline())
        print(json.dumps({"cpu_seconds": peer.send(count, _await_word)}), flush=True)


def _await_word() -> None:
    print(json.dumps({"ready": True}), flush=True)
    if not sys.stdin.readline():
        sys.exit(0)  # whoever ordered it is gone


def timed(send_one: Callable[[], object], count: int) -> float:
    """CPU seconds of this process for so many calls, one after the other."""
    before = time.process_time()
    for _ in range(count):
        send_one()
    return time.process_time() - before

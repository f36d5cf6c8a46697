"""Wake-ups over the broker: one list a role, at most one token in it.

A wake-up is a hint; nothing here raises for a lost broker, because who wakes has committed already and who
waits looks by itself when the time ran out.
"""

from __future__ import annotations

import threading
import time

from redis import Redis

from interlock.adapters.redis_client import broker_errors
from interlock.errors import BrokerUnavailableError

WAKE = "interlock:wake:"


class RedisWaker:
    """Waker over two clients: `client` is bounded in time, `waiting` waits for a token."""

    def __init__(self, client: Redis, waiting: Redis) -> None:
        self._client, self._waiting = client, waiting
        self._pause = threading.Event()

    def wake(self, role: str) -> None:
        key = WAKE + role
        try:
            with broker_errors(), self._client.pipeline(transaction=False) as pipeline:
                pipeline.lpush(key, b"1")
                pipeline.ltrim(key, 0, 0)
                pipeline.execute()
        except BrokerUnavailableError:
            return

    def wait(self, role: str, seconds: float) -> bool:
        """Without a broker it waits the whole time, so that a loop over it never spins."""
        give_up_at = time.monotonic() + seconds
        try:
            with broker_errors():
                # A block of 0 would wait for ever.
                return self._waiting.blpop([WAKE + role], timeout=max(seconds, 0.001)) is not None
        except BrokerUnavailableError:
            self._pause.wait(max(0.0, give_up_at - time.monotonic()))
            return False

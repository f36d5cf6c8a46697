"""The client's channel over a server of the Redis protocol: Celery's lists, and reply lists of its own.

Sends exactly once what it is told to send, and never retries by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from redis import Redis

from interlock.adapters.redis_client import broker_errors, connect
from interlock.channel import Heard

DRAIN_MAX = 512


class QueueChannel:
    """A channel over two clients: `client` is bounded in time, `waiting` waits as long as it is told."""

    def __init__(self, client: Redis, waiting: Redis) -> None:
        self._client, self._waiting = client, waiting

    @classmethod
    def at(cls, url: str) -> QueueChannel:
        """Over clients of its own; `url` is Celery's or redis-py's."""
        return cls(connect(url), connect(url, blocking=True))

    def now_us(self) -> int:
        with broker_errors():
            seconds, microseconds = self._client.time()
        return seconds * 1_000_000 + microseconds

    def send(self, queue: str, items: Sequence[bytes]) -> None:
        if items:
            with broker_errors():
                self._client.lpush(queue, *items)

    def receive(self, names: Sequence[str], seconds: float) -> list[Heard]:
        heard: list[Heard] = []
        if seconds > 0:
            with broker_errors():
                first = self._waiting.brpop(list(names), timeout=max(seconds, 0.001))
            if first is None:
                return []
            name, data = first
            heard.append(Heard(_text(name), _bytes(data)))
        return heard + self._drain(names)

    def _drain(self, names: Sequence[str]) -> list[Heard]:
        with broker_errors(), self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.rpop(name, DRAIN_MAX)
            found = pipeline.execute()
        return [
            Heard(name, data) for name, answers in zip(names, found, strict=True) for data in answers or ()
        ]

    def is_waiting(self, queue: str, item: bytes) -> bool:
        with broker_errors():
            return self._client.lpos(queue, item) is not None  # type: ignore[arg-type]  # bytes are fine

    def withdraw(self, queue: str, items: Sequence[bytes]) -> list[int]:
        with broker_errors(), self._client.pipeline(transaction=False) as pipeline:
            for item in items:
                pipeline.lrem(queue, 0, item)  # type: ignore[arg-type]  # bytes are fine
            return [int(count) for count in pipeline.execute()]

    def close(self) -> None:
        # A client that was given its pool leaves it open: sockets would stay until they are collected.
        self._client.connection_pool.disconnect()
        self._waiting.connection_pool.disconnect()


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value

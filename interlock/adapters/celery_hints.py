"""Puts hints on the pools' queues as Celery messages, many in one round trip.

A hint is ids only. Nothing is sent twice by itself: whoever published looks again, and the sweep repeats what
got lost. Carries no arguments, waits for no answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from types import MappingProxyType
from typing import Any

from kombu import Connection, Producer
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from interlock.adapters.celery_wire import Envelope, decode_task
from interlock.adapters.redis_client import WRONG_KIND, set_aside
from interlock.canonical import parse_json
from interlock.errors import BrokerUnavailableError, NotJsonError
from interlock.hint import RUN_TASK, Hint
from interlock.identifier import new_id
from interlock.tier import Pool

TURN_SECONDS = 5.0
SOCKET_SECONDS = 5.0
PEEK_MAX = 64
"""Messages of one queue whose ids are counted; a longer queue is estimated from these."""

_TRANSPORT: Mapping[str, Any] = MappingProxyType(
    {
        # Without these a half-open connection would hold a publisher for ever.
        "socket_timeout": SOCKET_SECONDS,
        "socket_connect_timeout": SOCKET_SECONDS,
        "socket_keepalive": True,
        "priority_steps": [0],
        # Without it the first use of a lost broker would wait for it for ever.
        "max_retries": 0,
        # Plain text within the message: no base64 around JSON.
        "body_encoding": None,
    }
)
_HEADERS: Mapping[str, Any] = MappingProxyType({"lang": "py", "task": RUN_TASK, "ignore_result": True})


class CeleryHintPublisher:
    """HintPublisher over one connection of kombu; threads take turns, none waits for its turn for ever.

    `url` is Celery's, as in `redis+socket:///path?virtual_host=0`. Connects when it is first used.
    """

    def __init__(self, url: str) -> None:
        transport = dict(_TRANSPORT)
        if url.startswith("redis+socket:"):
            del transport["socket_keepalive"]
        self._connection = Connection(url, transport_options=transport)
        self._turn = Lock()

    def publish(self, hints: Sequence[Hint]) -> None:
        """Publish all, in order; after a BrokerUnavailableError some may have gone out (harmless)."""
        if not hints:
            return
        with self._channel() as channel:
            producer: Any = Producer(channel)
            with producer.batch(max_size=len(hints)):
                for hint in hints:
                    self._send(producer, hint)

    def _send(self, producer: Producer, hint: Hint) -> None:
        hint_id = new_id()
        producer.publish(
            [[], {"ids": hint.invocation_ids}, {}],
            routing_key=Pool(hint.pool).queue,
            exchange="",
            serializer="json",
            headers={**_HEADERS, "id": hint_id},
            correlation_id=hint_id,
        )

    def queued_ids(self) -> dict[str, int]:
        """Pool → about how many ids its queue holds; raises BrokerUnavailableError."""
        with (
            self._channel() as channel,
            channel.conn_or_acquire() as client,
            client.pipeline(transaction=False) as pipeline,
        ):
            for pool in Pool:
                pipeline.llen(pool.queue)
                pipeline.lrange(pool.queue, 0, PEEK_MAX - 1)
            found = pipeline.execute()
        lengths, peeks = found[0::2], found[1::2]
        return {
            pool.value: _estimate(length, peek)
            for pool, length, peek in zip(Pool, lengths, peeks, strict=True)
        }

    def queue_length(self, pool: str) -> int:
        """Messages on one pool's queue; raises BrokerUnavailableError."""
        with self._channel() as channel, channel.conn_or_acquire() as client:
            return int(client.llen(Pool(pool).queue))

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        """The connection's channel (whose newest parts have no types), made anew after an error."""
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise BrokerUnavailableError("another thread has been publishing for too long")
        try:
            yield self._connection.default_channel
        except (KombuError, RedisError, OSError) as error:
            if WRONG_KIND in str(error):
                self._set_aside()
            self._connection.close()
            raise BrokerUnavailableError(f"{type(error).__name__}: {error}") from error
        finally:
            self._turn.release()

    def _set_aside(self) -> None:
        """Somebody wrote something else where a queue has to be."""
        channel: Any = self._connection.default_channel
        with contextlib.suppress(KombuError, RedisError, OSError), channel.conn_or_acquire() as client:
            set_aside(client, {pool.queue: b"list" for pool in Pool})


def _estimate(length: int, items: Sequence[bytes]) -> int:
    counted = sum(_ids_in(item) for item in items)
    return counted if length <= len(items) else counted * length // len(items)


def _ids_in(item: bytes) -> int:
    """How many ids a hint carries; what is none counts as one."""
    envelope = decode_task(item)
    if not isinstance(envelope, Envelope):
        return 1
    try:
        kwargs = parse_json(envelope.kwargs_json)
    except NotJsonError:
        return 1
    ids = kwargs.get("ids") if isinstance(kwargs, dict) else None
    return len(ids) if isinstance(ids, list) else 1

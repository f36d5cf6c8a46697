"""The one place where clients of the Redis protocol are made, and their errors become ours.

No client retries by itself: whoever sent something that may have been done decides what follows. Opens no
connection before the first command.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redis import ConnectionPool, Redis, UnixDomainSocketConnection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from interlock.errors import BrokerUnavailableError

TIMEOUT_SECONDS = 5.0
_SOCKET_SCHEMES = ("unix", "redis+socket")


def connect(url: str, *, blocking: bool = False) -> Redis:
    """A client that answers bytes; safe to share between threads, never across a fork.

    `url` is `unix:///path?db=0`, Celery's `redis+socket:///path?virtual_host=0`, or `redis[s]://…`. A
    blocking client waits for an answer as long as its command does; any other at most 5 seconds.
    """
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "retry_on_timeout": False,
        "socket_timeout": None if blocking else TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "decode_responses": False,
        "protocol": 2,
    }
    return Redis(connection_pool=_pool(url, options))


def _pool(url: str, options: dict[str, Any]) -> ConnectionPool:
    parts = urlsplit(url)
    if parts.scheme not in _SOCKET_SCHEMES:
        return ConnectionPool.from_url(url, **options, **_keepalive())
    query = parse_qs(parts.query)
    database = (query.get("db") or query.get("virtual_host") or ["0"])[0]
    del options["socket_connect_timeout"]
    return ConnectionPool(
        connection_class=UnixDomainSocketConnection, path=unquote(parts.path), db=int(database), **options
    )


def _keepalive() -> dict[str, Any]:
    """A peer that vanished without a word is noticed within half a minute, also by who waits for ever."""
    return {
        "socket_keepalive": True,
        "socket_keepalive_options": {
            socket.TCP_KEEPIDLE: 10,
            socket.TCP_KEEPINTVL: 5,
            socket.TCP_KEEPCNT: 3,
        },
    }


@contextmanager
def broker_errors() -> Iterator[None]:
    """Turn every error of the client or the server into BrokerUnavailableError."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise BrokerUnavailableError(f"{type(error).__name__}: {error}") from error

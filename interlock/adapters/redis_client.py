"""The one place where clients of the Redis protocol are made, and their errors become ours.

No client retries by itself: whoever sent something that may have been done decides what follows. Opens no
connection before the first command.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redis import ConnectionPool, Redis, UnixDomainSocketConnection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from interlock.errors import BrokerUnavailableError

TIMEOUT_SECONDS = 5.0
_SOCKET_SCHEMES = ("unix", "redis+socket")

WRONG_KIND = "WRONGTYPE"
"""What the server's message says of a command on a key of another kind."""

_LOG = logging.getLogger(__name__)


def connect(url: str, *, blocking: bool = False, name: str = "") -> Redis:
    """A client that answers bytes; safe to share between threads, never across a fork.

    `url` is `unix:///path?db=0`, Celery's `redis+socket:///path?virtual_host=0`, or `redis[s]://…`. A
    blocking client waits for an answer as long as its command does; any other at most 5 seconds. The server
    lists its connections under `name`.
    """
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "retry_on_timeout": False,
        "socket_timeout": None if blocking else TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "decode_responses": False,
        "protocol": 2,
        "client_name": name or None,
    }
    return Redis(connection_pool=_pool(url, options))


def waiting_name() -> str:
    """The name of connections on which this process waits for what may not come."""
    return f"interlock:{socket.gethostname()}:{os.getpid()}"


def over_key(name: str) -> str:
    """What is touched to end the waits of those connections of this name that watch it."""
    return f"{name}:over"


def end_waits(client: Redis, name: str) -> None:
    """Whatever connections of this name wait for ends now, as if its time had run out.

    Raises BrokerUnavailableError.
    """
    with broker_errors():
        client.set(over_key(name), b"", px=1_000)
        listed: Any = client.client_list()
        for each in listed:
            if each["name"] == name and "b" in each["flags"]:
                client.client_unblock(int(each["id"]))


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


@contextmanager
def kinds_kept(client: Redis, kinds: Mapping[str, bytes]) -> Iterator[None]:
    """As `broker_errors`; where a key holds something else than its kind, it is out of the way afterwards."""
    with broker_errors():
        try:
            yield
        except ResponseError as error:
            if WRONG_KIND in str(error):
                set_aside(client, kinds)
            raise


def set_aside(client: Redis, kinds: Mapping[str, bytes]) -> None:
    """Rename each key that holds something else than its kind (`list`, `hash`, `stream`) to `<key>.bad.<n>`.

    Whoever reaches the broker can write such a key, and everything that uses it would stand still for ever.
    """
    for key, kind in kinds.items():
        found: Any = client.type(key)
        if found in (kind, b"none"):
            continue
        aside = f"{key}.bad.{secrets.token_hex(4)}"
        try:
            client.rename(key, aside)
        except ResponseError:
            continue  # somebody else has done it in between
        _LOG.error("%s held a %s and was set aside as %s", key, found.decode(), aside)

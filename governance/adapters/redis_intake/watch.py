"""Waits until one of many lists changes: they are read once, and the server tells who read them (RESP3).

No list is asked twice while nothing happens to it, and no item is touched. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.connection import ConnectionPool

from interlock.adapters.redis_client import over_key


class ListWatch:
    """One connection of its own, made like those of `client`. One thread waits on it."""

    def __init__(self, client: Redis) -> None:
        name = client.connection_pool.connection_kwargs.get("client_name")
        self._over = over_key(name) if name else ""
        self._is_over = False
        kwargs = client.connection_pool.connection_kwargs | {"protocol": 3, "socket_timeout": None}
        self._pool = ConnectionPool(connection_class=client.connection_pool.connection_class, **kwargs)
        self._connection: Any = None
        self._lists: Sequence[str] = ()
        self._unread: set[bytes] = set()
        """Of what stands here a change would not be told."""

    def wait(self, lists: Sequence[str], seconds: float) -> bool:
        """Return when one of these holds something or changed, at the latest after `seconds`.

        False where the wait was ended for us, as `end_waits` does: this process is about to stop.

        Hand over the same sequence as long as the lists are the same. Raises RedisError or OSError.
        """
        try:
            self._wait(lists, seconds)
        except BaseException:
            self.close()
            raise
        is_over, self._is_over = self._is_over, False
        return not is_over

    def _wait(self, lists: Sequence[str], seconds: float) -> None:
        connection = self._connected()
        if lists is not self._lists:
            self._lists, self._unread = (
                lists,
                {name.encode() for name in (*lists, *filter(None, [self._over]))},
            )
        # One by one: a reader of an answer would go as deep as there are notices before it.
        while connection.can_read(0):
            connection.read_response(push_request=True)
        if self._unread:
            asked, self._unread = self._unread, set()
            connection.send_command("EXISTS", *asked)
            if connection.read_response() or self._unread:
                return
        if connection.can_read(seconds):
            connection.read_response(push_request=True)

    def _connected(self) -> Any:
        if self._connection is None:
            connection: Any = self._pool.get_connection()
            self._connection, self._lists = connection, ()
            connection._parser.set_invalidation_push_handler(self._changed)  # noqa: SLF001 - as redis-py itself does it
            connection.send_command("CLIENT", "TRACKING", "ON")
            connection.read_response()
        return self._connection

    def _changed(self, notice: Sequence[Any]) -> None:
        names: Sequence[bytes] | None = notice[1]
        if names is None:  # the server was emptied
            names = [name.encode() for name in self._lists]
        self._unread.update(names)
        self._is_over = self._is_over or self._over.encode() in names

    def close(self) -> None:
        """Let go of the connection; the next wait makes another."""
        self._connection = None
        self._pool.disconnect()

"""A broker of the test's own: the embedded server on a folder, to be killed, emptied and started again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from gateway.embedded.adapters.valkey import find_server
from gateway.embedded.broker import BrokerServer
from gateway.embedded.directory import DataDirectory
from interlock.adapters.redis_client import connect


class ValkeyServer:
    """One server below this process; it ends with the thread that started it."""

    def __init__(self, folder: Path) -> None:
        self._directory = DataDirectory.at(folder)
        self._directory.broker.mkdir(parents=True, exist_ok=True)
        self._server = BrokerServer(self._directory, find_server(os.environ))
        self.start, self.stop, self.kill = self._server.start, self._server.stop, self._server.kill
        self._clients: list[Redis] = []

    @property
    def url(self) -> str:
        return self._directory.broker_client_url

    @property
    def celery_url(self) -> str:
        return self._directory.broker_url

    def client(self, *, blocking: bool = False) -> Redis:
        """A client that is closed with the server."""
        client = connect(self.url, blocking=blocking)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.kill()


@contextmanager
def valkey_server(folder: Path) -> Iterator[ValkeyServer]:
    """A started server, gone at the end."""
    server = ValkeyServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()

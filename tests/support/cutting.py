"""A proxy before a database that lets a commit through and, sometimes, cuts the line before its answer."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COMMIT = b"COMMIT\0"
CHUNK_BYTES = 65_536
DONE_SECONDS = 0.05
"""How long the server has for the commit whose answer nobody hears."""


class CuttingProxy:
    """Listens on a port of loopback; `cuts` counts the answers that were lost."""

    def __init__(self, port: int, rng: random.Random, share: float) -> None:
        self._target, self._rng, self._share = ("127.0.0.1", port), rng, share
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._turn = threading.Lock()
        self.cuts = 0
        self.is_cutting = threading.Event()
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Cut every line, and listen no more."""
        self._closing.set()
        self._listener.close()
        self._accepting.join()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        self._listener.settimeout(0.1)
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            thread = threading.Thread(target=self._serve, args=(client,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection(self._target) as server,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self._closing.is_set():
                for key, _ in selector.select(0.1):
                    if not self._pass_on(key.fileobj, key.data, from_client=key.data is server):
                        return

    def _pass_on(self, source: object, target: socket.socket, *, from_client: bool) -> bool:
        assert isinstance(source, socket.socket)
        data = source.recv(CHUNK_BYTES)
        if not data:
            return False
        target.sendall(data)
        return not (from_client and COMMIT in data and self._is_to_be_cut())

    def _is_to_be_cut(self) -> bool:
        with self._turn:
            if not self.is_cutting.is_set() or self._rng.random() >= self._share:
                return False
            self.cuts += 1
        self._closing.wait(DONE_SECONDS)
        return True


@contextmanager
def cutting(port: int, rng: random.Random, share: float = 0.05) -> Iterator[CuttingProxy]:
    """A proxy that loses this share of the answers to commits, once it is told to."""
    proxy = CuttingProxy(port, rng, share)
    try:
        yield proxy
    finally:
        proxy.close()

"""A wire between client and server that swallows the answers and then breaks, when told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.support.postgres import PostgresServer


@contextmanager
def cut_answers(server: PostgresServer, url: str) -> Iterator[tuple[str, threading.Event]]:
    """The address through the wire; while the event is set, what is asked arrives and no answer returns."""
    cut = threading.Event()
    name = urlsplit(url).path.lstrip("/")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, server.port, cut), daemon=True).start()
        port = listener.getsockname()[1]
        yield server.tcp_url(name).replace(f":{server.port}/", f":{port}/") + "?sslmode=disable", cut
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, port: int, cut: threading.Event) -> None:
    with suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=_copy, args=(near, far, None), daemon=True).start()
            threading.Thread(target=_copy, args=(far, near, cut), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, cut: threading.Event | None) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            if cut is not None and cut.is_set():
                break
            target.sendall(chunk)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

"""The control socket of a running system: one JSON line asked, one JSON line answered.

Only the account that runs the system, and root, are answered; everybody else is cut off. What a verb does is
the tree's; here is only how it is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
from collections.abc import Callable, Mapping

from gateway.embedded.directory import DataDirectory
from interlock.errors import NotRunningError

LINE_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 2**20
CONNECTIONS_MAX = 16
CREDENTIALS = struct.Struct("3i")

Answer = Mapping[str, object]
Verb = Callable[[Mapping[str, object]], Answer]


class ControlServer:
    """Listens on the control socket inside somebody else's selector; never blocks it."""

    def __init__(
        self, directory: DataDirectory, verbs: Mapping[str, Verb], selector: selectors.BaseSelector
    ) -> None:
        self._path = directory.control_socket
        self._verbs = dict(verbs)
        self._selector = selector
        self._connections: dict[socket.socket, bytearray] = {}
        self._path.unlink(missing_ok=True)  # left by a killed system; the start lock is ours
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(str(self._path))
        self._path.chmod(0o600)
        self._listener.listen(CONNECTIONS_MAX)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.unregister(self._listener)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it went away again
        connection.setblocking(False)
        _, uid, _ = CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        )
        if uid not in (0, os.getuid()):
            connection.close()
            return
        if len(self._connections) >= CONNECTIONS_MAX:
            self._drop(next(iter(self._connections)))  # the oldest had its time
        self._connections[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(connection))

    def _read(self, connection: socket.socket) -> None:
        try:
            received = connection.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        line = self._connections[connection]
        line += received
        if b"\n" in line:
            self._answer(connection, bytes(line))
        elif not received or len(line) > LINE_BYTES_MAX:
            self._drop(connection)

    def _answer(self, connection: socket.socket, line: bytes) -> None:
        answer = json.dumps(answer_line(self._verbs, line)).encode() + b"\n"
        with contextlib.suppress(OSError):
            connection.send(answer)
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._connections[connection]
        connection.close()


def answer_line(verbs: Mapping[str, Verb], line: bytes) -> Answer:
    """The answer to one line `{"do": verb, …}`; a line that is none of ours is answered too, by its fault."""
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        return {"ok": False, "error": "not one line of JSON"}
    if not isinstance(asked, dict) or not isinstance(asked.get("do"), str):
        return {"ok": False, "error": 'not of the form {"do": VERB}'}
    verb = verbs.get(asked["do"])
    if verb is None:
        return {"ok": False, "error": f"unknown verb; known are {', '.join(sorted(verbs))}"}
    return {"ok": True, **verb(asked)}


def ask(directory: DataDirectory, request: Mapping[str, object], timeout_seconds: float = 5.0) -> Answer:
    """Ask the system that runs on `directory`; NotRunningError when none answers there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(str(directory.control_socket))
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = _read_line(connection)
        except OSError as error:
            raise NotRunningError(str(directory.path)) from error
    if not answer:
        raise NotRunningError(str(directory.path))
    held = json.loads(answer)
    return held if isinstance(held, dict) else {"ok": False, "error": "no object was answered"}


def _read_line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < ANSWER_BYTES_MAX:
        part = connection.recv(65536)
        if not part:
            break
        received += part
    return bytes(received)

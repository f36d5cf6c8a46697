"""The line between a pool and one supervisor: length-prefixed JSON frames over a stream socket.

Moves frames, decides nothing. The end of the line is a value: it is how each side learns of the
other's death.
"""

from __future__ import annotations

import json
import select
import socket
from typing import Any

from workers.supervisor.report import to_bytes

# What is said on the line, in order: CALL, READY, GO or NO, (STOP)*, OUTCOME, TAKEN.
CALL, READY, GO, NO, STOP, OUTCOME, TAKEN = "call", "ready", "go", "no", "stop", "outcome", "taken"

FRAME_BYTES_MAX = 256 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024


class LineClosedError(ConnectionError):
    """The other side is gone."""


class Channel:
    """One side of the line. Not for several threads at once."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._buffer = bytearray()

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._line.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        """Sends one frame. Raises LineClosedError when nobody is left to read it."""
        body = to_bytes({"frame": kind, **fields})
        try:
            self._line.sendall(len(body).to_bytes(4, "big") + body)
        except OSError as error:
            raise LineClosedError from error

    def receive(self, timeout_ms: int | None = None) -> dict[str, Any] | None:
        """The next frame; None when none came within `timeout_ms`.

        Raises LineClosedError when the other side is gone and no whole frame is left.
        """
        while (frame := self._frame()) is None:
            if not self._wait(timeout_ms):
                return None
            try:
                chunk = self._line.recv(_CHUNK_BYTES)
            except OSError as error:
                raise LineClosedError from error
            if not chunk:
                raise LineClosedError
            self._buffer += chunk
        return frame

    def close(self) -> None:
        """Hangs up."""
        self._line.close()

    def _wait(self, timeout_ms: int | None) -> bool:
        poller = select.poll()
        poller.register(self._line, select.POLLIN)
        return bool(poller.poll(timeout_ms))

    def _frame(self) -> dict[str, Any] | None:
        if len(self._buffer) < 4:
            return None
        size_bytes = int.from_bytes(self._buffer[:4], "big")
        if size_bytes > FRAME_BYTES_MAX:
            raise LineClosedError
        if len(self._buffer) < 4 + size_bytes:
            return None
        body = bytes(self._buffer[4 : 4 + size_bytes])
        del self._buffer[: 4 + size_bytes]
        frame: dict[str, Any] = json.loads(body)
        return frame

"""Bounded reading: keeps the first bytes of a stream, counts and digests all of it, stores no more.

However much a tool writes, memory stays at the limit plus one buffer.
"""

from __future__ import annotations

import base64
import codecs
import fcntl
import hashlib
import os
from dataclasses import dataclass
from typing import Any

BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Captured:
    """What a stream said: the kept beginning, and size and SHA-256 (hex) of the whole."""

    kept: bytes
    size_bytes: int
    sha256: str

    @property
    def truncated(self) -> bool:
        """Whether more was written than kept."""
        return self.size_bytes > len(self.kept)

    def described(self) -> dict[str, Any]:
        """JSON: encoding, text or bytes, size_bytes, sha256, truncated."""
        whole = {"size_bytes": self.size_bytes, "sha256": self.sha256, "truncated": self.truncated}
        return {**text_or_bytes(self.kept, self.truncated), **whole}


class Capture:
    """Reads one descriptor to its end, keeping at most `limit_bytes`. Owns the descriptor."""

    def __init__(self, fd: int, limit_bytes: int, buffer: bytearray) -> None:
        self.fd = fd
        self.at_end = False
        self._limit_bytes = limit_bytes
        self._buffer = memoryview(buffer)
        self._kept = bytearray()
        self._digest = hashlib.sha256()
        self._size_bytes = 0
        os.set_blocking(fd, False)
        _widen(fd)

    def take(self) -> bool:
        """Takes what is there, at most one buffer; True while there may be more right now."""
        try:
            count = os.readv(self.fd, [self._buffer])
        except BlockingIOError:
            return False
        if count == 0:
            self.close()
            return False
        chunk = self._buffer[:count]
        self._digest.update(chunk)
        self._size_bytes += count
        room = self._limit_bytes - len(self._kept)
        if room > 0:
            self._kept += chunk[:room]
        return True

    def close(self) -> None:
        """Reads no further."""
        if not self.at_end:
            self.at_end = True
            os.close(self.fd)

    def captured(self) -> Captured:
        """What was read until now."""
        return Captured(bytes(self._kept), self._size_bytes, self._digest.hexdigest())


def text_or_bytes(content: bytes, cut: bool) -> dict[str, str]:
    """`{"encoding": "utf-8", "text": …}`, or `{"encoding": "base64", "bytes": …}` for anything else.

    In content that was cut, a character that the cut divided is left out. A NUL is no text that every store
    can hold, so what has one is kept as bytes.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content, final=not cut)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"encoding": "base64", "bytes": base64.b64encode(content).decode()}
    return {"encoding": "utf-8", "text": text}


def _widen(fd: int) -> None:
    # A wider pipe saves wake-ups; a host that has used up its pipe pages says no, which is fine.
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, BUFFER_BYTES)
    except OSError:
        return

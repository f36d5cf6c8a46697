"""The life of one process that claims: its boot id, the lock that proves it lives, and its beat.

The beat is a counter in the ledger that only ever grows; what it means that it stands still is for others to
judge. Here a thread is enough to beat: only built-ins on a closed list run in this process, so nothing holds
the interpreter for long, and whatever does is as good as dead. Each supervisor holds the same lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from governance.ledger import Boot
from interlock.errors import InterlockError
from interlock.identifier import new_id

_KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LOG = logging.getLogger("interlock.lease")


def lock_path(boots: Path, boot_id: str) -> Path:
    """Where a boot's lock lies."""
    return boots / f"{boot_id}.lock"


def is_boot_alive(boots: Path, boot_id: str) -> bool:
    """Whether any process of this boot still lives on this host, by its lock."""
    try:
        descriptor = os.open(lock_path(boots, boot_id), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared: two who look at once must not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def clear(boots: Path) -> None:
    """Remove the locks of the dead of this host: a lock that is missing says the same as one that is free."""
    for path in boots.glob("*.lock"):
        with suppress(OSError), open(path, "rb") as file:
            # Shared, as whoever looks: none of them takes another for the owner.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink()


def _own_lock(boots: Path) -> tuple[str, int]:
    """A new boot id and its lock, held."""
    while True:
        boot_id = new_id()
        path = lock_path(boots, boot_id)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Between the two it looked like a dead one's, and somebody may have cleared it away.
        if path.exists():
            return boot_id, descriptor
        os.close(descriptor)


class Lease:
    """One boot. Made in the main thread before anything is forked; `begin` starts the beat."""

    def __init__(self, boots: Path, role: str) -> None:
        boots.mkdir(mode=0o700, parents=True, exist_ok=True)
        clear(boots)
        self.boot_id, self.lock_fd = _own_lock(boots)
        self._path = lock_path(boots, self.boot_id)
        self._role = role
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._boot: Boot | None = None
        self._write: Callable[[Boot], None] | None = None

    def begin(self, write: Callable[[Boot], None], now_us: int, beat_ms: int) -> None:
        """Write the first beat, and go on beating; raises what the first write raises."""
        host = f"{socket.gethostname()}:{_KERNEL_BOOT.read_text().strip()}"
        self._boot = Boot(self.boot_id, self._role, host, os.getpid(), 1, now_us, False)
        self._write = write
        write(self._boot)
        self._thread = threading.Thread(
            target=self._beat_on, args=(beat_ms / 1_000,), name="beat", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Stop beating, say that this boot ended cleanly, and free the lock."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._boot is not None:
            self._try(replace_stopped(self._boot))
        self._path.unlink(missing_ok=True)
        os.close(self.lock_fd)

    def _beat_on(self, seconds: float) -> None:
        assert self._boot is not None
        while not self._ended.wait(seconds):
            following = self._boot._replace(counter=self._boot.counter + 1)
            if self._try(following):
                self._boot = following

    def _try(self, boot: Boot) -> bool:
        assert self._write is not None
        try:
            self._write(boot)
        except InterlockError as error:
            _LOG.warning("a beat was not written: %s", error)
            return False
        return True


def replace_stopped(boot: Boot) -> Boot:
    """The last beat of a boot that ends cleanly."""
    return boot._replace(counter=boot.counter + 1, stopped=True)

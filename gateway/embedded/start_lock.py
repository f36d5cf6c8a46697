"""The lock under which one system at a time runs on a data directory, and who holds it.

It outlives its owner for as long as a process that inherited it does. It never ends anybody.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path

from gateway.embedded import kernel
from gateway.embedded.directory import DataDirectory
from interlock.errors import AlreadyRunningError

ORPHAN_WAIT_SECONDS = 5.0  # processes of a killed start hold the lock until they are gone
LOCK_POLL_SECONDS = 0.005


class StartLock:
    """The right to run on a directory, held as long as any process that inherited it lives."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, directory: DataDirectory, wait_seconds: float = ORPHAN_WAIT_SECONDS) -> StartLock:
        """Take the lock; AlreadyRunningError at once when its owner lives.

        When the owner is dead, what it left behind is about to end: that is waited for, `wait_seconds` long.
        """
        descriptor = os.open(directory.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock_or_refuse(descriptor, directory.path, time.monotonic() + wait_seconds)
        except BaseException:
            os.close(descriptor)
            raise
        record = json.dumps(asdict(kernel.own_identity())).encode()
        os.pwrite(descriptor, record, 0)
        os.ftruncate(descriptor, len(record))
        return cls(descriptor)

    def release(self) -> None:
        """Give this process's share back."""
        os.close(self._descriptor)


def lock_owner(directory: DataDirectory) -> int | None:
    """The process that runs on `directory`; None when none does."""
    try:
        descriptor = os.open(directory.start_lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _living_owner(descriptor)
    finally:
        os.close(descriptor)


def _lock_or_refuse(descriptor: int, path: Path, deadline: float) -> None:
    pause = threading.Event()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _living_owner(descriptor)
            if owner is not None or time.monotonic() >= deadline:
                raise AlreadyRunningError(str(path), owner) from None
            pause.wait(LOCK_POLL_SECONDS)
        else:
            return


def _living_owner(descriptor: int) -> int | None:
    try:
        held = json.loads(os.pread(descriptor, 4096, 0))
        identity = kernel.ProcessIdentity(held["pid"], held["start_ticks"], held["boot_id"])
    except (ValueError, KeyError, TypeError):
        return None  # a start between its lock and its record, or an empty file
    return identity.pid if kernel.is_alive(identity) else None

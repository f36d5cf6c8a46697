"""The file that says a system is ready and where; a stale one, left by a killed system, reads as none."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass

from gateway.embedded import kernel
from gateway.embedded.directory import DataDirectory, write_atomically
from interlock.durable import sync_folder


@dataclass(frozen=True, slots=True)
class Readiness:
    """What `ready.json` holds; `url` is null until a face listens; the last two tell a stale file."""

    url: str | None
    pid: int
    broker_url: str
    ledger_url: str
    version: str
    start_ticks: int
    boot_id: str


def announce_ready(
    directory: DataDirectory, owner: kernel.ProcessIdentity, version: str, url: str | None = None
) -> None:
    """Write the file; `owner` is the foreground process, whose end ends the system."""
    readiness = Readiness(
        url=url,
        pid=owner.pid,
        broker_url=directory.broker_url,
        ledger_url=directory.ledger_url,
        version=version,
        start_ticks=owner.start_ticks,
        boot_id=owner.boot_id,
    )
    write_atomically(directory.ready_file, asdict(readiness))


def read_ready(directory: DataDirectory) -> Readiness | None:
    """The readiness of the system that runs on `directory`; None when none is ready there."""
    try:
        held = json.loads(directory.ready_file.read_bytes())
        readiness = Readiness(**{name: held[name] for name in Readiness.__slots__})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    owner = kernel.ProcessIdentity(readiness.pid, readiness.start_ticks, readiness.boot_id)
    return readiness if kernel.is_alive(owner) else None


def withdraw_ready(directory: DataDirectory) -> None:
    """Remove the file, if it is there, before anything is stopped."""
    with contextlib.suppress(FileNotFoundError):
        directory.ready_file.unlink()
        sync_folder(directory.path)

"""A full disk: what cannot be kept is not accepted; what was accepted is finished when there is room."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import pytest

from tests.support.calling import Fate, Mix, Traffic, prepare
from tests.support.crashing import settle
from tests.support.running import running_system
from tests.support.wait import until

DISK_MIB = 96

pytestmark = pytest.mark.root


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own below `folder`."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=0755", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path) -> bool:
    """Write on until there is no room, to the last byte."""
    with file.open("ab", buffering=0) as written:
        for size in (2**20, 4096, 1):
            with pytest.raises(OSError, match="No space left"):
                write_on(written, b"\0" * size)
    return False


def write_on(file: FileIO, block: bytes) -> None:
    """Write for as long as it goes."""
    while True:
        file.write(block)


def test_a_full_disk_pauses_and_recovers(rng: random.Random) -> None:
    with running_system() as system, small_disk(system.directory.path):
        try:
            system.start()
            mix = Mix(rng)
            signer = prepare(system.directory, mix)
            with Traffic(system.directory, mix, signer, producers=2) as traffic:
                until(lambda: len(traffic.calls) >= 20, 20, "some calls")
                roles = system.roles()
                ballast = system.directory.path / "ballast"
                before = len(traffic.calls)
                # Again and again: the system itself gives room back now and then.
                until(lambda: fill(ballast) or stalled(traffic, before), 30, "calls pause, or are refused")
                ballast.unlink()
                after = len(traffic.calls)
                until(lambda: len(traffic.calls) >= after + 10, 30, "calls go on")
                assert settle(system, traffic) == []
                assert system.roles() == roles
        except BaseException:
            print(system.said())
            raise
        finally:
            system.end()


def stalled(traffic: Traffic, before: int) -> str:
    """How calls fare on the full disk: none is answered any more, or some are refused by a code."""
    later = traffic.calls[before:]
    refused = [call.code for call in later if call.code]
    waiting = [call for call in later if call.fate is Fate.UNKNOWN and call.sent + call.turned_away >= 10]
    return f"refused: {refused}" if refused else (f"waiting: {len(waiting)}" if waiting else "")

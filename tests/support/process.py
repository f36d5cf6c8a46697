"""Finds the processes that a run of the tests started, by a token that children inherit."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

TOKEN_VARIABLE = "INTERLOCK_TEST_RUN"


def processes_with_token(token: str) -> dict[int, str]:
    """Living processes of this account that carry the token, by id, with command line; never this one."""
    marker = f"{TOKEN_VARIABLE}={token}".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):
            if pid != os.getpid() and marker in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                if command and not is_zombie(folder):
                    found[pid] = command.decode(errors="replace")[:200]
    return found


def is_zombie(folder: Path) -> bool:
    """Whether the process behind this /proc folder has ended and only waits to be reaped."""
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"

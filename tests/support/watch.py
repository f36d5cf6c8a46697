"""Runs one command and fails when a process that it started outlives it. Standard library only.

It makes itself the reaper of orphans, so a process is found whatever it did to its environment, session or
parent. Used by `./run test`: watch.py [--as-id N] COMMAND... ; the exit code is the command's, or 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> int:
    """Run the command, as another id when told so, and end what it left behind."""
    who: dict[str, Any] = {}
    if argv[0] == "--as-id":
        number = int(argv[1])
        who, argv = {"user": number, "group": number, "extra_groups": []}, argv[2:]
    become_subreaper()
    code = wait_for(subprocess.Popen(argv, **who).pid)
    survivors = end_survivors()
    for line in survivors:
        print(f"FAILED: a process that the tests started outlived them: {line}", flush=True)
    return code or int(bool(survivors))


def become_subreaper() -> None:
    """What the command leaves behind becomes this process's child."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for(child_pid: int) -> int:
    """Reap everything until the child ends. Ctrl-C reaches it by the terminal; SIGTERM becomes one."""
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child_pid, signal.SIGINT))
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child_pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_survivors(grace_seconds: float = 2.0) -> list[str]:
    """Give what is left a moment to go, kill what stays, and say which that was."""
    survivors: dict[int, str] = {}
    give_up_at = time.monotonic() + grace_seconds
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        except ChildProcessError:
            return list(survivors.values())
        if time.monotonic() > give_up_at:
            for pid in children():
                survivors.setdefault(pid, f"{pid} {command_line(pid)}")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        threading.Event().wait(0.02)


def children() -> list[int]:
    """The process ids of the children of this process's only thread."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()]


def command_line(pid: int) -> str:
    """What the process was started as, at most 200 characters; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

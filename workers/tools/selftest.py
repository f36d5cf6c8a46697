"""The sandbox's self-test: runs inside a sandbox, tries to get out of it, and says what held.

Standard library only; its text alone goes in. A check that cannot be made counts as failed.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_CLONE_NEWUSER = 0x10000000
_NAMES = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "PWD", "LC_CTYPE"})


def answers(request: dict[str, Any]) -> dict[str, bool]:
    """Each check by name: True where the sandbox held."""
    status = _status()
    checks: dict[str, Callable[[], bool]] = {
        "files": lambda: (
            not os.path.exists(request["canary"]) and _is_refused(lambda: _write("/usr/interlock"))
        ),
        "identity": lambda: os.getuid() == request["uid"] and os.getgid() == request["uid"],
        "capabilities": lambda: int(status["CapEff"], 16) == 0 == int(status["CapBnd"], 16),
        "no-new-privileges": lambda: status["NoNewPrivs"] == "1",
        "environment": lambda: os.environ.keys() <= _NAMES,
        "descriptors": lambda: set(os.listdir("/proc/self/fd")) <= {"0", "1", "2", "3"},
        "processes": lambda: len(list(filter(str.isdigit, os.listdir("/proc")))) <= 3,
        "kernel-settings": lambda: _is_refused(lambda: _write("/proc/sys/kernel/hostname")),
        "network": lambda: _is_refused(lambda: socket.create_connection(("127.0.0.1", request["port"]), 1)),
    }
    return {name: _holds(check) for name, check in checks.items()}


def can_make_namespaces() -> bool:
    """Whether a user namespace can be made inside; it is the last thing tried, for it changes us."""
    return bool(ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0)


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except Exception:  # noqa: BLE001 - a check that breaks has not shown that the sandbox holds
        return False


def _is_refused(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def _write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _status() -> dict[str, str]:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        pairs = (line.rstrip("\n").split(":\t", 1) for line in file)
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def main() -> NoReturn:
    """Reads one request, prints `{"held": {name: bool}, "denies_namespaces": bool}`, exits 0."""
    held = answers(json.load(sys.stdin))
    sys.stdout.write(json.dumps({"held": held, "denies_namespaces": not can_make_namespaces()}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

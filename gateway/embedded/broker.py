"""Supervises one Valkey server on a data directory: settings, lock, start, and what to do with bad files.

The server listens on a socket that only this account can open. Nothing that was accepted rests on its files:
the ledger refills it, so a file that cannot be read is set aside and the server starts empty. What is lost
then are proposals that nobody had taken yet; their senders resend until they are answered.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway.embedded import kernel
from gateway.embedded.adapters.valkey import ServerBinary, answers
from gateway.embedded.directory import DataDirectory
from gateway.embedded.error import BrokerError

MEBIBYTE = 2**20
ITEM_BYTES_MAX = 4 * MEBIBYTE  # larger ones are refused while they arrive
MEMORY_LIMIT_BYTES = 1024 * MEBIBYTE  # the stream's window of 512 MiB, and as much for queues
CLIENT_BUFFER_BYTES = 64 * MEBIBYTE  # one pipelined batch
CLIENTS_MAX = 1_000
LOCK_WAIT_SECONDS = 5.0
POLL_SECONDS = 0.002
LOG_BYTES_MAX = 4 * MEBIBYTE
LOG_TAIL_BYTES = 16_384
DATA_FOLDER = "appendonlydir"
#: What the server says before it ends because of its own files, and of nothing else.
BAD_FILE_WORDS = (
    "Bad file format reading the append only file",
    "Unexpected end of file reading the append only file",
    "Unrecoverable error reading the append only file",
    "Wrong signature trying to load DB from file",
    "Can't handle RDB format version",
    "Terminating server after rdb file reading failure",
    "Internal error in RDB reading",
    "FATAL AOF MANIFEST FILE ERROR",
    "Unable to obtain the AOF file",
    "Check RDB returned error code",
    "BUG REPORT START",  # before it was ready only: a damaged file can end it by an assertion
)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What may differ between installations."""

    memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    item_bytes_max: int = ITEM_BYTES_MAX


def config_text(directory: DataDirectory, settings: BrokerSettings) -> str:
    """The server's settings; paths are quoted, so that a space in them is no second argument."""
    lines = (
        "port 0",
        f"unixsocket {_quoted(directory.broker_socket)}",
        "unixsocketperm 600",
        f"dir {_quoted(directory.broker)}",
        f"logfile {_quoted(_log(directory))}",
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        f"appenddirname {DATA_FOLDER}",
        "aof-load-truncated yes",
        'save ""',
        f"maxmemory {settings.memory_limit_bytes}",
        "maxmemory-policy noeviction",
        f"proto-max-bulk-len {settings.item_bytes_max}",
        f"client-query-buffer-limit {CLIENT_BUFFER_BYTES}",
        "maxmemory-clients 25%",
        f"maxclients {CLIENTS_MAX}",
        "stop-writes-on-bgsave-error no",
        "enable-protected-configs no",
        "enable-debug-command no",
        "enable-module-command no",
        "always-show-logo no",
    )
    return "\n".join(lines) + "\n"


def become_server(directory: DataDirectory, binary: ServerBinary, settings: BrokerSettings) -> int:
    """Turn this process into the server of `directory`; returns only by BrokerError.

    The lock goes with it: it is free again exactly when the server is gone, whoever started it.
    """
    lock = _lock_files(directory)
    set_aside_bad_files(directory)
    _rotate_log(directory)
    config = directory.broker / "server.conf"
    config.write_text(config_text(directory, settings), encoding="utf-8")
    os.set_inheritable(lock, True)
    environment = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ} | {"LC_ALL": "C"}
    os.execve(binary.path, ["interlock-broker", str(config)], environment)


def set_aside_bad_files(directory: DataDirectory) -> Path | None:
    """Move data that the last server could not read out of the way; returns where it lies now, or None.

    A cut tail is no such case: the server itself loads what stands before it.
    """
    if not _log_says_bad_file(directory):
        return None
    data = directory.broker / DATA_FOLDER
    if not data.exists():
        return None
    aside = directory.broker / f"{DATA_FOLDER}.unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
    data.rename(aside)
    _append_log(directory, f"unreadable files were moved to {aside}; starting empty, the ledger refills it")
    return aside


def files_set_aside(directory: DataDirectory) -> list[Path]:
    """What was moved out of the way on this directory so far, oldest first."""
    return sorted(directory.broker.glob(f"{DATA_FOLDER}.unreadable-*"))


def is_ready(directory: DataDirectory, pid: int | None = None) -> bool:
    """Whether the server of `directory` answers; with `pid`, whether it is that process that does."""
    return answers(directory.broker_socket, pid)


class BrokerServer:
    """A server below this process, for whoever needs one without the whole process tree.

    Start it from the main thread: the kernel ends the server together with the *thread* that started it.
    """

    def __init__(
        self, directory: DataDirectory, binary: ServerBinary, settings: BrokerSettings | None = None
    ) -> None:
        self._directory = directory
        self._binary = binary
        self._settings = settings or BrokerSettings()
        self.pid: int | None = None

    def start(self, wait_seconds: float = 30.0) -> None:
        """Start and wait until it answers; once more, empty, when its files cannot be read."""
        deadline = time.monotonic() + wait_seconds
        pause = threading.Event()
        retried = False
        self._fork()
        while not (self.pid and is_ready(self._directory, self.pid)):
            if self._has_ended():
                if retried or not _log_says_bad_file(self._directory):
                    raise BrokerError(f"the server ended while it started; see {_log(self._directory)}")
                retried = True
                self._fork()
            if time.monotonic() >= deadline:
                self.kill()
                raise BrokerError(f"the server did not answer within {wait_seconds} s")
            pause.wait(POLL_SECONDS)

    def stop(self, wait_seconds: float = 10.0) -> None:
        """End it cleanly, by force when it overstays; its data is on disk afterwards."""
        if self.pid is None:
            return
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + wait_seconds
        pause = threading.Event()
        while not self._has_ended():
            if time.monotonic() >= deadline:
                self.kill()
            pause.wait(POLL_SECONDS)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = None

    def _fork(self) -> None:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            _serve_as_child(parent, self._directory, self._binary, self._settings)
        self.pid = child

    def _has_ended(self) -> bool:
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0] != 0:
            self.pid = None
        return self.pid is None


def _serve_as_child(
    parent: int, directory: DataDirectory, binary: ServerBinary, settings: BrokerSettings
) -> None:
    """In the forked child: become the server, or end; never returns."""
    try:
        os.setsid()  # Ctrl-C in the terminal must not end it before its clients have drained
        kernel.die_with_parent(parent)
        become_server(directory, binary, settings)
    except (OSError, BrokerError) as error:
        _append_log(directory, f"could not be started: {error}")
    finally:
        os._exit(70)


def _lock_files(directory: DataDirectory) -> int:
    """Take the lock on the server's files, waiting for a dying server; BrokerError when it stays taken."""
    descriptor = os.open(directory.broker / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    pause = threading.Event()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise BrokerError(f"another server works on {directory.broker}") from None
            pause.wait(POLL_SECONDS)
        else:
            return descriptor


def _log_says_bad_file(directory: DataDirectory) -> bool:
    """Whether the last thing that the last server did was to give up on its files."""
    try:
        with open(_log(directory), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            tail = file.read().decode(errors="replace")
    except FileNotFoundError:
        return False
    last_start = tail.rpartition("oO0OoO0OoO0Oo")[2]
    return (
        any(word in last_start for word in BAD_FILE_WORDS) and "Ready to accept connections" not in last_start
    )


def _rotate_log(directory: DataDirectory) -> None:
    log = _log(directory)
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))


def _append_log(directory: DataDirectory, line: str) -> None:
    with open(_log(directory), "a", encoding="utf-8") as file:
        file.write(f"interlock: {line}\n")


def _log(directory: DataDirectory) -> Path:
    return directory.broker / "valkey.log"


def _quoted(path: Path) -> str:
    """A path as the server's settings file takes it, with every byte outside plain ASCII escaped."""
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\' else f"\\x{byte:02x}"
        for byte in os.fsencode(path)
    )
    return f'"{escaped}"'

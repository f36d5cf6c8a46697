"""The ledger's file, its connections and the lock file at which writers queue.

Every connection's durability settings are read back and compared. Never knows what the tables mean.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from governance.adapters.sqlite_ledger.fault import is_undecided, is_untrusted, translated
from interlock.errors import CommitUnknownError, LedgerClosedError, LedgerUnavailableError

SQLITE_VERSION_MIN = (3, 38, 0)
CONNECTIONS_MAX = 32
BUSY_TIMEOUT_MS = 5_000

_PRAGMAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # name → (what is set, what is read back)
        "busy_timeout": (str(BUSY_TIMEOUT_MS), str(BUSY_TIMEOUT_MS)),
        "journal_mode": ("WAL", "wal"),
        "synchronous": ("FULL", "2"),
        "fullfsync": ("ON", "1"),
        "checkpoint_fullfsync": ("ON", "1"),
        "recursive_triggers": ("ON", "1"),
        "foreign_keys": ("ON", "1"),
        "trusted_schema": ("OFF", "0"),
        "cell_size_check": ("ON", "1"),
        "temp_store": ("MEMORY", "2"),
        "cache_size": ("-16000", "-16000"),
        "wal_autocheckpoint": ("8000", "8000"),
        "journal_size_limit": ("67108864", "67108864"),
    }
)


class Database:
    """One file and every connection this process has to it; safe to use from several threads.

    In another process than the one that opened it, it raises RuntimeError: SQLite does not survive a fork.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._pid = os.getpid()
        self._closed: str | None = None
        self._turn = threading.Lock()
        self._writer: int | None = None
        self._read_only = read_only
        self._lock_file = -1 if read_only else _open_lock_file(path)
        _let_go_in_children(self)
        self._engine = _engine(path, read_only)

    @property
    def pool(self) -> Engine:
        """The engine whose pool the connections come from."""
        return self._engine

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a read transaction; what it sees does not change until the end."""
        self._require_open()
        with self._connection() as connection:
            try:
                connection.execute("BEGIN")
                yield connection
            except sqlite3.Error as error:
                raise self._judged(error) from error
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection inside the only write transaction there is. It commits nothing: `commit` does."""
        if self._read_only:
            raise LedgerUnavailableError("the ledger was opened to be read only")
        self._require_open()
        with self.turn(), self._connection() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
            except sqlite3.Error as error:
                raise self._judged(error) from error
            finally:
                _roll_back(connection)

    def commit(self, connection: sqlite3.Connection) -> None:
        """Make the transaction durable.

        Raises LedgerUnavailableError where it is rolled back for sure, CommitUnknownError where its pages may
        have reached the disk; then the ledger is closed.
        """
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if is_undecided(error):
                self._closed = str(error)
                raise CommitUnknownError(f"{type(error).__name__}: {error}") from error
            raise self._judged(error) from error

    @contextmanager
    def turn(self) -> Iterator[None]:
        """This thread's turn to write, among all threads and processes; waits as long as it takes."""
        if self._writer == threading.get_ident():
            raise RuntimeError("a write transaction is already open in this thread")
        with self._turn:
            self._require_open()
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            self._writer = threading.get_ident()
            try:
                yield
            finally:
                self._writer = None
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def settings(self) -> dict[str, str]:
        """Every durability setting as a live connection answers it now."""
        with self.reading() as connection:
            return {name: _read_back(connection, name) for name in _PRAGMAS}

    def close(self) -> None:
        """Close every connection that is not in use; the last one of all processes empties the log."""
        if self._pid != os.getpid() or self._closed == "closed":
            return
        if self._read_only:
            self._engine.dispose()
        else:
            # The last connection to close moves the log into the file: it waits for its turn like a writer.
            with self._turn:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX)
                self._engine.dispose()
                self.let_go()
        self._closed = "closed"

    def let_go(self) -> None:
        """Close the lock file: at the end, and in a forked child, which would keep its parent's turn."""
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            pooled = self._engine.raw_connection()
        except sqlite3.Error as error:
            raise self._judged(error) from error
        connection = cast(sqlite3.Connection, pooled.driver_connection)
        try:
            yield connection
        finally:
            # One that could not be rolled back is of no use; one of a closed ledger would never be closed.
            if connection.in_transaction or self._closed is not None:
                pooled.invalidate()
            pooled.close()

    def _require_open(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("a ledger is opened by the process that uses it, after it was forked")
        if self._closed is not None:
            raise LedgerClosedError(self._closed)

    def _judged(self, error: sqlite3.Error) -> Exception:
        if is_untrusted(error):
            self._closed = f"{error}"
        return translated(error)


def _roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction, if one is open; where even that fails its owner throws the connection away."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _let_go_in_children(database: Database) -> None:
    held = weakref.ref(database)

    def let_go() -> None:
        found = held()
        if found is not None:
            found.let_go()

    os.register_at_fork(after_in_child=let_go)


def _open_lock_file(path: Path) -> int:
    return os.open(path.with_name(path.stem + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _engine(path: Path, read_only: bool) -> Engine:
    target = _read_only_uri(path) if read_only else f"file:{quote(str(path))}?mode=rw"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            target, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000
        )

    engine = create_engine(
        "sqlite+pysqlite://", creator=connect, poolclass=QueuePool, pool_size=4,
        max_overflow=CONNECTIONS_MAX - 4, pool_reset_on_return=None, pool_use_lifo=True,
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        _configure(connection, read_only)

    return engine


def _read_only_uri(path: Path) -> str:
    # Without a log beside it nobody has the file open, and SQLite need not make one to read it.
    immutable = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    return f"file:{quote(str(path))}?mode=ro{immutable}"


def _configure(connection: sqlite3.Connection, read_only: bool) -> None:
    for name, (value, expected) in _PRAGMAS.items():
        if read_only and name == "journal_mode":
            continue
        connection.execute(f"PRAGMA {name} = {value}")
        answer = _read_back(connection, name)
        if answer != expected:
            raise LedgerUnavailableError(f"SQLite answers {name} = {answer} where {expected} was asked for")


def _read_back(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute(f"PRAGMA {name}").fetchone()
    return "" if row is None else str(row[0])

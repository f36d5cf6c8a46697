"""The connections to one database, and the two kinds of transactions that run on them.

Every connection's settings are set at its start, read back and compared. Never knows what the tables mean.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from governance.adapters.postgres_ledger.binary import teach
from governance.adapters.postgres_ledger.fault import STORE_ERRORS, StoreError, is_undecided, translated
from interlock.clock import Clock
from interlock.errors import (
    CommitUnknownError,
    InterlockError,
    LedgerClosedError,
    LedgerUnavailableError,
    OursToFixError,
    UsageError,
)

Connection = psycopg.Connection[tuple[Any, ...]]

CONNECTIONS_KEPT = 4
CONNECTIONS_MAX = 32
POOL_WAIT_SECONDS = 10.0
PREPARED_MAX = 200
"""Statements a connection keeps; there are fewer than that."""

CONTROL = "control"
"""The key that everybody shares, and a switch of the control epoch holds alone."""

_SESSION: Mapping[str, str] = MappingProxyType(
    {
        "application_name": "interlock-ledger",
        "search_path": "public",
        # A process that is stopped in its turn must not keep its locks, nor the horizon of all others.
        "idle_in_transaction_session_timeout": "20s",
        "lock_timeout": "15s",
        "statement_timeout": "45s",
        # Every question has its index, and a plan made for an empty table must be right for a full one.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
    }
)
_SERVER = (
    "fsync", "synchronous_commit", "full_page_writes", "server_version", "max_locks_per_transaction",
    "max_connections", "data_checksums", "wal_sync_method", "transaction_isolation",
)  # fmt: skip
_DURABILITY: Mapping[str, str] = MappingProxyType({"fsync": "off", "synchronous_commit": "off"})
"""What a server must not answer: it would acknowledge what it may lose."""

# One that does not answer is given up on after these, so that no lost packet holds a process for hours.
_NETWORK: Mapping[str, str | int] = MappingProxyType(
    {
        "connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
        "tcp_user_timeout": 20_000, "client_encoding": "utf8",
    }
)  # fmt: skip

_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_NOW}"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


class Database:
    """One database and every connection this process has to it; safe to use from several threads.

    In another process than the one that opened it, it raises RuntimeError: two processes on one connection
    would read each other's answers. `clock` replaces the server's where a test moves the time.
    """

    def __init__(self, url: str, *, read_only: bool = False, clock: Clock | None = None) -> None:
        self._conninfo = conninfo_of(url, read_only=read_only)
        self._read_only = read_only
        self._clock = clock
        self._pid = os.getpid()
        self._closed: str | None = None
        self._writers: set[int] = set()
        self._pool = QueuePool(
            cast(Any, self._connect),
            pool_size=CONNECTIONS_KEPT,
            max_overflow=CONNECTIONS_MAX - CONNECTIONS_KEPT,
            timeout=POOL_WAIT_SECONDS,
            reset_on_return=None,
            use_lifo=True,
        )

    @contextmanager
    def reading(self) -> Iterator[tuple[Connection, int]]:
        """A connection inside a read transaction, and the store's clock at its begin.

        What it sees does not change until the end.
        """
        with self._transaction(_READ) as (connection, now_us):
            yield connection, now_us
            # Not by ROLLBACK, after which the driver forgets every statement that it had prepared.
            connection.execute("COMMIT", prepare=False)

    @contextmanager
    def writing(self, keys: Sequence[int], control: int, *, alone: bool) -> Iterator[tuple[Connection, int]]:
        """A connection that holds these locks, and the store's clock read under them.

        It commits nothing: `commit` does.
        """
        if self._read_only:
            raise LedgerUnavailableError("the ledger was opened to be read only")
        with self._turn(), self._transaction(_begin(keys, control, alone=alone)) as begun:
            yield begun

    @contextmanager
    def single(self) -> Iterator[Connection]:
        """A connection on which each statement is a transaction of its own."""
        self._require_open()
        with self._errors(), self._connection("") as (connection, _):
            yield connection

    def commit(self, connection: Connection) -> None:
        """Make the transaction durable.

        Raises LedgerUnavailableError where it is rolled back for sure, CommitUnknownError where the answer
        was lost.
        """
        try:
            answer = connection.execute("COMMIT", prepare=False).statusmessage
        except psycopg.Error as error:
            if is_undecided(error):
                raise CommitUnknownError(f"{type(error).__name__}: {error}") from error
            raise self._judged(error) from error
        if answer != "COMMIT":
            raise LedgerUnavailableError(f"the transaction had failed before its commit: {answer}")

    def settings(self) -> dict[str, str]:
        """Every setting that durability and locks rest on, as a live connection answers it now."""
        with self.single() as connection:
            return _settings(connection)

    def close(self) -> None:
        """Close every connection that is not in use; one in use is closed when it comes back."""
        if self._pid == os.getpid() and self._closed is None:
            self._closed = "closed"
            self._pool.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        me = threading.get_ident()
        if me in self._writers:
            raise RuntimeError("a write transaction is already open in this thread")
        self._writers.add(me)
        try:
            yield
        finally:
            self._writers.discard(me)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[tuple[Connection, int]]:
        self._require_open()
        with self._errors(), self._connection(begin) as (connection, answer):
            try:
                yield connection, int(answer) if self._clock is None else self._clock.now_us()
            finally:
                _roll_back(connection)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except STORE_ERRORS as error:
            raise self._judged(error) from error

    @contextmanager
    def _connection(self, first: str) -> Iterator[tuple[Connection, Any]]:
        """A connection of the pool, and the answer to the first statement on it."""
        pooled, answer = self._take(first)
        connection = cast(Connection, pooled.driver_connection)
        try:
            yield connection, answer
        finally:
            # One that could not be rolled back is of no use; one of a closed ledger would never be closed.
            if connection.info.transaction_status is not TransactionStatus.IDLE or self._closed is not None:
                pooled.invalidate()
            pooled.close()

    def _take(self, first: str) -> tuple[PoolProxiedConnection, Any]:
        """A live connection: those that a restarted server left behind are dropped, nothing was asked yet."""
        while True:
            pooled = self._pool.connect()
            connection = cast(Connection, pooled.driver_connection)
            is_fresh = not pooled.info.get("is_used")
            pooled.info["is_used"] = True
            try:
                return pooled, _last_answer(connection, first)
            except psycopg.Error:
                is_gone = connection.closed
                _roll_back(connection)
                pooled.invalidate()
                if is_fresh or not is_gone:
                    raise
            except BaseException:
                pooled.invalidate()
                raise

    def _connect(self) -> Connection:
        connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=0)
        try:
            connection.prepared_max = PREPARED_MAX
            teach(connection)
            _require_durable(_settings(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_open(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("a ledger is opened by the process that uses it, after it was forked")
        if self._closed is not None:
            raise LedgerClosedError(self._closed)

    def _judged(self, error: StoreError) -> InterlockError | ValueError:
        judged = translated(error)
        if isinstance(judged, LedgerClosedError):
            self._closed = judged.message
        return judged


def conninfo_of(url: str, *, read_only: bool) -> str:
    """What the driver is told for this address; raises UsageError for what is no address."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UsageError(f"no address of a PostgreSQL database: {error}") from error
    session = dict(_SESSION) | ({"default_transaction_read_only": "on"} if read_only else {})
    options = " ".join(f"-c {name}={value}" for name, value in session.items())
    return make_conninfo(
        "", **(dict(_NETWORK) | said), options=f"{said.pop('options', '')} {options}".strip()
    )


def key_of(name: str) -> int:
    """The signed 64 bits that a key's lock is known by."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def _begin(keys: Sequence[int], control: int, *, alone: bool) -> str:
    """All locks in one order, then the clock, in one exchange. The control key comes first for everybody."""
    shared = "" if alone else "_shared"
    locks = f"SELECT pg_advisory_xact_lock{shared}({control})"
    if keys:
        listed = ",".join(map(str, sorted(set(keys))))
        locks += f"; SELECT count(pg_advisory_xact_lock(key)) FROM unnest('{{{listed}}}'::bigint[]) AS key"
    return f"{_WRITE}; {locks}; {_NOW}"


def _last_answer(connection: Connection, text: str) -> Any:
    """The one value of the last of several statements."""
    if not text:
        return None
    cursor = connection.execute(text, prepare=False)
    while cursor.nextset():
        pass
    row = cursor.fetchone()
    return None if row is None else row[0]


def _settings(connection: Connection) -> dict[str, str]:
    names = [*_SESSION, *_SERVER]
    listed = ", ".join(f"current_setting('{name}')" for name in names)
    row = connection.execute(f"SELECT {listed}", prepare=False).fetchone()
    return dict(zip(names, map(str, row or ()), strict=True))


def _require_durable(settings: Mapping[str, str]) -> None:
    for name, refused in _DURABILITY.items():
        if settings[name] == refused:
            raise OursToFixError(
                "CONFIG_INVALID", f"PostgreSQL answers {name} = {refused}: it may lose commits"
            )
    for name, expected in _SESSION.items():
        if settings[name] != expected:
            raise LedgerUnavailableError(f"PostgreSQL answers {name} = {settings[name]}, not {expected}")


def _roll_back(connection: Connection) -> None:
    """End the transaction, if one is open; where even that fails its owner throws the connection away."""
    if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK", prepare=False)

"""The views in a PostgreSQL database: their schema, their connections, and what its errors mean here.

It never looks into a record. The tables are derived from the ledger, so they may always be begun anew; no
commit here waits for the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.rows import TupleRow
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import QueuePool

from interlock.errors import OursToFixError, RetryLaterError

FORMAT = 1
CONNECT_SECONDS = 5
CONNECTIONS_MAX = 8
MAKING = "interlock.views"
"""What whoever makes the tables, or a new epoch, holds."""

Connection = psycopg.Connection[TupleRow]

TABLES = f"""
DROP TABLE IF EXISTS views.checkpoint, views.record, views.stop, views.format;
CREATE TABLE views.checkpoint (
    name text NOT NULL, epoch integer NOT NULL, seq bigint NOT NULL, reducer_version integer NOT NULL,
    incarnation text NOT NULL, hash text NOT NULL, live boolean NOT NULL,
    PRIMARY KEY (name, epoch)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX checkpoint_live ON views.checkpoint (name) WHERE live;
CREATE TABLE views.record (
    name text NOT NULL, epoch integer NOT NULL, tenant text NOT NULL, session text NOT NULL,
    position bigint NOT NULL, invocation_id text NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (name, epoch, invocation_id)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX record_session ON views.record (name, epoch, tenant, session, position);
CREATE TABLE views.stop (
    name text NOT NULL, epoch integer NOT NULL, tenant text NOT NULL, session text NOT NULL,
    seq bigint NOT NULL, code text NOT NULL, detail text NOT NULL,
    PRIMARY KEY (name, epoch, tenant, session)
);
CREATE TABLE views.format (format integer NOT NULL);
INSERT INTO views.format VALUES ({FORMAT});
"""
"""A record's body is in no index: what replaces it stays on its page, and no index is touched."""


class ViewsDatabase:
    """One database and the connections this process has to it. Open it in the process that uses it."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._url, self.read_only = url, read_only
        self._engine = self._make_engine()

    @contextmanager
    def statements(self) -> Iterator[Connection]:
        """A connection on which every statement is a transaction of its own."""
        with self._connection() as connection, _errors():
            yield connection

    @contextmanager
    def transaction(self, *settings: str) -> Iterator[Connection]:
        """A connection inside one transaction that is committed unless an exception leaves it."""
        with self._connection() as connection, _errors(), connection.transaction():
            for setting in ("synchronous_commit = off", *settings):
                connection.execute(f"SET LOCAL {setting}".encode())
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection that sees one moment; it takes no transaction id, so no relay waits for it."""
        with self._connection() as connection, _errors(), connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # Whoever compares folds in between.
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield connection

    def prepare(self) -> None:
        """Make the tables where there are none, or only older ones.

        Raises OursToFixError for a later format, and where they are to be made and this account may not.
        """
        if self.format() == FORMAT:
            return
        with self.transaction() as connection:
            lock(connection, MAKING)
            if self.format() == FORMAT:
                return
            make_tables(connection)

    def format(self) -> int:
        """The format of the tables, 0 where there are none; OursToFixError for a later one."""
        with self.statements() as connection:
            there = connection.execute("SELECT to_regclass('views.format') IS NOT NULL").fetchone()
            if there is None or not there[0]:
                return 0
            row = connection.execute("SELECT format FROM views.format").fetchone()
        found = 0 if row is None else int(row[0])
        if found > FORMAT:
            raise OursToFixError(
                "LEDGER_FORMAT", f"the views have format {found}, this program knows {FORMAT}"
            )
        return found

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with _errors():
            pooled = self._engine.raw_connection()
        connection = cast(Connection, pooled.driver_connection)
        try:
            yield connection
        except BaseException:
            if connection.broken or connection.closed:
                # The server went away under all of them.
                self._engine.dispose()
                self._engine = self._make_engine()
            raise
        finally:
            pooled.close()

    def _make_engine(self) -> Engine:
        def connect() -> Any:
            # Without prepared statements: poolers in between do not keep them apart.
            return psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=CONNECT_SECONDS,
                # No lost packet holds a projector for hours.
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=20_000,
                application_name="interlock-views",
            )

        return create_engine(
            "postgresql+psycopg://",
            creator=connect,
            poolclass=QueuePool,
            max_overflow=CONNECTIONS_MAX,
            pool_reset_on_return=None,
            skip_autocommit_rollback=True,
        )


def make_tables(connection: Connection) -> None:
    """Make schema and tables anew inside the caller's transaction; OursToFixError without the right to."""
    try:
        with connection.transaction():
            row = connection.execute("SELECT to_regnamespace('views') IS NULL").fetchone()
            if row is None or row[0]:
                connection.execute("CREATE SCHEMA views")
            connection.execute(TABLES.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise OursToFixError(
            "LEDGER_FORMAT", "the views' tables are missing or old, and this account may not make them"
        ) from error


def lock(connection: Connection, name: str) -> None:
    """Hold a name until the end of the transaction."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))


def try_lock(connection: Connection, name: str) -> bool:
    """Hold a name until the end of the transaction if nobody else does."""
    row = connection.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", (name,)).fetchone()
    return row is not None and bool(row[0])


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        code = "DISK_FULL" if isinstance(error, psycopg.errors.DiskFull) else "NOT_READY"
        raise RetryLaterError(code, f"the views cannot be reached: {error}") from error

"""The two stores as a migration sees them: which format, one at a time, one step, one number.

It moves no row of the ledger but the two numbers of its format.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psycopg
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from governance.adapters.migration import FormatReport, Location
from governance.adapters.postgres_ledger import schema as postgres_schema
from governance.adapters.postgres_ledger.connection import key_of
from governance.adapters.postgres_ledger.fault import translated
from governance.adapters.sqlite_ledger import schema as sqlite_schema
from governance.adapters.sqlite_ledger.connection import Database
from interlock.errors import NotFoundError, OursToFixError

FOLDER = Path(__file__).parent
ALONE = "interlock.ledger.migration"
CREATION = "interlock.ledger.creation"
"""What whoever opens a ledger that is yet to be made holds."""
TRY_SECONDS = 0.1
_STAMP = """INSERT INTO meta (name, value) VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""


class Store(Protocol):
    """One ledger's file or database."""

    @property
    def versions(self) -> Path:
        """The folder of its steps."""
        ...

    def report(self) -> FormatReport: ...

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else takes steps inside."""
        ...

    def step(self, *, in_transaction: bool) -> AbstractContextManager[Connection]:
        """A connection for one step; in a transaction that is committed at the end, or by statement."""
        ...

    def found(self, connection: Connection) -> int:
        """The format that this step starts from."""
        ...

    def stamp(self, connection: Connection, reached: int, min_reader: int) -> None:
        """Write which format was reached."""
        ...


def store_of(location: Location, *, write: bool = False) -> AbstractContextManager[Store]:
    """The store at this place."""
    return _sqlite(location, write) if isinstance(location, Path) else _postgres(location)


@contextmanager
def _sqlite(path: Path, write: bool) -> Iterator[Store]:
    if not path.exists():
        raise NotFoundError("ledger", str(path))
    database = Database(path, read_only=not write)
    try:
        yield SqliteStore(database)
    finally:
        database.close()


@contextmanager
def _postgres(url: str) -> Iterator[Store]:
    def connect() -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            url,
            application_name="interlock-migrate",
            # The caller's own settings must not hide our tables, nor end whoever waits for a long index.
            options="-c search_path=public -c idle_in_transaction_session_timeout=0 -c statement_timeout=0",
        )

    engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
    try:
        yield PostgresStore(engine)
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translated(error.orig) from error
        raise
    except psycopg.Error as error:
        raise translated(error) from error
    finally:
        engine.dispose()


class SqliteStore:
    """A file; every step waits for the writers' turn, like any writer."""

    versions = FOLDER / "sqlite_versions"

    def __init__(self, database: Database) -> None:
        self._database = database

    def report(self) -> FormatReport:
        with self._database.reading() as connection:
            there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone()
            meta = dict(connection.execute("SELECT name, value FROM meta")) if there else {}
        return _report(meta, sqlite_schema.SCHEMA_VERSION)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._database.turn():
            yield

    @contextmanager
    def step(self, *, in_transaction: bool) -> Iterator[Connection]:  # noqa: ARG002 - see below
        """One transaction always: nothing on SQLite needs another way."""
        with self._database.pool.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(DBAPIError):
                    connection.exec_driver_sql("ROLLBACK")
                raise

    def found(self, connection: Connection) -> int:
        return _found(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'")

    def stamp(self, connection: Connection, reached: int, min_reader: int) -> None:
        _stamp(connection, reached, min_reader)


class PostgresStore:
    """A database; whoever takes steps holds a lock in a transaction beside, which takes no id and no row."""

    versions = FOLDER / "postgres_versions"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def report(self) -> FormatReport:
        with self._engine.connect() as connection:
            there = connection.execute(text("SELECT to_regclass('meta') IS NOT NULL")).scalar_one()
            rows = connection.execute(text("SELECT name, value FROM meta")).all() if there else []
        return _report({row[0]: row[1] for row in rows}, postgres_schema.SCHEMA_VERSION)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._engine.connect() as connection:
            # Asked again and again: one that waits inside a statement would itself be waited for by an index
            # that is being made, and nobody would see the circle.
            # Without parameters, for those leave a snapshot behind that the index would wait for, too.
            take = f"SELECT pg_try_advisory_xact_lock({key_of(ALONE)})"
            plain = {"no_parameters": True}
            pause = threading.Event()
            while not connection.exec_driver_sql(take, execution_options=plain).scalar_one():
                connection.rollback()
                pause.wait(TRY_SECONDS)
            yield

    @contextmanager
    def step(self, *, in_transaction: bool) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            if in_transaction:
                with connection.begin():
                    # A lock that a long reading holds must not queue every writer behind this step.
                    connection.execute(text("SET LOCAL lock_timeout = '10s'"))
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key_of(CREATION)})
                    yield connection
            else:
                yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def found(self, connection: Connection) -> int:
        return _found(connection, "SELECT count(to_regclass('meta'))")

    def stamp(self, connection: Connection, reached: int, min_reader: int) -> None:
        _stamp(connection, reached, min_reader)


def _report(meta: dict[str, str], newest: int) -> FormatReport:
    found, min_reader = int(meta.get("schema_version", 0)), int(meta.get("min_reader", 0))
    if min_reader > newest:
        raise OursToFixError(
            "LEDGER_FORMAT",
            f"the ledger has format {found}, for programs that know {min_reader}; this one knows {newest}",
        )
    return FormatReport(found, min_reader, newest)


def _found(connection: Connection, has_meta: str) -> int:
    if not connection.execute(text(has_meta)).scalar_one():
        return 0
    return int(connection.execute(text("SELECT value FROM meta WHERE name = 'schema_version'")).scalar_one())


def _stamp(connection: Connection, reached: int, min_reader: int) -> None:
    for name, value in (("schema_version", reached), ("min_reader", min_reader)):
        connection.execute(text(_STAMP), {"name": name, "value": str(value)})

"""The file of the views: its tables, how it is opened, and what becomes of a damaged one.

It never looks into a record. The file is derived from the ledger, so it may always be begun anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import (
    Boolean,
    Column,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    event,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from interlock.errors import OursToFixError, RetryLaterError

FORMAT = 2
"""2: rows are keyed by tenant and session."""
BUSY_TIMEOUT_SECONDS = 5.0
LOG_PAGES = 4_000
"""How long the log beside the file grows, 16 MiB, before it is moved into it."""
_log = logging.getLogger(__name__)

METADATA = MetaData()

CHECKPOINT = Table(
    "projection_checkpoint",
    METADATA,
    Column("name", String, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("reducer_version", Integer, nullable=False),
    Column("incarnation", String, nullable=False),
    Column("hash", String, nullable=False),
    Column("live", Boolean, nullable=False),
)
Index("projection_live", CHECKPOINT.c.name, unique=True, sqlite_where=text("live = 1"))

RECORD = Table(
    "projection_record",
    METADATA,
    Column("name", String, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("tenant", String, primary_key=True),
    Column("session", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("invocation_id", String, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("name", "epoch", "invocation_id"),
)

STOP = Table(
    "projection_stop",
    METADATA,
    Column("name", String, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("tenant", String, primary_key=True),
    Column("session", String, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("code", String, nullable=False),
    Column("detail", String, nullable=False),
)


def engine_of(path: Path, *, read_only: bool) -> Engine:
    # Without a log beside it nobody has the file open, and it can be read without making one.
    immutable = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    mode = f"ro{immutable}" if read_only else "rw"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_SECONDS,
        )

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # The pages of the indexes are written again by every batch, and moved into the file once.
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")

    return engine


def made(path: Path) -> Engine:
    """The engine of a file that exists and has our tables. Raises sqlite3.DatabaseError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    engine = engine_of(path, read_only=False)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            found = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
            if found > FORMAT:
                raise OursToFixError(
                    "LEDGER_FORMAT", f"{path} has format {found}, this program knows {FORMAT}"
                )
            if found < FORMAT:
                METADATA.drop_all(connection)
                METADATA.create_all(connection)
                connection.exec_driver_sql(f"PRAGMA user_version = {FORMAT}")
            connection.commit()
    except BaseException as error:
        engine.dispose()
        if isinstance(error, DBAPIError) and isinstance(error.orig, sqlite3.DatabaseError):
            raise error.orig from error
        raise
    return engine


def is_current(path: Path) -> bool:
    """Whether a file is there that this program can read; an older one is begun anew by whoever projects."""
    if not path.exists():
        return False
    engine = engine_of(path, read_only=True)
    try:
        with view_errors(), engine.connect() as connection:
            return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one()) == FORMAT
    finally:
        engine.dispose()


def file_identity(path: Path | None) -> tuple[int, int] | None:
    """Which file lies there, None where none does."""
    try:
        found = None if path is None else path.stat()
    except FileNotFoundError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def set_aside(path: Path) -> None:
    """A damaged view is kept for whoever wants to look, and never stands in the way."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            file = path.with_name(path.name + suffix)
            file.replace(path.with_name(f"{path.name}.unreadable{suffix}"))
    _log.error("%s could not be read and was set aside; the projection begins anew", path)


@contextmanager
def view_errors() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise translated(error.orig or error) from error


def translated(error: BaseException) -> RetryLaterError:
    code = "DISK_FULL" if "full" in str(error) else "NOT_READY"
    return RetryLaterError(code, f"the views cannot be reached: {error}")

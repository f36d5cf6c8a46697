"""The projection in a SQLite file of its own (`DIR/views.db`): one row a record, one checkpoint an epoch.

View and checkpoint are stored in one transaction, so both may vanish in a power cut and are folded again: no
commit here waits for the disk. Nothing that decides reads it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    ScalarSelect,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    delete,
    event,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from interlock.canonical import canonical, read_stored
from interlock.errors import OursToFixError, RetryLaterError
from interlock.projection import Checkpoint, StoppedSession
from interlock.state import REDUCER_VERSION, ToolInvocationRecord, ToolState
from workers.memory_projection import TOOL_STATE

FILE_NAME = "views.db"
FORMAT = 1
BUSY_TIMEOUT_SECONDS = 5.0
IDS_A_QUERY = 500
ROWS_A_DELETE = 20_000
_log = logging.getLogger(__name__)

_METADATA = MetaData()

_CHECKPOINT = Table(
    "projection_checkpoint",
    _METADATA,
    Column("name", String, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("reducer_version", Integer, nullable=False),
    Column("incarnation", String, nullable=False),
    Column("hash", String, nullable=False),
    Column("live", Boolean, nullable=False),
)
Index("projection_live", _CHECKPOINT.c.name, unique=True, sqlite_where=text("live = 1"))

_RECORD = Table(
    "projection_record",
    _METADATA,
    Column("name", String, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("session", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("invocation_id", String, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("name", "epoch", "invocation_id"),
)

_STOP = Table(
    "projection_stop",
    _METADATA,
    Column("name", String, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("session", String, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("code", String, nullable=False),
    Column("detail", String, nullable=False),
)


def _upsert_of_record() -> Any:
    new = sqlite_insert(_RECORD)
    return new.on_conflict_do_update(
        index_elements=["name", "epoch", "invocation_id"], set_={"body": new.excluded.body}
    )


class SqliteReading:
    """What one connection sees of one projection; within a transaction it does not change."""

    def __init__(self, connection: Connection, name: str, epoch: int | None) -> None:
        self._connection, self._name = connection, name
        self._epoch: int | ScalarSelect[int] = (
            epoch
            if epoch is not None
            else select(_CHECKPOINT.c.epoch)
            .where(_CHECKPOINT.c.name == name, _CHECKPOINT.c.live)
            .scalar_subquery()
        )

    def checkpoint(self) -> Checkpoint | None:
        """None where this epoch was dropped."""
        columns = _CHECKPOINT.c
        row = self._connection.execute(
            select(
                columns.name,
                columns.seq,
                columns.epoch,
                columns.reducer_version,
                columns.incarnation,
                columns.hash,
            ).where(*self._mine(_CHECKPOINT))
        ).one_or_none()
        return None if row is None else Checkpoint(*row)

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        wanted = list(invocation_ids)
        found: dict[str, ToolInvocationRecord] = {}
        for start in range(0, len(wanted), IDS_A_QUERY):
            ids = wanted[start : start + IDS_A_QUERY]
            rows = self._connection.execute(
                select(_RECORD.c.body).where(*self._mine(_RECORD), _RECORD.c.invocation_id.in_(ids))
            )
            for (body,) in rows:
                record = _record(body)
                found[record.invocation_id] = record
        return found

    def stopped(self) -> dict[str, StoppedSession]:
        columns = _STOP.c
        rows = self._connection.execute(
            select(columns.session, columns.seq, columns.code, columns.detail).where(*self._mine(_STOP))
        )
        return {row[0]: StoppedSession(*row) for row in rows}

    def state(self, session: str) -> ToolState:
        return ToolState(session, tuple(_record(body) for body in self._bodies(session)))

    def state_bytes(self, session: str) -> bytes:
        """`state(session).to_bytes()`, put together from the stored bytes."""
        records = b",".join(self._bodies(session))
        return b'{"records":[' + records + b'],"session":' + canonical(session) + b"}"

    def sessions(self) -> list[str]:
        rows = self._connection.execute(select(_RECORD.c.session).distinct().where(*self._mine(_RECORD)))
        return sorted(session for (session,) in rows)

    def _bodies(self, session: str) -> list[bytes]:
        rows = self._connection.execute(
            select(_RECORD.c.body)
            .where(*self._mine(_RECORD), _RECORD.c.session == session)
            .order_by(_RECORD.c.position)
        )
        # A tampered row may hold text; it is compared like any other.
        return [body if isinstance(body, bytes) else str(body).encode() for (body,) in rows]

    def _mine(self, table: Table) -> tuple[Any, Any]:
        return table.c.name == self._name, table.c.epoch == self._epoch


class SqliteProjection:
    """Projection in one file, shared by the processes of one host; several epochs lie beside each other.

    Without an epoch it follows the live one. Open it in the process that uses it, never before a fork.
    """

    def __init__(self, engine: Engine, name: str, epoch: int | None) -> None:
        self._engine, self._name, self._epoch = engine, name, epoch

    @classmethod
    def open(cls, path: Path, *, name: str = TOOL_STATE, read_only: bool = False) -> SqliteProjection:
        """The projection in this file, which is made unless `read_only`.

        A file of an older format, or one that is damaged, is derived data: it is begun anew. Raises
        RetryLaterError where the file cannot be opened now, OursToFixError for a later format.
        """
        if read_only:
            return cls(_engine(path, read_only=True), name, None)
        try:
            projection = cls(_made(path), name, None)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise _translated(error) from error
            _set_aside(path)
            projection = cls(_made(path), name, None)
        projection._require_live()
        return projection

    def checkpoint(self) -> Checkpoint:
        with self._reading() as reading:
            found = reading.checkpoint()
        if found is None and self._epoch is not None:
            raise RetryLaterError("NOT_READY", f"epoch {self._epoch} of the projection was dropped")
        return found or Checkpoint(self._name, 0, 1, REDUCER_VERSION, "")

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        with self._reading() as reading:
            return reading.records(invocation_ids)

    def stopped(self) -> dict[str, StoppedSession]:
        with self._reading() as reading:
            return reading.stopped()

    def store(
        self,
        before: Checkpoint,
        after: Checkpoint,
        records: Sequence[ToolInvocationRecord],
        stopped: Sequence[StoppedSession] = (),
    ) -> bool:
        rows = [_row(record, before) for record in records]
        place = {"name": before.name, "epoch": before.epoch}
        with self._writing() as connection:
            if not _move(connection, before, after):
                return False
            if rows:
                connection.execute(_upsert_of_record(), rows)
            if stopped:
                connection.execute(insert(_STOP), [place | stop._asdict() for stop in stopped])
        return True

    def restart(self, before: Checkpoint, after: Checkpoint) -> bool:
        """All epochs of this name go: what is being rebuilt beside is of the same past."""
        with self._writing() as connection:
            if not _move(connection, before, after._replace(epoch=before.epoch)):
                return False
            for table in (_RECORD, _STOP):
                connection.execute(delete(table).where(table.c.name == before.name))
            others = _CHECKPOINT.c.name == before.name, _CHECKPOINT.c.epoch != before.epoch
            connection.execute(delete(_CHECKPOINT).where(*others))
            connection.execute(
                update(_CHECKPOINT).where(_CHECKPOINT.c.name == before.name).values(epoch=after.epoch)
            )
        return True

    def state(self, session: str) -> ToolState:
        with self._reading() as reading:
            return reading.state(session)

    def state_bytes(self, session: str) -> bytes:
        """The canonical bytes of one session's state."""
        with self._reading() as reading:
            return reading.state_bytes(session)

    def sessions(self) -> list[str]:
        with self._reading() as reading:
            return reading.sessions()

    @contextmanager
    def frozen(self) -> Iterator[SqliteReading]:
        """A reading that stands still while a projector goes on."""
        with self._reading() as reading:
            reading.checkpoint()  # a transaction sees what stood when it first read
            yield reading

    def beside(self) -> SqliteProjection:
        """A new, empty epoch of this projection beside the live one; dropped or made live by its owner."""
        with self._writing() as connection:
            highest = select(func.max(_CHECKPOINT.c.epoch)).where(_CHECKPOINT.c.name == self._name)
            epoch = int(connection.execute(highest).scalar_one()) + 1
            connection.execute(insert(_CHECKPOINT), _checkpoint_row(self._name, epoch, live=False))
        return SqliteProjection(self._engine, self._name, epoch)

    def make_live(self) -> bool:
        """Let this epoch be the one that everybody sees; False where it was dropped."""
        mine = _CHECKPOINT.c.name == self._name, _CHECKPOINT.c.epoch == self._epoch
        with self._writing() as connection:
            if connection.execute(select(_CHECKPOINT.c.epoch).where(*mine)).first() is None:
                return False
            same_name = _CHECKPOINT.c.name == self._name
            connection.execute(update(_CHECKPOINT).where(same_name).values(live=False))
            connection.execute(update(_CHECKPOINT).where(*mine).values(live=True))
        return True

    def drop_dead(self) -> None:
        """Drop every epoch of this name that is not live, in short transactions."""
        live = select(_CHECKPOINT.c.epoch).where(_CHECKPOINT.c.name == self._name, _CHECKPOINT.c.live)
        with self._writing() as connection:
            for table in (_CHECKPOINT, _STOP):
                dead = table.c.name == self._name, table.c.epoch != live.scalar_subquery()
                connection.execute(delete(table).where(*dead))
        rowid = literal_column("rowid", Integer)
        dead_rows = _RECORD.c.name == self._name, _RECORD.c.epoch != live.scalar_subquery()
        some = select(rowid).select_from(_RECORD).where(*dead_rows).limit(ROWS_A_DELETE)
        left = True
        while left:
            with self._writing() as connection:
                gone = connection.execute(delete(_RECORD).where(rowid.in_(some))).rowcount
            left = gone == ROWS_A_DELETE

    def close(self) -> None:
        """Let go of connections."""
        self._engine.dispose()

    def _require_live(self) -> None:
        live = _CHECKPOINT.c.name == self._name, _CHECKPOINT.c.live
        with self._writing() as connection:
            if connection.execute(select(_CHECKPOINT.c.epoch).where(*live)).first() is None:
                connection.execute(insert(_CHECKPOINT), _checkpoint_row(self._name, 1, live=True))

    @contextmanager
    def _reading(self) -> Iterator[SqliteReading]:
        with _errors(), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            yield SqliteReading(connection, self._name, self._epoch)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One write transaction; it is committed unless an exception leaves it."""
        with _errors(), self._engine.connect() as connection:
            # Taking the write lock first: a reading that turns into a writing cannot wait for its turn.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()


def _move(connection: Connection, before: Checkpoint, after: Checkpoint) -> bool:
    """The compare-and-set: move the checkpoint if it is exactly `before`."""
    columns = _CHECKPOINT.c
    moved = connection.execute(
        update(_CHECKPOINT)
        .where(
            columns.name == before.name,
            columns.epoch == before.epoch,
            columns.seq == before.seq,
            columns.reducer_version == before.reducer_version,
            columns.incarnation == before.incarnation,
            columns.hash == before.hash,
        )
        .values(
            seq=after.seq,
            reducer_version=after.reducer_version,
            incarnation=after.incarnation,
            hash=after.hash,
        )
    )
    return moved.rowcount == 1


def _checkpoint_row(name: str, epoch: int, *, live: bool) -> dict[str, Any]:
    return {
        "name": name,
        "epoch": epoch,
        "seq": 0,
        "reducer_version": REDUCER_VERSION,
        "incarnation": "",
        "hash": "",
        "live": live,
    }


def _row(record: ToolInvocationRecord, place: Checkpoint) -> dict[str, Any]:
    return {
        "name": place.name,
        "epoch": place.epoch,
        "session": record.session,
        "position": record.position,
        "invocation_id": record.invocation_id,
        "body": canonical(record.to_json()),
    }


def _record(body: bytes) -> ToolInvocationRecord:
    value = read_stored(body)
    assert isinstance(value, dict)
    return ToolInvocationRecord.from_json(value)


def _engine(path: Path, *, read_only: bool) -> Engine:
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

    return engine


def _made(path: Path) -> Engine:
    """The engine of a file that exists and has our tables. Raises sqlite3.DatabaseError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    engine = _engine(path, read_only=False)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            found = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
            if found > FORMAT:
                raise OursToFixError(
                    "LEDGER_FORMAT", f"{path} has format {found}, this program knows {FORMAT}"
                )
            if found < FORMAT:
                _METADATA.drop_all(connection)
                _METADATA.create_all(connection)
                connection.exec_driver_sql(f"PRAGMA user_version = {FORMAT}")
            connection.commit()
    except BaseException as error:
        engine.dispose()
        if isinstance(error, DBAPIError) and isinstance(error.orig, sqlite3.DatabaseError):
            raise error.orig from error
        raise
    return engine


def _set_aside(path: Path) -> None:
    """A damaged view is kept for whoever wants to look, and never stands in the way."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            file = path.with_name(path.name + suffix)
            file.replace(path.with_name(f"{path.name}.unreadable{suffix}"))
    _log.error("%s could not be read and was set aside; the projection begins anew", path)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _translated(error.orig or error) from error


def _translated(error: BaseException) -> RetryLaterError:
    code = "DISK_FULL" if "full" in str(error) else "NOT_READY"
    return RetryLaterError(code, f"the views cannot be reached: {error}")

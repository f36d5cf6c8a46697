"""The projection in a SQLite file of its own (`DIR/views.db`): one row a record, one checkpoint an epoch.

View and checkpoint are stored in one transaction, so both may vanish in a power cut and are folded again: no
commit here waits for the disk. Nothing that decides reads it.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    ScalarSelect,
    Table,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from interlock.canonical import canonical, read_stored
from interlock.errors import RetryLaterError
from interlock.projection import Checkpoint, StoppedSession
from interlock.reduce import REDUCER_VERSION
from interlock.state import SessionName, ToolInvocationRecord, ToolState
from interlock.workspace import DEFAULT_TENANT
from workers.adapters.views_file import (
    CHECKPOINT,
    RECORD,
    STOP,
    engine_of,
    file_identity,
    made,
    set_aside,
    translated,
    view_errors,
)
from workers.memory_projection import TOOL_STATE

_log = logging.getLogger(__name__)

FILE_NAME = "views.db"
ROWS_A_DELETE = 20_000


# What every batch asks, as text: building and compiling a statement anew costs more than SQLite takes for it.
_LIVE = "coalesce(?, (SELECT epoch FROM projection_checkpoint WHERE name = ? AND live = 1))"
_MINE = f"name = ? AND epoch = {_LIVE}"
_CHECKPOINT = f"""SELECT name, seq, epoch, reducer_version, incarnation, hash
    FROM projection_checkpoint WHERE {_MINE}"""
_RECORDS = f"""SELECT body FROM projection_record
    WHERE {_MINE} AND invocation_id IN (SELECT value FROM json_each(?))"""
_MOVE = """UPDATE projection_checkpoint SET seq = ?, reducer_version = ?, incarnation = ?, hash = ?
    WHERE name = ? AND epoch = ? AND seq = ? AND reducer_version = ? AND incarnation = ? AND hash = ?"""
_STORE = """INSERT INTO projection_record (name, epoch, tenant, session, position, invocation_id, body)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (name, epoch, invocation_id) DO UPDATE SET body = excluded.body"""


class SqliteReading:
    """What one connection sees of one projection; within a transaction it does not change."""

    def __init__(self, connection: Connection, name: str, epoch: int | None) -> None:
        self._connection, self._name = connection, name
        self._place = (name, epoch, name)
        self._epoch: int | ScalarSelect[int] = (
            epoch
            if epoch is not None
            else select(CHECKPOINT.c.epoch)
            .where(CHECKPOINT.c.name == name, CHECKPOINT.c.live)
            .scalar_subquery()
        )

    def checkpoint(self) -> Checkpoint | None:
        """None where this epoch was dropped."""
        row = self._connection.exec_driver_sql(_CHECKPOINT, self._place).one_or_none()
        return None if row is None else Checkpoint(*row)

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        wanted = json.dumps(list(invocation_ids))
        rows = self._connection.exec_driver_sql(_RECORDS, (*self._place, wanted))
        records = (_record(body) for (body,) in rows)
        return {record.invocation_id: record for record in records}

    def stopped(self) -> dict[SessionName, StoppedSession]:
        columns = STOP.c
        rows = self._connection.execute(
            select(columns.session, columns.seq, columns.code, columns.detail, columns.tenant).where(
                *self._mine(STOP)
            )
        )
        return {stop.name: stop for stop in (StoppedSession(*row) for row in rows)}

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> ToolState:
        return ToolState(session, tuple(_record(body) for body in self._bodies(session, tenant)), tenant)

    def state_bytes(self, session: str, tenant: str = DEFAULT_TENANT) -> bytes:
        """`state(session, tenant).to_bytes()`, put together from the stored bytes."""
        records = b",".join(self._bodies(session, tenant))
        name = b',"session":' + canonical(session) + b',"tenant":' + canonical(tenant)
        return b'{"records":[' + records + b"]" + name + b"}"

    def sessions(self) -> list[SessionName]:
        columns = RECORD.c
        rows = self._connection.execute(
            select(columns.tenant, columns.session).distinct().where(*self._mine(RECORD))
        )
        return sorted(SessionName(*row) for row in rows)

    def _bodies(self, session: str, tenant: str) -> list[bytes]:
        rows = self._connection.execute(
            select(RECORD.c.body)
            .where(*self._mine(RECORD), RECORD.c.tenant == tenant, RECORD.c.session == session)
            .order_by(RECORD.c.position)
        )
        # A tampered row may hold text; it is compared like any other.
        return [body if isinstance(body, bytes) else str(body).encode() for (body,) in rows]

    def _mine(self, table: Table) -> tuple[Any, Any]:
        return table.c.name == self._name, table.c.epoch == self._epoch


class SqliteProjection:
    """Projection in one file, shared by the processes of one host; several epochs lie beside each other.

    Without an epoch it follows the live one. Open it in the process that uses it, never before a fork.
    """

    def __init__(self, engine: Engine, name: str, epoch: int | None, path: Path | None = None) -> None:
        self._engine, self._name, self._epoch = engine, name, epoch
        self._path, self._file = path, file_identity(path)

    @classmethod
    def open(cls, path: Path, *, name: str = TOOL_STATE, read_only: bool = False) -> SqliteProjection:
        """The projection in this file, which is made unless `read_only`.

        A file of an older format, or one that is damaged, is derived data: it is begun anew. Raises
        RetryLaterError where the file cannot be opened now, OursToFixError for a later format.
        """
        if read_only:
            return cls(engine_of(path, read_only=True), name, None)
        projection = cls(_engine_at(path), name, None, path)
        projection._require_live()
        return projection

    def checkpoint(self) -> Checkpoint:
        self._follow_file()
        with self._reading() as reading:
            found = reading.checkpoint()
        if found is None and self._epoch is not None:
            raise RetryLaterError("NOT_READY", f"epoch {self._epoch} of the projection was dropped")
        return found or Checkpoint(self._name, 0, 1, REDUCER_VERSION, "")

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        with self._reading() as reading:
            return reading.records(invocation_ids)

    def stopped(self) -> dict[SessionName, StoppedSession]:
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
                connection.exec_driver_sql(_STORE, rows)
            if stopped:
                connection.execute(insert(STOP), [place | stop._asdict() for stop in stopped])
        return True

    def restart(self, before: Checkpoint, after: Checkpoint) -> bool:
        """All epochs of this name go: what is being rebuilt beside is of the same past."""
        with self._writing() as connection:
            if not _move(connection, before, after._replace(epoch=before.epoch)):
                return False
            for table in (RECORD, STOP):
                connection.execute(delete(table).where(table.c.name == before.name))
            others = CHECKPOINT.c.name == before.name, CHECKPOINT.c.epoch != before.epoch
            connection.execute(delete(CHECKPOINT).where(*others))
            connection.execute(
                update(CHECKPOINT).where(CHECKPOINT.c.name == before.name).values(epoch=after.epoch)
            )
        return True

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> ToolState:
        with self._reading() as reading:
            return reading.state(session, tenant)

    def state_bytes(self, session: str, tenant: str = DEFAULT_TENANT) -> bytes:
        """The canonical bytes of one session's state."""
        with self._reading() as reading:
            return reading.state_bytes(session, tenant)

    def sessions(self) -> list[SessionName]:
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
            highest = select(func.max(CHECKPOINT.c.epoch)).where(CHECKPOINT.c.name == self._name)
            epoch = int(connection.execute(highest).scalar_one()) + 1
            connection.execute(insert(CHECKPOINT), _checkpoint_row(self._name, epoch, live=False))
        return SqliteProjection(self._engine, self._name, epoch)

    def make_live(self) -> bool:
        """Let this epoch be the one that everybody sees; False where it was dropped."""
        mine = CHECKPOINT.c.name == self._name, CHECKPOINT.c.epoch == self._epoch
        with self._writing() as connection:
            if connection.execute(select(CHECKPOINT.c.epoch).where(*mine)).first() is None:
                return False
            same_name = CHECKPOINT.c.name == self._name
            connection.execute(update(CHECKPOINT).where(same_name).values(live=False))
            connection.execute(update(CHECKPOINT).where(*mine).values(live=True))
        return True

    def drop_dead(self) -> None:
        """Drop every epoch of this name that is not live, in short transactions."""
        live = select(CHECKPOINT.c.epoch).where(CHECKPOINT.c.name == self._name, CHECKPOINT.c.live)
        with self._writing() as connection:
            for table in (CHECKPOINT, STOP):
                dead = table.c.name == self._name, table.c.epoch != live.scalar_subquery()
                connection.execute(delete(table).where(*dead))
        rowid = literal_column("rowid", Integer)
        dead_rows = RECORD.c.name == self._name, RECORD.c.epoch != live.scalar_subquery()
        some = select(rowid).select_from(RECORD).where(*dead_rows).limit(ROWS_A_DELETE)
        left = True
        while left:
            with self._writing() as connection:
                gone = connection.execute(delete(RECORD).where(rowid.in_(some))).rowcount
            left = gone == ROWS_A_DELETE

    def close(self) -> None:
        """Let go of connections."""
        self._engine.dispose()

    def _follow_file(self) -> None:
        """Let go of a file that was deleted or replaced: nobody else would ever see what is stored in it."""
        if self._path is None or file_identity(self._path) == self._file:
            return
        _log.warning(
            "%s is not the file any more that was opened; the projection goes on in the new one", self._path
        )
        self._engine.dispose()
        self._engine = _engine_at(self._path)
        self._file = file_identity(self._path)
        self._require_live()

    def _require_live(self) -> None:
        live = CHECKPOINT.c.name == self._name, CHECKPOINT.c.live
        with self._writing() as connection:
            if connection.execute(select(CHECKPOINT.c.epoch).where(*live)).first() is None:
                connection.execute(insert(CHECKPOINT), _checkpoint_row(self._name, 1, live=True))

    @contextmanager
    def _reading(self) -> Iterator[SqliteReading]:
        with view_errors(), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            yield SqliteReading(connection, self._name, self._epoch)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One write transaction; it is committed unless an exception leaves it."""
        with view_errors(), self._engine.connect() as connection:
            # Taking the write lock first: a reading that turns into a writing cannot wait for its turn.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()


def _engine_at(path: Path) -> Engine:
    try:
        return made(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise translated(error) from error
    set_aside(path)
    return made(path)


def _move(connection: Connection, before: Checkpoint, after: Checkpoint) -> bool:
    """The compare-and-set: move the checkpoint if it is exactly `before`."""
    to = (after.seq, after.reducer_version, after.incarnation, after.hash)
    at = (before.name, before.epoch, before.seq, before.reducer_version, before.incarnation, before.hash)
    return connection.exec_driver_sql(_MOVE, (*to, *at)).rowcount == 1


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


def _row(record: ToolInvocationRecord, place: Checkpoint) -> tuple[Any, ...]:
    return (
        place.name,
        place.epoch,
        record.tenant,
        record.session,
        record.position,
        record.invocation_id,
        record.to_bytes(),
    )


def _record(body: bytes) -> ToolInvocationRecord:
    value = read_stored(body)
    assert isinstance(value, dict)
    return ToolInvocationRecord.from_json(value)

"""The projection in the ledger's database, schema `views`: one row a record, one checkpoint an epoch.

A batch is one statement: it moves the checkpoint and writes the records, or neither. View and checkpoint may
vanish together in a power cut and are folded again: no commit here waits for the disk. Nothing that decides
reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from interlock.canonical import canonical, read_stored
from interlock.errors import AlreadyRunningError, RetryLaterError
from interlock.projection import Checkpoint, StoppedSession
from interlock.reduce import REDUCER_VERSION
from interlock.state import SessionName, ToolInvocationRecord, ToolState
from interlock.workspace import DEFAULT_TENANT
from workers.adapters.postgres_views import FORMAT, MAKING, Connection, ViewsDatabase, lock, try_lock
from workers.memory_projection import TOOL_STATE

ROWS_A_DELETE = 20_000

_EPOCH = (
    "coalesce(%(epoch)s::integer, (SELECT epoch FROM views.checkpoint WHERE name = %(name)s::text AND live))"
)
_MINE = f"name = %(name)s::text AND epoch = {_EPOCH}"
_CHECKPOINT = (
    f"SELECT name, seq, epoch, reducer_version, incarnation, hash FROM views.checkpoint WHERE {_MINE}"
)
_RECORDS = f"SELECT body FROM views.record WHERE {_MINE} AND invocation_id = ANY(%(ids)b::text[])"
_STOPPED = f"SELECT session, seq, code, detail, tenant FROM views.stop WHERE {_MINE}"
_BODIES = f"""SELECT body FROM views.record
    WHERE {_MINE} AND tenant = %(tenant)s AND session = %(session)s ORDER BY position"""
_SESSIONS = f"SELECT DISTINCT tenant, session FROM views.record WHERE {_MINE}"

_MOVE = """UPDATE views.checkpoint
    SET seq = %(seq)s, reducer_version = %(reducer_version)s, incarnation = %(incarnation)s, hash = %(hash)s
    WHERE name = %(name)s AND epoch = %(epoch)s AND seq = %(old_seq)s
      AND reducer_version = %(old_reducer_version)s AND incarnation = %(old_incarnation)s
      AND hash = %(old_hash)s"""
# Values cross as five arrays in binary form: a fifth of what one row of values after the other costs.
_STORE = f"""WITH moved AS ({_MOVE} RETURNING 1),
stored AS (
    INSERT INTO views.record (name, epoch, tenant, session, position, invocation_id, body)
    SELECT %(name)s, %(epoch)s, new.* FROM unnest(
        %(tenants)b::text[], %(sessions)b::text[], %(positions)b::bigint[], %(ids)b::text[],
        %(bodies)b::bytea[]
    ) AS new WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT (name, epoch, invocation_id) DO UPDATE SET body = excluded.body
)
SELECT count(*), set_config('synchronous_commit', 'off', true) FROM moved"""
_STOP = """INSERT INTO views.stop (name, epoch, session, seq, code, detail, tenant)
    VALUES (%s, %s, %s, %s, %s, %s, %s)"""
_NEW_EPOCH = """INSERT INTO views.checkpoint (name, epoch, seq, reducer_version, incarnation, hash, live)
    SELECT %(name)s, coalesce(max(epoch), 0) + 1, 0, %(reducer_version)s, '', '', %(live)s
    FROM views.checkpoint WHERE name = %(name)s RETURNING epoch"""
_DEAD = """name = %(name)s
    AND epoch <> (SELECT epoch FROM views.checkpoint WHERE name = %(name)s AND live)"""
_DELETE_SOME = f"""DELETE FROM views.record WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM views.record WHERE {_DEAD} LIMIT {ROWS_A_DELETE}))"""


class PostgresReading:
    """What one connection sees of one projection; within a snapshot it does not change."""

    def __init__(self, connection: Connection, name: str, epoch: int | None) -> None:
        self._connection = connection
        self._place: dict[str, Any] = {"name": name, "epoch": epoch}

    def checkpoint(self) -> Checkpoint | None:
        """None where this epoch was dropped."""
        rows = self._rows(_CHECKPOINT)
        return Checkpoint(*rows[0]) if rows else None

    def records(self, invocation_ids: Iterable[str]) -> dict[str, ToolInvocationRecord]:
        records = (_record(body) for (body,) in self._rows(_RECORDS, ids=list(invocation_ids)))
        return {record.invocation_id: record for record in records}

    def stopped(self) -> dict[SessionName, StoppedSession]:
        return {stop.name: stop for stop in (StoppedSession(*row) for row in self._rows(_STOPPED))}

    def state(self, session: str, tenant: str = DEFAULT_TENANT) -> ToolState:
        return ToolState(session, tuple(_record(body) for body in self._bodies(session, tenant)), tenant)

    def state_bytes(self, session: str, tenant: str = DEFAULT_TENANT) -> bytes:
        """`state(session, tenant).to_bytes()`, put together from the stored bytes."""
        records = b",".join(self._bodies(session, tenant))
        name = b',"session":' + canonical(session) + b',"tenant":' + canonical(tenant)
        return b'{"records":[' + records + b"]" + name + b"}"

    def sessions(self) -> list[SessionName]:
        return sorted(SessionName(*row) for row in self._rows(_SESSIONS))

    def _bodies(self, session: str, tenant: str) -> list[bytes]:
        return [body for (body,) in self._rows(_BODIES, session=session, tenant=tenant)]

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._connection.cursor(binary=True) as cursor:
            return cursor.execute(statement.encode(), self._place | values).fetchall()


class PostgresProjection:
    """Projection in one database, shared by many hosts; several epochs lie beside each other.

    Without an epoch it follows the live one. Open it in the process that uses it, never before a fork.
    """

    def __init__(self, database: ViewsDatabase, name: str, epoch: int | None) -> None:
        self._database, self._name, self._epoch = database, name, epoch

    @classmethod
    def open(cls, url: str, *, name: str = TOOL_STATE, read_only: bool = False) -> PostgresProjection:
        """The projection in this database, whose tables are made unless `read_only`.

        Tables of an older format are derived data: they are begun anew. Raises RetryLaterError where the
        database cannot be reached now, or holds no views of this format and is only read; OursToFixError for
        a later format.
        """
        projection = cls(ViewsDatabase(url, read_only=read_only), name, None)
        try:
            projection._require_live()
        except BaseException:
            projection.close()
            raise
        return projection

    def checkpoint(self) -> Checkpoint:
        found = self._checkpoint()
        if found is None and self._epoch is not None:
            raise RetryLaterError("NOT_READY", f"epoch {self._epoch} of the projection was dropped")
        if found is None and not self._database.read_only:
            self._require_live()  # somebody emptied or dropped the tables
            found = self._checkpoint()
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
        values = _move_values(before, after) | _columns(records)
        if not stopped:
            with self._database.statements() as connection:
                return _moved(connection, values)
        with self._database.transaction() as connection:
            if not _moved(connection, values):
                return False
            with connection.cursor() as cursor:
                cursor.executemany(_STOP, [(before.name, before.epoch, *stop) for stop in stopped])
        return True

    def restart(self, before: Checkpoint, after: Checkpoint) -> bool:
        """All epochs of this name go: what is being rebuilt beside is of the same past."""
        with self._database.transaction() as connection:
            moved = connection.execute(
                _MOVE.encode(), _move_values(before, after._replace(epoch=before.epoch))
            )
            if moved.rowcount != 1:
                return False
            for table in (b"record", b"stop"):
                connection.execute(b"DELETE FROM views." + table + b" WHERE name = %s", (before.name,))
            connection.execute(
                "DELETE FROM views.checkpoint WHERE name = %s AND epoch <> %s", (before.name, before.epoch)
            )
            connection.execute(
                "UPDATE views.checkpoint SET epoch = %s WHERE name = %s", (after.epoch, before.name)
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
    def frozen(self) -> Iterator[PostgresReading]:
        """A reading that stands still while a projector goes on."""
        with self._database.snapshot() as connection:
            reading = PostgresReading(connection, self._name, self._epoch)
            reading.checkpoint()  # a transaction sees what stood when it first read
            yield reading

    def beside(self) -> PostgresProjection:
        """A new, empty epoch of this projection beside the live one; dropped or made live by its owner."""
        with self._database.transaction() as connection:
            lock(connection, MAKING)
            epoch = _begin_epoch(connection, self._name, live=False)
        return PostgresProjection(self._database, self._name, epoch)

    def make_live(self) -> bool:
        """Let this epoch be the one that everybody sees; False where it was dropped."""
        mine = {"name": self._name, "epoch": self._epoch}
        with self._database.transaction() as connection:
            lock(connection, MAKING)
            there = connection.execute(
                "SELECT FROM views.checkpoint WHERE name = %(name)s AND epoch = %(epoch)s FOR UPDATE", mine
            )
            if there.fetchone() is None:
                return False
            connection.execute(
                "UPDATE views.checkpoint SET live = false WHERE name = %(name)s AND live", mine
            )
            connection.execute(
                "UPDATE views.checkpoint SET live = true WHERE name = %(name)s AND epoch = %(epoch)s", mine
            )
        return True

    def drop_dead(self) -> None:
        """Drop every epoch of this name that is not live, in short transactions."""
        mine = {"name": self._name}
        with self._database.transaction() as connection:
            # The live epoch is told by its checkpoint, so the checkpoints go last, the live one never.
            for table in ("stop", "checkpoint"):
                connection.execute(f"DELETE FROM views.{table} WHERE {_DEAD}".encode(), mine)
        left = True
        while left:
            with self._database.transaction() as connection:
                left = connection.execute(_DELETE_SOME.encode(), mine).rowcount == ROWS_A_DELETE

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For whoever rebuilds: one at a time over all hosts; AlreadyRunningError while another does."""
        with self._database.transaction("idle_in_transaction_session_timeout = 0") as connection:
            if not try_lock(connection, f"interlock.rebuild:{self._name}"):
                raise AlreadyRunningError("the views")
            connection.execute("SELECT 1")  # lets go of the snapshot that a question with values leaves
            yield

    def close(self) -> None:
        """Let go of connections."""
        self._database.close()

    def _checkpoint(self) -> Checkpoint | None:
        if self._database.format() != FORMAT:
            return None
        with self._reading() as reading:
            return reading.checkpoint()

    def _require_live(self) -> None:
        if self._database.read_only:
            if self._database.format() != FORMAT:
                raise RetryLaterError("NOT_READY", "nothing was projected into this database yet")
            return
        self._database.prepare()
        with self._database.transaction() as connection:
            lock(connection, MAKING)
            live = connection.execute("SELECT FROM views.checkpoint WHERE name = %s AND live", (self._name,))
            if live.fetchone() is None:
                _begin_epoch(connection, self._name, live=True)

    @contextmanager
    def _reading(self) -> Iterator[PostgresReading]:
        with self._database.statements() as connection:
            yield PostgresReading(connection, self._name, self._epoch)


def _begin_epoch(connection: psycopg.Connection[Any], name: str, *, live: bool) -> int:
    values = {"name": name, "reducer_version": REDUCER_VERSION, "live": live}
    row = connection.execute(_NEW_EPOCH.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def _moved(connection: Connection, values: dict[str, Any]) -> bool:
    """The compare-and-set: move the checkpoint and write the records if it is exactly the one before."""
    row = connection.execute(_STORE.encode(), values).fetchone()
    return row is not None and row[0] == 1


def _move_values(before: Checkpoint, after: Checkpoint) -> dict[str, Any]:
    return {
        "name": before.name,
        "epoch": before.epoch,
        "old_seq": before.seq,
        "old_reducer_version": before.reducer_version,
        "old_incarnation": before.incarnation,
        "old_hash": before.hash,
        "seq": after.seq,
        "reducer_version": after.reducer_version,
        "incarnation": after.incarnation,
        "hash": after.hash,
    }


def _columns(records: Sequence[ToolInvocationRecord]) -> dict[str, list[Any]]:
    return {
        "tenants": [record.tenant for record in records],
        "sessions": [record.session for record in records],
        "positions": [record.position for record in records],
        "ids": [record.invocation_id for record in records],
        "bodies": [canonical(record.to_json()) for record in records],
    }


def _record(body: bytes) -> ToolInvocationRecord:
    value = read_stored(body)
    assert isinstance(value, dict)
    return ToolInvocationRecord.from_json(value)

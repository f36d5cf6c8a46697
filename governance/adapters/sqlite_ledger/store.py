"""The ledger on SQLite as its callers hold it: opened, read, written, closed.

It judges versions only; the meaning of events is never its business.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from governance.adapters.sqlite_ledger.connection import SQLITE_VERSION_MIN, Database
from governance.adapters.sqlite_ledger.mount import network_file_system
from governance.adapters.sqlite_ledger.reading import SqliteView
from governance.adapters.sqlite_ledger.record import SqliteRecords
from governance.adapters.sqlite_ledger.schema import MIN_READER, SCHEMA_VERSION, STATEMENTS
from governance.adapters.sqlite_ledger.writing import SqliteTransaction
from governance.ledger import LedgerInfo
from interlock.clock import Clock
from interlock.errors import LedgerUnavailableError, NotFoundError, OursToFixError
from interlock.fault import FaultPoints, NoFaults
from interlock.identifier import new_id


class SqliteLedger:
    """The append-only log in one file, shared by the processes of one host.

    Open it in the process that uses it, never before a fork. Several threads may share one.
    """

    def __init__(self, database: Database, info: LedgerInfo, clock: Clock, faults: FaultPoints) -> None:
        self._database = database
        self._info = info
        self._clock = clock
        self._faults = faults

    @classmethod
    def open(
        cls,
        path: Path,
        clock: Clock,
        *,
        create: bool = False,
        read_only: bool = False,
        faults: FaultPoints | None = None,
    ) -> SqliteLedger:
        """Open the ledger of this file; `create` makes it where there is none, `read_only` writes nothing.

        Raises NotFoundError without a file, LedgerUnavailableError on a network file system or where a
        setting does not hold, LedgerClosedError where the file is damaged, OursToFixError(LEDGER_FORMAT)
        for a format this program does not know.
        """
        _require_place(path)
        if not path.exists():
            if not create:
                raise NotFoundError("ledger", str(path))
            _make_file(path)
        database = Database(path, read_only=read_only)
        try:
            if create:
                _make_tables(database)
            info = _read_info(database)
        except BaseException:
            database.close()
            raise
        return cls(database, info, clock, faults or NoFaults())

    @property
    def info(self) -> LedgerInfo:
        return self._info

    @contextmanager
    def read(self) -> Iterator[SqliteView]:
        with self._database.reading() as connection:
            yield SqliteView(connection, self._clock.now_us())

    @contextmanager
    def write(
        self,
        keys: Iterable[str] = (),  # noqa: ARG002 - the port's; one writer at a time holds every key
        *,
        control: bool = False,  # noqa: ARG002 - likewise
    ) -> Iterator[SqliteTransaction]:
        """There is one writer at a time, so every key is held by whoever writes."""
        with self._database.writing() as connection:
            # The clock is read when the turn has come: who commits later never has the earlier moment.
            transaction = SqliteTransaction(connection, self._clock.now_us(), self._info.incarnation)
            yield transaction
            transaction.finish()
            self._faults.reach("ledger.before_commit")
            self._database.commit(connection)
            self._faults.reach("ledger.after_commit")

    def records(self) -> SqliteRecords:
        """The raw rows, for `verify`."""
        return SqliteRecords(self._database, self._info.incarnation)

    def settings(self) -> Mapping[str, str]:
        return self._database.settings()

    def close(self) -> None:
        self._database.close()


def _require_place(path: Path) -> None:
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise LedgerUnavailableError(f"SQLite {sqlite3.sqlite_version} is too old")
    kind = network_file_system(path.parent)
    if kind is not None:
        raise LedgerUnavailableError(f"{path.parent} lies on a network file system ({kind})")


def _make_file(path: Path) -> None:
    """An empty file that only its owner reads, its name durable in its folder."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _make_tables(database: Database) -> None:
    """All tables in one transaction, by whichever process comes first."""
    with database.writing() as connection:
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
            return
        for statement in STATEMENTS:
            connection.execute(statement)
        connection.execute("INSERT INTO control (id, epoch) VALUES (1, 1)")
        connection.executemany(
            "INSERT INTO meta (name, value) VALUES (?, ?)",
            [
                ("incarnation", new_id()),
                ("schema_version", str(SCHEMA_VERSION)),
                ("min_reader", str(MIN_READER)),
            ],
        )
        database.commit(connection)


def _read_info(database: Database) -> LedgerInfo:
    with database.reading() as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
            raise NotFoundError("ledger", "in this file")
        meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    info = LedgerInfo(meta["incarnation"], int(meta["schema_version"]), int(meta["min_reader"]))
    if info.min_reader > SCHEMA_VERSION or info.schema_version < SCHEMA_VERSION:
        raise OursToFixError("LEDGER_FORMAT", f"the ledger has format {info.schema_version}")
    return info

"""The ledger on PostgreSQL as its callers hold it: opened, read, written, closed.

It judges versions only; the meaning of events is never its business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from governance.adapters.postgres_ledger.connection import CONTROL, Database, key_of
from governance.adapters.postgres_ledger.reading import PostgresView
from governance.adapters.postgres_ledger.record import PostgresRecords
from governance.adapters.postgres_ledger.schema import MIN_READER, SCHEMA_VERSION, STATEMENTS
from governance.adapters.postgres_ledger.writing import PostgresTransaction
from governance.ledger import LedgerInfo
from interlock.clock import Clock, ManualClock
from interlock.errors import NotFoundError, OursToFixError
from interlock.fault import FaultPoints, NoFaults
from interlock.identifier import new_id

_CREATION = "interlock.ledger.creation"
_HAS_TABLES = "SELECT to_regclass('meta') IS NOT NULL"


class PostgresLedger:
    """The append-only log in one database, shared by the processes of many hosts.

    An event has no sequence number and no hash until the sequencer gave it both: until then `events` shows
    it with seq 0 and hash "", and what goes by sequence (`range`, `session_events`, `last_seq`) without it.
    `Head.accepted_seq` is the number of the request's row (`ord`), not its sequence number: rows of one stage
    are written under the stage's lock, so within a stage that is the order of acceptance.
    Open it in the process that uses it, never before a fork. Several threads may share one.
    """

    def __init__(self, database: Database, info: LedgerInfo, faults: FaultPoints) -> None:
        self._database = database
        self._info = info
        self._faults = faults
        self._control = key_of(CONTROL)

    @classmethod
    def open(
        cls,
        url: str,
        clock: Clock,
        *,
        create: bool = False,
        read_only: bool = False,
        faults: FaultPoints | None = None,
    ) -> PostgresLedger:
        """Open the ledger in this database; `create` makes its tables where there are none.

        Time is the server's; only a clock that a test moves by hand stands in for it.
        Raises UsageError for what is no address, NotFoundError without tables, LedgerUnavailableError where
        the server cannot be reached, OursToFixError(CONFIG_INVALID) for a server that may lose commits and
        OursToFixError(LEDGER_FORMAT) for a format this program does not know.
        """
        stand_in = clock if isinstance(clock, ManualClock) else None
        database = Database(url, read_only=read_only, clock=stand_in)
        try:
            if create:
                _make_tables(database)
            info = _read_info(database)
        except BaseException:
            database.close()
            raise
        return cls(database, info, faults or NoFaults())

    @property
    def info(self) -> LedgerInfo:
        return self._info

    @property
    def database(self) -> Database:
        """The connections, for the sequencer that works beside this ledger."""
        return self._database

    @contextmanager
    def read(self) -> Iterator[PostgresView]:
        with self._database.reading() as (connection, now_us):
            yield PostgresView(connection, now_us)

    @contextmanager
    def write(self, keys: Iterable[str] = (), *, control: bool = False) -> Iterator[PostgresTransaction]:
        """Holds the locks of these keys to the end; what names no key is protected by its version alone.

        Of an error with `data["at_once"]` the same transaction may be tried again at once.
        """
        locks = [key_of(key) for key in keys]
        with self._database.writing(locks, self._control, alone=control) as (connection, now_us):
            transaction = PostgresTransaction(connection, now_us)
            yield transaction
            transaction.finish()
            self._faults.reach("ledger.before_commit")
            self._database.commit(connection)
            self._faults.reach("ledger.after_commit")

    def records(self) -> PostgresRecords:
        """The raw rows, for `verify`."""
        return PostgresRecords(self._database, self._info.incarnation)

    def settings(self) -> Mapping[str, str]:
        return self._database.settings()

    def close(self) -> None:
        self._database.close()


def _make_tables(database: Database) -> None:
    """All tables in one transaction, by whichever process comes first."""
    with database.writing([key_of(_CREATION)], key_of(CONTROL), alone=False) as (connection, _):
        if connection.execute(_HAS_TABLES).fetchall()[0][0]:
            return
        for statement in STATEMENTS:
            connection.execute(statement, prepare=False)
        for name, value in (
            ("incarnation", new_id()),
            ("schema_version", str(SCHEMA_VERSION)),
            ("min_reader", str(MIN_READER)),
        ):
            connection.execute("INSERT INTO meta (name, value) VALUES (%b, %b)", (name, value))
        database.commit(connection)


def _read_info(database: Database) -> LedgerInfo:
    with database.reading() as (connection, _):
        if not connection.execute(_HAS_TABLES).fetchall()[0][0]:
            raise NotFoundError("ledger", "in this database")
        meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    info = LedgerInfo(meta["incarnation"], int(meta["schema_version"]), int(meta["min_reader"]))
    if info.min_reader > SCHEMA_VERSION or info.schema_version < SCHEMA_VERSION:
        raise OursToFixError("LEDGER_FORMAT", f"the ledger has format {info.schema_version}")
    return info

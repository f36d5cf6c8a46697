"""Opens the stores of a data directory, wherever they are: files in it, or a database that it names.

The one place that chooses between them. A directory keeps to the ledger that it was made with. Import it
after root was given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.embedded.directory import DataDirectory
from gateway.embedded.ledger_note import server_of
from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from interlock.errors import RetryLaterError
from interlock.fault import FaultPoints
from scheduler.relay import SequencedOnAppend, Sequencer
from workers.adapters.sqlite_projection import SqliteProjection
from workers.adapters.views_file import is_current

if TYPE_CHECKING:
    from governance.adapters.postgres_ledger import PostgresLedger
    from governance.adapters.postgres_ledger.horizon import Horizon
    from workers.adapters.postgres_projection import PostgresProjection

    OpenLedger = SqliteLedger | PostgresLedger
    OpenProjection = SqliteProjection | PostgresProjection


def open_ledger(
    directory: DataDirectory,
    *,
    create: bool = False,
    read_only: bool = False,
    faults: FaultPoints | None = None,
) -> OpenLedger:
    """The ledger, open for this process; NotFoundError without `create` where there is none yet."""
    server = server_of(directory)
    if not server:
        return SqliteLedger.open(
            directory.ledger, SystemClock(), create=create, read_only=read_only, faults=faults
        )
    from governance.adapters.postgres_ledger import PostgresLedger

    return PostgresLedger.open(server, SystemClock(), create=create, read_only=read_only, faults=faults)


def open_projection(directory: DataDirectory) -> OpenProjection:
    """The views, open to be projected into."""
    server = server_of(directory)
    if not server:
        return SqliteProjection.open(directory.views)
    from workers.adapters.postgres_projection import PostgresProjection

    return PostgresProjection.open(server)


def read_projection(directory: DataDirectory) -> OpenProjection | None:
    """The views, open to be read; None where nothing was projected yet, or only by an older version."""
    server = server_of(directory)
    if not server:
        return SqliteProjection.open(directory.views, read_only=True) if is_current(directory.views) else None
    from workers.adapters.postgres_projection import PostgresProjection

    try:
        return PostgresProjection.open(server, read_only=True)
    except RetryLaterError as error:
        if error.code == "NOT_READY":
            return None
        raise


def sequencer_of(ledger: OpenLedger, holder: str) -> Sequencer:
    """What gives committed events their place; `holder` names this life of this process."""
    if isinstance(ledger, SqliteLedger):
        return SequencedOnAppend()
    from governance.adapters.postgres_ledger import PostgresSequencer

    return PostgresSequencer(ledger, holder)


def horizon_of(ledger: OpenLedger) -> Horizon | None:
    """How numbering stands; None for a ledger whose events have their numbers at once."""
    if isinstance(ledger, SqliteLedger):
        return None
    from governance.adapters.postgres_ledger.horizon import horizon

    return horizon(ledger)

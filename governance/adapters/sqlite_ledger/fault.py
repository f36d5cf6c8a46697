"""What SQLite's errors mean: nothing was decided, the answer is lost, or the file is not to be trusted.

Never retries anything.
"""

from __future__ import annotations

import sqlite3

from interlock.errors import LedgerClosedError, LedgerUnavailableError

_UNTRUSTED = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REFUSED = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE)

# Growing the shared index of the log on a full disk. Nothing was written to the file or its log.
_FULL_INDEX = (sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN)


def code_of(error: sqlite3.Error) -> int:
    """SQLite's extended result code, 0 where the driver itself raised."""
    return getattr(error, "sqlite_errorcode", 0) or 0


def is_untrusted(error: sqlite3.Error) -> bool:
    """Whether what was written before this error cannot be trusted until a restart reads it again."""
    code = code_of(error)
    return code not in _FULL_INDEX and code & 0xFF in _UNTRUSTED


def is_undecided(error: sqlite3.Error) -> bool:
    """Whether a COMMIT that ended so may have reached the disk all the same.

    A full disk cuts the last page short and a busy file is not touched: both are rolled back for sure.
    """
    return code_of(error) & 0xFF not in (
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CONSTRAINT
    ) and code_of(error) not in _FULL_INDEX  # fmt: skip


def is_refusal(error: sqlite3.Error) -> bool:
    """Whether the rows themselves were refused: writing them again is of no use."""
    return code_of(error) & 0xFF in _REFUSED or isinstance(
        error, (sqlite3.InterfaceError, sqlite3.ProgrammingError)
    )


def translated(error: sqlite3.Error) -> LedgerUnavailableError | LedgerClosedError | ValueError:
    """The error that callers know for one that SQLite raised before a commit was asked for."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if is_untrusted(error):
        return LedgerClosedError(f"{name}: {error}")
    if is_refusal(error):
        return ValueError(f"the ledger refuses these rows: {name}: {error}")
    return LedgerUnavailableError(f"{name}: {error}")

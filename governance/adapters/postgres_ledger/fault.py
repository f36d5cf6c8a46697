"""What PostgreSQL's errors mean: nothing was decided, the answer is lost, or the rows are refused.

Never retries anything.
"""

from __future__ import annotations

import psycopg
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from interlock.errors import InterlockError, LedgerClosedError, LedgerUnavailableError, OursToFixError

# By the first characters of SQLSTATE.
_DAMAGED = ("XX001", "XX002")
_FORMAT = ("42P01", "42703", "42883", "3F000", "3D000")
_RIGHTS = ("42501", "28")
_REFUSED = ("22", "23", "42", "54", "21")
_AT_ONCE = ("40",)
# The session was ended before the COMMIT was read: nothing of it was begun.
_CUT_BEFORE = ("25P03", "25P04")

StoreError = psycopg.Error | PoolTimeoutError
STORE_ERRORS = (psycopg.Error, PoolTimeoutError)


def state_of(error: StoreError) -> str:
    """SQLSTATE, "" where the driver or the pool itself raised."""
    return getattr(error, "sqlstate", None) or ""


def is_undecided(error: psycopg.Error) -> bool:
    """Whether a COMMIT that ended so may have reached the disk all the same.

    An ERROR is the answer of a server that rolled back; a FATAL one or none at all is not. A session may be
    ended while it waits for a standby, with its commit on disk.
    """
    state = state_of(error)
    if state in _CUT_BEFORE:
        return False
    return not state or error.diag.severity_nonlocalized not in (None, "ERROR")


def translated(error: StoreError) -> InterlockError | ValueError:
    """The error that callers know for one that was raised before a commit was asked for.

    `data["at_once"]` of an unavailable one says that the same transaction may be tried again at once: it was
    the victim of a deadlock or of a serialisation, and whoever it met is done.
    """
    state = state_of(error)
    said = f"{state or type(error).__name__}: {error}".strip()
    if state.startswith(_DAMAGED):
        return LedgerClosedError(said)
    if state.startswith(_FORMAT):
        return OursToFixError("LEDGER_FORMAT", said)
    if state.startswith(_RIGHTS):
        return OursToFixError("CONFIG_INVALID", said)
    if state.startswith(_REFUSED) or (not state and _is_misuse(error)):
        return ValueError(f"the ledger refuses these rows: {said}")
    unavailable = LedgerUnavailableError(said)
    unavailable.data["at_once"] = state.startswith(_AT_ONCE)
    return unavailable


def _is_misuse(error: StoreError) -> bool:
    """Raised by the driver over what it was given, not over a connection that is gone."""
    return isinstance(error, (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError))

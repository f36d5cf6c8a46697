"""For how long committed events have waited for their numbers, and what holds them back.

A transaction that stays open anywhere in the cluster holds all of them back. It asks, and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from governance.adapters.postgres_ledger.store import PostgresLedger

HIGH_SECONDS = 5.0
"""So long no event waits for its number unless something is wrong."""

_WAITING = """SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - e.at_us,
        e.xid >= pg_snapshot_xmin(pg_current_snapshot())
    FROM sequencer l, LATERAL (SELECT at_us, xid FROM tool_event WHERE (xid, ord) > (l.xid, l.ord)
        ORDER BY xid, ord LIMIT 1) e
    WHERE l.name = 'relay'"""
# By its lock, which every account may see; of a prepared transaction it has no process.
_OLDEST = """SELECT max(pid) FROM pg_locks
    WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND transactionid::text::bigint
        = pg_snapshot_xmin(pg_current_snapshot())::text::bigint % 4294967296"""


class Horizon(NamedTuple):
    """How numbering stands."""

    waiting_s: float = 0.0
    """For how long the oldest event without a number has waited."""
    is_held: bool = False
    """Whether a transaction that is still open holds it back, rather than that nobody gives numbers."""
    pid: int | None = None
    """The server's process whose transaction that is, once it has waited for too long; None where unknown."""

    @property
    def is_late(self) -> bool:
        return self.waiting_s > HIGH_SECONDS


def horizon(ledger: PostgresLedger) -> Horizon:
    """How numbering stands now. Raises LedgerUnavailableError."""
    with ledger.database.single() as connection:
        waiting = connection.execute(_WAITING).fetchone()
        if waiting is None:
            return Horizon()
        found = Horizon(max(0, int(waiting[0])) / 1_000_000, bool(waiting[1]))
        if not (found.is_late and found.is_held):
            return found
        oldest = connection.execute(_OLDEST).fetchone()
        return found._replace(pid=None if oldest is None or oldest[0] is None else int(oldest[0]))

"""The ledger on PostgreSQL: many writers at once, sequence and chain assigned by one sequencer afterwards."""

from governance.adapters.postgres_ledger.sequencer import PostgresSequencer
from governance.adapters.postgres_ledger.store import PostgresLedger

__all__ = ["PostgresLedger", "PostgresSequencer"]

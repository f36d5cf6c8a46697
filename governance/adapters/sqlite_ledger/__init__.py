"""The ledger on SQLite: one file, one writer at a time, sequence and chain written by the append itself."""

from governance.adapters.sqlite_ledger.store import SqliteLedger

__all__ = ["SqliteLedger"]

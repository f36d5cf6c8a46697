"""The steps of the ledger on SQLite, one module a format; found by folder, never imported by name."""

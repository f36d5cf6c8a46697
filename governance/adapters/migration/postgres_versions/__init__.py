"""The steps of the ledger on PostgreSQL, one module a format; found by folder, never imported by name."""

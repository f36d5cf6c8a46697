"""The tables of the ledger on SQLite, their indexes and the triggers that keep the log append-only.

Triggers are the fence, `verify` is the proof. Never holds a statement that is not DDL.
"""

from __future__ import annotations

from governance.ledger import Head

SCHEMA_VERSION = 1
MIN_READER = 1

EVENT_COLUMNS = (
    "ord", "kind", "stream", "version", "type", "format", "at_us", "cause", "actor", "tenant", "session",
    "moves_state", "payload", "hash",
)  # fmt: skip
"""In the order of StoredEvent; `payload_sha` stands beside them."""

HEAD_COLUMNS = Head._fields

HEAD_BOOLEANS = tuple(
    place for place, name in enumerate(HEAD_COLUMNS) if isinstance(Head._field_defaults.get(name), bool)
)
"""Places of the columns that SQLite keeps as 0 and 1."""

READY = "ready = 1 AND phase IN ('queued', 'retry_wait')"
READY_PHASES = ("queued", "retry_wait")
"""Of `READY`, for rows that are in no table yet."""
OPEN = "kind = 'invocation' AND phase <> 'done'"
TWIN = "guards_twins = 1 AND phase IN ('queued', 'retry_wait', 'running', 'reconciliation_required')"

_EVENTS = """
CREATE TABLE tool_event (
    ord INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    stream TEXT NOT NULL,
    version INTEGER NOT NULL,
    type TEXT NOT NULL,
    format INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    cause TEXT NOT NULL,
    actor TEXT NOT NULL,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    moves_state INTEGER NOT NULL,
    payload BLOB NOT NULL,
    payload_sha BLOB NOT NULL,
    hash BLOB NOT NULL,
    UNIQUE (kind, stream, version)
) STRICT
"""

_REFUSED = """
CREATE TRIGGER tool_event_no_{what} BEFORE {what} ON tool_event BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END
"""

# REPLACE would delete the old row without asking the trigger above where recursive triggers are off.
_NO_REPLACE = """
CREATE TRIGGER tool_event_no_replace BEFORE INSERT ON tool_event
WHEN EXISTS (SELECT 1 FROM tool_event WHERE kind = NEW.kind AND stream = NEW.stream AND version = NEW.version)
  OR EXISTS (SELECT 1 FROM tool_event WHERE ord = NEW.ord)
BEGIN
    SELECT RAISE(ABORT, 'events are never replaced');
END
"""


def _head_table() -> str:
    """The head's columns are the fields of `Head`: one list, not two."""
    columns = [
        f"{name} {'INTEGER' if isinstance(Head._field_defaults.get(name), int) else 'TEXT'} NOT NULL"
        for name in HEAD_COLUMNS
    ]
    return f"CREATE TABLE head ({', '.join(columns)}, PRIMARY KEY (kind, id)) STRICT"


STATEMENTS: tuple[str, ...] = (
    _EVENTS,
    # One entry a stream, not one an event: sessions are spread, and every entry dirties a page of its own.
    "CREATE INDEX tool_event_session ON tool_event (session) WHERE version = 1",
    _REFUSED.format(what="UPDATE"),
    _REFUSED.format(what="DELETE"),
    _NO_REPLACE,
    _head_table(),
    # Partial, so that what is final costs nothing: each holds only what is still to be moved.
    f"CREATE INDEX head_ready ON head (pool, priority, accepted_seq) WHERE {READY} AND published_us = 0",
    f"CREATE INDEX head_published ON head (pool) WHERE {READY} AND published_us > 0",
    f"CREATE INDEX head_line ON head (tenant, session, stage, accepted_seq) WHERE {OPEN}",
    f"CREATE INDEX head_phase ON head (phase, accepted_seq) WHERE {OPEN}",
    f"CREATE INDEX head_twin ON head (action_digest) WHERE {TWIN}",
    """CREATE TABLE due (
        kind TEXT NOT NULL, id TEXT NOT NULL, what TEXT NOT NULL, at_us INTEGER NOT NULL,
        PRIMARY KEY (kind, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX due_moment ON due (at_us)",
    """CREATE TABLE idempotency (
        tenant TEXT NOT NULL, client TEXT NOT NULL, key TEXT NOT NULL,
        invocation_id TEXT NOT NULL, request_digest TEXT NOT NULL,
        PRIMARY KEY (tenant, client, key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE denial (action_digest TEXT PRIMARY KEY, invocation_id TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE contract (digest TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT",
    """CREATE TABLE boot (
        boot_id TEXT PRIMARY KEY, role TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
        counter INTEGER NOT NULL, started_us INTEGER NOT NULL, stopped INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE control (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL) STRICT",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)

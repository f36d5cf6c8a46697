"""Format 1 of the ledger on SQLite, the first that was released.

The text is frozen: what later formats declare is no business of this step.
"""

from __future__ import annotations

from governance.adapters.migration.statement import begin_ledger, run

revision = "1"
down_revision = None
MIN_READER = 1

STATEMENTS = (
    """CREATE TABLE tool_event (
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
) STRICT""",
    """CREATE INDEX tool_event_session ON tool_event (session) WHERE version = 1""",
    """CREATE TRIGGER tool_event_no_UPDATE BEFORE UPDATE ON tool_event BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END""",
    """CREATE TRIGGER tool_event_no_DELETE BEFORE DELETE ON tool_event BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END""",
    """CREATE TRIGGER tool_event_no_replace BEFORE INSERT ON tool_event

    WHEN EXISTS (SELECT 1 FROM tool_event
    WHERE kind = NEW.kind AND stream = NEW.stream AND version = NEW.version)
  OR EXISTS (SELECT 1 FROM tool_event WHERE ord = NEW.ord)
BEGIN
    SELECT RAISE(ABORT, 'events are never replaced');
END""",
    """CREATE TABLE head (kind TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL,
    at_us INTEGER NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, phase TEXT NOT NULL,
    data TEXT NOT NULL, client TEXT NOT NULL, stage TEXT NOT NULL, tool TEXT NOT NULL,
    contract_digest TEXT NOT NULL, pool TEXT NOT NULL, priority INTEGER NOT NULL,
    accepted_seq INTEGER NOT NULL, ready INTEGER NOT NULL, published_us INTEGER NOT NULL,
    attempt INTEGER NOT NULL, nonce TEXT NOT NULL, boot TEXT NOT NULL, claimed_us INTEGER NOT NULL,
    started INTEGER NOT NULL, action_digest TEXT NOT NULL, request_digest TEXT NOT NULL,
    permit_until_us INTEGER NOT NULL, epoch INTEGER NOT NULL, deadline_us INTEGER NOT NULL,
    may_repeat INTEGER NOT NULL, guards_twins INTEGER NOT NULL, external INTEGER NOT NULL,
    batchable INTEGER NOT NULL, alone INTEGER NOT NULL, cancel INTEGER NOT NULL, PRIMARY KEY (kind,
    id)) STRICT""",
    """CREATE INDEX head_ready ON head (pool, priority,
    accepted_seq) WHERE ready = 1 AND phase IN ('queued', 'retry_wait') AND published_us = 0""",
    """CREATE INDEX head_published ON head (pool) WHERE ready = 1 AND phase IN ('queued',
    'retry_wait') AND published_us > 0""",
    """CREATE INDEX head_line ON head (tenant, session, stage,
    accepted_seq) WHERE kind = 'invocation' AND phase <> 'done'""",
    """CREATE INDEX head_phase ON head (phase, accepted_seq) WHERE kind = 'invocation' AND phase <> 'done'""",
    """CREATE INDEX head_twin ON head (action_digest) WHERE guards_twins = 1 AND phase IN ('queued',
    'retry_wait', 'running', 'reconciliation_required')""",
    """CREATE TABLE due (
        kind TEXT NOT NULL, id TEXT NOT NULL, what TEXT NOT NULL, at_us INTEGER NOT NULL,
        PRIMARY KEY (kind, id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE INDEX due_moment ON due (at_us)""",
    """CREATE TABLE idempotency (
        tenant TEXT NOT NULL, client TEXT NOT NULL, key TEXT NOT NULL,
        invocation_id TEXT NOT NULL, request_digest TEXT NOT NULL,
        PRIMARY KEY (tenant, client, key)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE denial (action_digest TEXT PRIMARY KEY, invocation_id TEXT NOT NULL) STRICT,
    WITHOUT ROWID""",
    """CREATE TABLE contract (digest TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT""",
    """CREATE TABLE boot (
        boot_id TEXT PRIMARY KEY, role TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
        counter INTEGER NOT NULL, started_us INTEGER NOT NULL, stopped INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE control (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL) STRICT""",
    """CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    "INSERT INTO control (id, epoch) VALUES (1, 1)",
)


def upgrade() -> None:
    """Make a new ledger."""
    run(STATEMENTS)
    begin_ledger()

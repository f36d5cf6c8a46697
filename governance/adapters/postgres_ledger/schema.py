"""The tables of the ledger on PostgreSQL, their indexes and the triggers that keep the log append-only.

Triggers are the fence, `verify` is the proof. Never holds a statement that is not part of the schema.
"""

from __future__ import annotations

from governance.ledger import Head

SCHEMA_VERSION = 1
MIN_READER = 1

EVENT_COLUMNS = (
    "kind", "stream", "version", "type", "format", "at_us", "cause", "actor", "tenant", "session",
    "moves_state", "payload",
)  # fmt: skip
"""In the order of StoredEvent, between its seq and its hash, which lie in `event_seq`."""

HEAD_COLUMNS = Head._fields

HEAD_TYPES = tuple(
    "boolean" if isinstance(default, bool) else "bigint" if isinstance(default, int) else "text"
    for default in map(Head._field_defaults.get, HEAD_COLUMNS)
)
"""The type of each column, in the order of HEAD_COLUMNS."""

READY = "ready AND phase IN ('queued', 'retry_wait')"
OPEN = "kind = 'invocation' AND phase <> 'done'"
TWIN = "guards_twins AND phase IN ('queued', 'retry_wait', 'running', 'reconciliation_required')"

# Every text is compared by its bytes, as Python and SQLite compare it, whatever the database's language.
_TEXT = 'text COLLATE "C" NOT NULL'

# A place is (xid, ord): numbers alone are not in the order of commits, transaction ids below the horizon are.
_EVENTS = f"""
CREATE TABLE tool_event (
    ord bigint NOT NULL DEFAULT nextval('tool_event_ord'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind {_TEXT}, stream {_TEXT}, version bigint NOT NULL, type {_TEXT}, format bigint NOT NULL,
    at_us bigint NOT NULL, cause {_TEXT}, actor {_TEXT}, tenant {_TEXT}, session {_TEXT},
    moves_state boolean NOT NULL, payload bytea NOT NULL, payload_sha bytea NOT NULL,
    PRIMARY KEY (kind, stream, version)
)
"""

_REFUSE = """
CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are never changed: % on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$
"""


def _append_only(table: str) -> tuple[str, ...]:
    """Fires for a statement, so that one without rows, ON CONFLICT DO UPDATE and MERGE are refused too."""
    return (
        f"""CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()""",
        # Also in a session that calls itself a replica, where ordinary triggers sleep.
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only",
    )


def _head_table() -> str:
    """The head's columns are the fields of `Head`: one list, not two."""
    columns = [
        f"{name} {_TEXT if kind == 'text' else kind + ' NOT NULL'}"
        for name, kind in zip(HEAD_COLUMNS, HEAD_TYPES, strict=True)
    ]
    return f"CREATE TABLE head ({', '.join(columns)}, PRIMARY KEY (kind, id)) {_CHURNED}"


# Rows that move often: free space beside them, and their dead versions taken away early.
_CHURNED = (
    "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)"
)

STATEMENTS: tuple[str, ...] = (
    "CREATE SEQUENCE tool_event_ord",
    _EVENTS,
    "ALTER SEQUENCE tool_event_ord OWNED BY tool_event.ord",
    "CREATE UNIQUE INDEX tool_event_place ON tool_event (xid, ord)",
    # One entry a stream, not one an event.
    "CREATE INDEX tool_event_session ON tool_event (session, ord) WHERE version = 1",
    "CREATE INDEX tool_event_accepted ON tool_event (ord) WHERE version = 1 AND kind = 'invocation'",
    """CREATE TABLE event_seq (
        seq bigint PRIMARY KEY, xid xid8 NOT NULL, ord bigint NOT NULL UNIQUE, hash bytea NOT NULL
    )""",
    _REFUSE,
    *_append_only("tool_event"),
    *_append_only("event_seq"),
    # Who gives out the numbers: epoch and counter are compared in the transaction that gives them.
    f"""CREATE TABLE sequencer (
        name {_TEXT} PRIMARY KEY, epoch bigint NOT NULL, holder {_TEXT}, counter bigint NOT NULL,
        seq bigint NOT NULL, xid xid8 NOT NULL, ord bigint NOT NULL
    )""",
    _head_table(),
    # Partial, so that what is final costs nothing: each holds only what is still to be moved.
    f"CREATE INDEX head_ready ON head (pool, priority, accepted_seq) WHERE {READY} AND published_us = 0",
    f"CREATE INDEX head_published ON head (pool) WHERE {READY} AND published_us > 0",
    f"CREATE INDEX head_line ON head (tenant, session, stage, accepted_seq) WHERE {OPEN}",
    f"CREATE INDEX head_phase ON head (phase, accepted_seq) WHERE {OPEN}",
    f"CREATE INDEX head_twin ON head (action_digest) WHERE {TWIN}",
    f"""CREATE TABLE due (
        kind {_TEXT}, id {_TEXT}, what {_TEXT}, at_us bigint NOT NULL, PRIMARY KEY (kind, id)
    ) {_CHURNED}""",
    "CREATE INDEX due_moment ON due (at_us, kind, id)",
    f"""CREATE TABLE idempotency (
        tenant {_TEXT}, client {_TEXT}, key {_TEXT}, invocation_id {_TEXT}, request_digest {_TEXT},
        PRIMARY KEY (tenant, client, key)
    )""",
    f"CREATE TABLE denial (action_digest {_TEXT} PRIMARY KEY, invocation_id {_TEXT})",
    f"CREATE TABLE contract (digest {_TEXT} PRIMARY KEY, body bytea NOT NULL)",
    f"""CREATE TABLE boot (
        boot_id {_TEXT} PRIMARY KEY, role {_TEXT}, host {_TEXT}, pid bigint NOT NULL,
        counter bigint NOT NULL, started_us bigint NOT NULL, stopped boolean NOT NULL
    ) {_CHURNED}""",
    "CREATE TABLE control (id bigint PRIMARY KEY CHECK (id = 1), epoch bigint NOT NULL)",
    f"CREATE TABLE meta (name {_TEXT} PRIMARY KEY, value {_TEXT})",
    "INSERT INTO control (id, epoch) VALUES (1, 1)",
    "INSERT INTO sequencer VALUES ('relay', 0, '', 0, 0, '0', 0)",
)
"""Everything but the rows of `meta`, which differ from ledger to ledger."""

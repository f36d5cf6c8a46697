"""Format 1 of the ledger on PostgreSQL, the first that was released.

The text is frozen: what later formats declare is no business of this step.
"""

from __future__ import annotations

from governance.adapters.migration.statement import begin_ledger, run

revision = "1"
down_revision = None
MIN_READER = 1

STATEMENTS = (
    """CREATE SEQUENCE tool_event_ord""",
    """CREATE TABLE tool_event (
    ord bigint NOT NULL DEFAULT nextval('tool_event_ord'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind text COLLATE "C" NOT NULL, stream text COLLATE "C" NOT NULL, version bigint NOT NULL,
        type text COLLATE "C" NOT NULL, format bigint NOT NULL,
    at_us bigint NOT NULL, cause text COLLATE "C" NOT NULL, actor text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL, session text COLLATE "C" NOT NULL,
    moves_state boolean NOT NULL, payload bytea NOT NULL, payload_sha bytea NOT NULL,
    PRIMARY KEY (kind, stream, version)
)""",
    """ALTER SEQUENCE tool_event_ord OWNED BY tool_event.ord""",
    """CREATE UNIQUE INDEX tool_event_place ON tool_event (xid, ord)""",
    """CREATE INDEX tool_event_session ON tool_event (session, ord) WHERE version = 1""",
    """CREATE INDEX tool_event_accepted ON tool_event (ord) WHERE version = 1 AND kind = 'invocation'""",
    """CREATE TABLE event_seq (
        seq bigint PRIMARY KEY, xid xid8 NOT NULL, ord bigint NOT NULL UNIQUE, hash bytea NOT NULL
    )""",
    """CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are never changed: % on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$""",
    """CREATE TRIGGER tool_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tool_event
            FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()""",
    """ALTER TABLE tool_event ENABLE ALWAYS TRIGGER tool_event_append_only""",
    """CREATE TRIGGER event_seq_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON event_seq
            FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()""",
    """ALTER TABLE event_seq ENABLE ALWAYS TRIGGER event_seq_append_only""",
    """CREATE TABLE sequencer (
        name text COLLATE "C" NOT NULL PRIMARY KEY, epoch bigint NOT NULL,
            holder text COLLATE "C" NOT NULL, counter bigint NOT NULL,
        seq bigint NOT NULL, xid xid8 NOT NULL, ord bigint NOT NULL
    )""",
    """CREATE TABLE head (kind text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
    version bigint NOT NULL, at_us bigint NOT NULL, tenant text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL, phase text COLLATE "C" NOT NULL,
    data text COLLATE "C" NOT NULL, client text COLLATE "C" NOT NULL,
    stage text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL,
    contract_digest text COLLATE "C" NOT NULL, pool text COLLATE "C" NOT NULL,
    priority bigint NOT NULL, accepted_seq bigint NOT NULL, ready boolean NOT NULL,
    published_us bigint NOT NULL, attempt bigint NOT NULL, nonce text COLLATE "C" NOT NULL,
    boot text COLLATE "C" NOT NULL, claimed_us bigint NOT NULL, started boolean NOT NULL,
    action_digest text COLLATE "C" NOT NULL, request_digest text COLLATE "C" NOT NULL,
    permit_until_us bigint NOT NULL, epoch bigint NOT NULL, deadline_us bigint NOT NULL,
    may_repeat boolean NOT NULL, guards_twins boolean NOT NULL, external boolean NOT NULL,
    batchable boolean NOT NULL, alone boolean NOT NULL, cancel boolean NOT NULL, PRIMARY KEY (kind,
    id)) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05)""",
    """CREATE INDEX head_ready ON head (pool, priority, accepted_seq) WHERE ready AND phase IN ('queued',
    'retry_wait') AND published_us = 0""",
    """CREATE INDEX head_published ON head (pool) WHERE ready AND phase IN ('queued',
    'retry_wait') AND published_us > 0""",
    """CREATE INDEX head_line ON head (tenant, session, stage,
    accepted_seq) WHERE kind = 'invocation' AND phase <> 'done'""",
    """CREATE INDEX head_phase ON head (phase, accepted_seq) WHERE kind = 'invocation' AND phase <> 'done'""",
    """CREATE INDEX head_twin ON head (action_digest) WHERE guards_twins AND phase IN ('queued',
    'retry_wait', 'running', 'reconciliation_required')""",
    """CREATE TABLE due (
        kind text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
            what text COLLATE "C" NOT NULL, at_us bigint NOT NULL, PRIMARY KEY (kind, id)
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_analyze_scale_factor = 0.05)""",
    """CREATE INDEX due_moment ON due (at_us, kind, id)""",
    """CREATE TABLE idempotency (
        tenant text COLLATE "C" NOT NULL, client text COLLATE "C" NOT NULL,
            key text COLLATE "C" NOT NULL, invocation_id text COLLATE "C" NOT NULL,
            request_digest text COLLATE "C" NOT NULL,
        PRIMARY KEY (tenant, client, key)
    )""",
    """CREATE TABLE denial (action_digest text COLLATE "C" NOT NULL PRIMARY KEY,
    invocation_id text COLLATE "C" NOT NULL)""",
    """CREATE TABLE contract (digest text COLLATE "C" NOT NULL PRIMARY KEY, body bytea NOT NULL)""",
    """CREATE TABLE boot (
        boot_id text COLLATE "C" NOT NULL PRIMARY KEY, role text COLLATE "C" NOT NULL,
            host text COLLATE "C" NOT NULL, pid bigint NOT NULL,
        counter bigint NOT NULL, started_us bigint NOT NULL, stopped boolean NOT NULL
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_analyze_scale_factor = 0.05)""",
    """CREATE TABLE control (id bigint PRIMARY KEY CHECK (id = 1), epoch bigint NOT NULL)""",
    """CREATE TABLE meta (name text COLLATE "C" NOT NULL PRIMARY KEY, value text COLLATE "C" NOT NULL)""",
    """INSERT INTO control (id, epoch) VALUES (1, 1)""",
    """INSERT INTO sequencer VALUES ('relay', 0, '', 0, 0, '0', 0)""",
)


def upgrade() -> None:
    """Make a new ledger."""
    run(STATEMENTS)
    begin_ledger()

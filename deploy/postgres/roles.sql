-- Who may do what in the ledger's database. Run by an administrator after every `interlock migrate`, in that
-- database; it may be run again at any time. Nobody logs in as one of these roles: give each process a login of
-- its own that is a member of one (CREATE ROLE pool_shell LOGIN PASSWORD '…' IN ROLE interlock_worker).
--
-- interlock_owner      makes and moves tables; no process runs as it
-- interlock_governor   accepts, decides, grants; registers tools, sessions and keys
-- interlock_scheduler  dispatches, sweeps; gives events their numbers
-- interlock_worker     appends execution events, moves what claim and report move
-- interlock_projector  reads the log, writes the views
-- interlock_reader     reads
--
-- Row-level security and not functions that run with their owner's rights: append is one piece of code for all
-- roles, with the batches that its speed rests on, and a second one in the database could disagree with it. What
-- a policy can say is exactly what has to be held: which events, on which streams, under whose transaction.
-- Heads and due rows are caches of the log that `verify` compares; what may run is said by a permit's signature.

DO $$
DECLARE
    one text;
BEGIN
    FOREACH one IN ARRAY ARRAY['owner', 'governor', 'scheduler', 'worker', 'projector', 'reader'] LOOP
        IF to_regrole('interlock_' || one) IS NULL THEN
            EXECUTE format('CREATE ROLE interlock_%s NOLOGIN', one);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO interlock_owner, interlock_governor, interlock_scheduler, '
        'interlock_worker, interlock_projector, interlock_reader', current_database());
    EXECUTE format('GRANT CREATE ON DATABASE %I TO interlock_owner', current_database());
END $$;

CREATE SCHEMA IF NOT EXISTS views;
REVOKE ALL ON SCHEMA public, views FROM PUBLIC;
ALTER SCHEMA views OWNER TO interlock_owner;
GRANT ALL ON SCHEMA public TO interlock_owner;
GRANT USAGE ON SCHEMA public TO
    interlock_governor, interlock_scheduler, interlock_worker, interlock_projector, interlock_reader;
GRANT USAGE ON SCHEMA views TO interlock_projector, interlock_reader;

-- Everything belongs to the owner, and what was granted before is taken back first.
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT oid::regclass AS name, relkind FROM pg_class
        WHERE relnamespace IN ('public'::regnamespace, 'views'::regnamespace) AND relkind IN ('r', 'S')
            AND NOT EXISTS (  -- a sequence follows the table whose column it fills
                SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i')
                    AND refclassid = 'pg_class'::regclass AND relkind = 'S')
    LOOP
        EXECUTE format('ALTER %s %s OWNER TO interlock_owner',
            CASE one.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, one.name);
    END LOOP;
END $$;
ALTER FUNCTION ledger_refuse() OWNER TO interlock_owner;
REVOKE ALL ON ALL TABLES IN SCHEMA public, views FROM PUBLIC,
    interlock_governor, interlock_scheduler, interlock_worker, interlock_projector, interlock_reader;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC,
    interlock_governor, interlock_scheduler, interlock_worker, interlock_projector, interlock_reader;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;

GRANT SELECT ON ALL TABLES IN SCHEMA public TO
    interlock_governor, interlock_scheduler, interlock_worker, interlock_projector, interlock_reader;
GRANT USAGE ON SEQUENCE tool_event_ord TO interlock_governor, interlock_scheduler, interlock_worker;
GRANT INSERT ON tool_event TO interlock_governor, interlock_scheduler, interlock_worker;

GRANT INSERT, UPDATE ON head, due, boot, idempotency TO interlock_governor;
GRANT DELETE ON due TO interlock_governor;
GRANT INSERT ON denial, contract TO interlock_governor;
GRANT UPDATE (epoch) ON control TO interlock_governor;

-- The columns that move with an invocation; what a request said stays what it said.
GRANT UPDATE (version, at_us, phase, data, ready, published_us, attempt, nonce, boot, claimed_us, started,
    permit_until_us, epoch, alone, cancel) ON head TO interlock_scheduler, interlock_worker;
GRANT INSERT ON head TO interlock_scheduler, interlock_worker;
GRANT INSERT, DELETE, UPDATE (what, at_us) ON due TO interlock_scheduler, interlock_worker;
GRANT INSERT, UPDATE (role, host, pid, counter, started_us, stopped) ON boot
    TO interlock_scheduler, interlock_worker;
GRANT INSERT ON event_seq TO interlock_scheduler;
GRANT UPDATE ON sequencer TO interlock_scheduler;

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA views TO interlock_projector;
GRANT SELECT ON ALL TABLES IN SCHEMA views TO interlock_reader;
DO $$
BEGIN
    IF to_regclass('views.format') IS NOT NULL THEN
        REVOKE INSERT, UPDATE, DELETE ON views.format FROM interlock_projector;
    END IF;
END $$;

ALTER TABLE tool_event ENABLE ROW LEVEL SECURITY;
ALTER TABLE head ENABLE ROW LEVEL SECURITY;
ALTER TABLE due ENABLE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS everybody_reads ON tool_event;
DROP POLICY IF EXISTS everybody_reads ON head;
DROP POLICY IF EXISTS everybody_reads ON due;
CREATE POLICY everybody_reads ON tool_event FOR SELECT USING (true);
CREATE POLICY everybody_reads ON head FOR SELECT USING (true);
CREATE POLICY everybody_reads ON due FOR SELECT USING (true);

-- A forged transaction id would put an event where the sequencer has already been, or keep it waiting for ever.
DROP POLICY IF EXISTS governor_appends ON tool_event;
CREATE POLICY governor_appends ON tool_event FOR INSERT TO interlock_governor
    WITH CHECK (xid = pg_current_xact_id());
DROP POLICY IF EXISTS scheduler_appends ON tool_event;
CREATE POLICY scheduler_appends ON tool_event FOR INSERT TO interlock_scheduler
    WITH CHECK (xid = pg_current_xact_id() AND kind = 'invocation' AND type IN (
        'ExecutionAbandoned', 'ReconciliationRequired', 'ToolExecutionFailed', 'ToolExecutionRejected',
        'PermitReturned'));
DROP POLICY IF EXISTS worker_appends ON tool_event;
CREATE POLICY worker_appends ON tool_event FOR INSERT TO interlock_worker
    WITH CHECK (xid = pg_current_xact_id() AND (
        kind = 'invocation' AND type IN (
            'ToolExecutionStarted', 'ToolResponseRecorded', 'ToolExecutionCompleted', 'ToolExecutionFailed',
            'ExecutionAttemptFailed', 'ExecutionReleased', 'ToolExecutionRejected', 'ReconciliationRequired',
            'ReconciliationResolved', 'PermitReturned')
        OR kind = 'evidence' AND type IN (
            'LateOutcomeRecorded', 'OutcomeContradicted', 'SandboxViolation', 'PermitMismatched',
            'OutputRejected')));

DROP POLICY IF EXISTS governor_moves ON head;
DROP POLICY IF EXISTS governor_moves ON due;
CREATE POLICY governor_moves ON head TO interlock_governor USING (true) WITH CHECK (true);
CREATE POLICY governor_moves ON due TO interlock_governor USING (true) WITH CHECK (true);
DROP POLICY IF EXISTS execution_moves ON head;
CREATE POLICY execution_moves ON head FOR UPDATE TO interlock_scheduler, interlock_worker
    USING (kind IN ('invocation', 'evidence')) WITH CHECK (kind IN ('invocation', 'evidence'));
DROP POLICY IF EXISTS evidence_begins ON head;
CREATE POLICY evidence_begins ON head FOR INSERT TO interlock_scheduler, interlock_worker
    WITH CHECK (kind = 'evidence');
DROP POLICY IF EXISTS execution_moves ON due;
CREATE POLICY execution_moves ON due TO interlock_scheduler, interlock_worker
    USING (kind IN ('invocation', 'evidence')) WITH CHECK (kind = 'invocation');

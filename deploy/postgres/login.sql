-- The one account that the containers of docker-compose.yml share, with the rights of every role and none of the
-- owner's: it defines nothing and empties nothing. Run by psql after roles.sql, with LEDGER_PASSWORD in the
-- environment; again at any time.

\getenv password LEDGER_PASSWORD
SELECT 'CREATE ROLE interlock_app LOGIN' WHERE to_regrole('interlock_app') IS NULL \gexec
ALTER ROLE interlock_app PASSWORD :'password';
GRANT interlock_governor, interlock_scheduler, interlock_worker, interlock_projector TO interlock_app;

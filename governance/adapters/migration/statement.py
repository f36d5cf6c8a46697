"""What the steps of both stores are written with: statements as they stand, and indexes beside full tables.

An index of PostgreSQL is made without a transaction: no writer waits, and the relay's horizon moves on.
"""

from __future__ import annotations

from collections.abc import Iterable

from alembic import op

from interlock.identifier import new_id


def run(statements: Iterable[str]) -> None:
    """Run them in order, as they stand."""
    connection = op.get_bind()
    for statement in statements:
        # Without parameters a percent sign is one.
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def begin_ledger() -> None:
    """Give a new ledger its name."""
    op.get_bind().exec_driver_sql(f"INSERT INTO meta (name, value) VALUES ('incarnation', '{new_id()}')")


def add_index(name: str, definition: str) -> None:
    """Make an index of PostgreSQL beside whoever writes; `definition` goes from ON to the end.

    What a cut attempt left behind is no index: it is dropped and made again. For steps that are not in a
    transaction.
    """
    connection = op.get_bind()
    valid = connection.exec_driver_sql(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (name,)
    ).scalar()
    if valid is False:
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")
    connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} {definition}")

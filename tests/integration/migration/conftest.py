"""A ledger of either store, and a catalogue of what its schema is."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from governance.adapters.migration import Location
from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer
from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import ManualClock
from tests.support.installation import Installation
from tests.support.postgres import PostgresServer
from tests.support.postgres import postgres as postgres

CATALOGUE = (
    """SELECT c.relname, c.relkind::text, c.reloptions::text, c.relrowsecurity, c.relpersistence::text
        FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace""",
    """SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, l.collname,
            pg_get_expr(d.adbin, d.adrelid), a.attidentity::text
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'S')
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped""",
    """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    """SELECT pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisunique, i.indisprimary
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
        WHERE c.relnamespace = 'public'::regnamespace""",
    "SELECT pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "SELECT sequencename, start_value, increment_by, cycle, cache_size FROM pg_sequences",
    "SELECT tablename, policyname, cmd, roles::text, qual, with_check FROM pg_policies",
)


@dataclass(frozen=True)
class Place:
    """Where one ledger lies."""

    kind: str
    location: Location
    beside: Location
    """Another one, to compare it with."""

    def open(
        self, location: Location | None = None, *, create: bool = False
    ) -> SqliteLedger | PostgresLedger:
        where = location or self.location
        if isinstance(where, Path):
            return SqliteLedger.open(where, ManualClock(), create=create)
        return PostgresLedger.open(where, ManualClock(), create=create)

    def catalogue(self, location: Location | None = None) -> list[tuple[Any, ...]]:
        """What the schema is, with white space and names of no meaning taken out."""
        where = location or self.location
        if isinstance(where, Path):
            with closing(sqlite3.connect(where)) as connection:
                rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
            return sorted((*row[:3], "".join((row[3] or "").split())) for row in rows)
        with psycopg.connect(where) as server:
            found = [row for question in CATALOGUE for row in server.execute(question.encode()).fetchall()]
        return sorted(tuple(re.sub(r"\s+", " ", str(value)) for value in row) for row in found)

    def set_format(self, reached: int, min_reader: int) -> None:
        """As a later program would have left it."""
        for name, value in (("schema_version", reached), ("min_reader", min_reader)):
            self.run(f"UPDATE meta SET value = '{value}' WHERE name = '{name}'")

    def run(self, statement: str) -> None:
        """One statement, past the ledger."""
        if isinstance(self.location, Path):
            with closing(sqlite3.connect(self.location, isolation_level=None)) as connection:
                connection.execute(statement)
            return
        with psycopg.connect(self.location, autocommit=True) as server:
            server.execute(statement.encode())

    def names(self) -> set[str]:
        """Tables and indexes."""
        column = 1 if self.kind == "sqlite" else 0
        return {row[column] for row in self.catalogue()}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty file or database, and one beside it."""
    if request.param == "sqlite":
        for name in ("ledger.db", "other.db"):
            (tmp_path / name).touch()
        yield Place("sqlite", tmp_path / "ledger.db", tmp_path / "other.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url, server.database() as other:
        yield Place("postgres", url, other)


def fill(place: Place) -> Installation:
    """Real events: an installation, whole runs, one that is open, and what lies beside."""
    ledger = place.open()
    made = Installation(ledger, ManualClock())
    made.start()
    for number in range(3):
        made.run(f"i-{number}")
    made.request("i-open")
    sequence(ledger)
    return made


def sequence(ledger: SqliteLedger | PostgresLedger) -> None:
    """Give all that is committed its place, where that is not the append's own work."""
    if isinstance(ledger, PostgresLedger):
        sequencer = PostgresSequencer(ledger, "the test")
        while sequencer.sequence():
            pass
        sequencer.close()

"""On which store the systems of a test keep their ledger: `INTERLOCK_TEST_STORE`, `sqlite` or `postgresql`.

A run has one server, named by `INTERLOCK_TEST_POSTGRES`; each system gets a fresh database of its own there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from gateway.embedded.directory import DataDirectory, prepare
from gateway.embedded.ledger_note import note_server, server_of
from gateway.store import open_ledger, sequencer_of
from governance.adapters.postgres_ledger import PostgresSequencer
from interlock.identifier import new_id
from tests.support.postgres import postgres_server

if TYPE_CHECKING:
    from gateway.store import OpenLedger

STORE = "INTERLOCK_TEST_STORE"
SERVER = "INTERLOCK_TEST_POSTGRES"
LEDGER_URL = "INTERLOCK_LEDGER_URL"


def wanted() -> str:
    """`sqlite` or `postgresql`."""
    store = os.environ.get(STORE) or "sqlite"
    assert store in ("sqlite", "postgresql"), f"{STORE} is {store}"
    return store


@contextmanager
def store_settings(store: str | None = None) -> Iterator[dict[str, str]]:
    """The settings by which a system keeps its ledger there; a database is gone at the end."""
    if (store or wanted()) == "sqlite":
        yield {}
        return
    with shared_server() as server, fresh_database(server) as url:
        yield {LEDGER_URL: url}


@contextmanager
def stored(path: Path, store: str | None = None) -> Iterator[DataDirectory]:
    """A directory with an empty ledger there, which from then on it alone names."""
    with store_settings(store) as settings:
        directory = DataDirectory.at(path, settings)
        prepare(directory)
        with closing(open_ledger(directory, create=True)) as ledger:
            note_server(directory, ledger.info.incarnation)
        yield DataDirectory.at(path)


def give_places(ledger: OpenLedger) -> None:
    """Give whatever was appended its number, where no scheduler runs that does."""
    sequencer = sequencer_of(ledger, new_id())
    while sequencer.sequence():
        pass
    if isinstance(sequencer, PostgresSequencer):
        sequencer.close()


def kept_rows(directory: DataDirectory) -> bytes:
    """Every row of every table of the directory's database, as text; empty where it has none."""
    url = server_of(directory)
    if not url:
        return b""
    tables = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
    with psycopg.connect(url, autocommit=True) as connection:
        names = [
            name
            for name in connection.execute(tables).fetchall()
            if name[0] not in ("pg_catalog", "information_schema")
        ]
        assert names
        return b"\n".join(_rows(connection, *name) for name in names)


def _rows(connection: psycopg.Connection[tuple[Any, ...]], schema: str, table: str) -> bytes:
    rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))).fetchall()
    return b"\n".join(one if isinstance(one, bytes) else str(one).encode() for row in rows for one in row)


@contextmanager
def shared_server() -> Iterator[str]:
    """The address of this run's server; where there is none yet, one until the end of the block."""
    known = os.environ.get(SERVER)
    if known:
        yield known
        return
    with postgres_server() as server:
        os.environ[SERVER] = server.url()
        try:
            yield server.url()
        finally:
            del os.environ[SERVER]


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """The address of an empty database."""
    name = f"s_{secrets.token_hex(6)}"
    run(server, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        run(server, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def run(server: str, statement: sql.Composed) -> None:
    """One statement outside a transaction."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)

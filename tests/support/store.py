"""On which store the systems of a test keep their ledger: `INTERLOCK_TEST_STORE`, `sqlite` or `postgresql`.

A run has one server, named by `INTERLOCK_TEST_POSTGRES`; each system gets a fresh database of its own there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.support.postgres import postgres_server

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

"""Every projection the suite is asked of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.projection import Projection
from tests.support.postgres import postgres as postgres
from tests.support.postgres import postgres_url as postgres_url
from workers.adapters.postgres_projection import PostgresProjection
from workers.adapters.sqlite_projection import FILE_NAME, SqliteProjection
from workers.memory_projection import InMemoryProjection

Stored = SqliteProjection | PostgresProjection


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def projection(request: pytest.FixtureRequest) -> Iterator[Projection]:
    if request.param == "memory":
        yield InMemoryProjection()
        return
    stored = _stored(request.param, request)
    yield stored
    stored.close()


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest) -> Iterator[Stored]:
    """One that outlives its process, with epochs beside each other."""
    stored = _stored(request.param, request)
    yield stored
    stored.close()


def _stored(kind: str, request: pytest.FixtureRequest) -> Stored:
    if kind == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return SqliteProjection.open(folder / FILE_NAME)
    return PostgresProjection.open(request.getfixturevalue("postgres_url"))

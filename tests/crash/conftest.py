"""One PostgreSQL for the whole run, where the tests are to run on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.store import shared_server, wanted


@pytest.fixture(scope="session", autouse=True)
def store() -> Iterator[None]:
    """The server that every system of the run has a database on."""
    if wanted() == "sqlite":
        yield
        return
    with shared_server():
        yield

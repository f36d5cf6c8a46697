"""One broker for the tests of the queue, emptied before each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.valkey import ValkeyServer, valkey_server


@pytest.fixture(scope="session")
def server() -> Iterator[ValkeyServer]:
    folder = Path(tempfile.mkdtemp(prefix="s"))
    with valkey_server(folder) as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def broker(server: ValkeyServer) -> Redis:
    """A client of the emptied broker."""
    client = server.client()
    client.flushall()
    return client

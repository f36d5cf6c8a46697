"""One broker for the suites that are asked of a real one, too; who uses it empties it before each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.valkey import ValkeyServer, valkey_server


@pytest.fixture(scope="session")
def server() -> Iterator[ValkeyServer]:
    folder = Path(tempfile.mkdtemp(prefix="s"))
    with valkey_server(folder) as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)

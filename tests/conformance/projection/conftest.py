"""Every projection the suite is asked of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.projection import Projection
from workers.adapters.sqlite_projection import FILE_NAME, SqliteProjection
from workers.memory_projection import InMemoryProjection


@pytest.fixture(params=["memory", "sqlite"])
def projection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Projection]:
    if request.param == "memory":
        yield InMemoryProjection()
        return
    stored = SqliteProjection.open(tmp_path / FILE_NAME)
    yield stored
    stored.close()

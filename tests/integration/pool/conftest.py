"""A system of its own for each test of a pool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.pool.system import PoolSystem


@pytest.fixture
def system(reachable_tmp_path: Path) -> Iterator[PoolSystem]:
    """Broker, ledger and keys, without a pool."""
    made = PoolSystem(reachable_tmp_path)
    yield made
    made.close()


@pytest.fixture
def sandboxed(system: PoolSystem) -> PoolSystem:
    """The same, where tools may run."""
    if os.geteuid() == 0:
        pytest.skip("tools never run from uid 0; the tests run as an ordinary account too")
    return system

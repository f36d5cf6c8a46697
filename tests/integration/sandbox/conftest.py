"""A pool for each module of the sandbox's tests; skipped by name where no sandbox can be had."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.sandbox.pool import Pool


@pytest.fixture(scope="module")
def reachable_folder() -> Iterator[Path]:
    """A folder that every account can enter, and all above it."""
    folder = Path(tempfile.mkdtemp(prefix="sandbox-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pool(reachable_folder: Path) -> Iterator[Pool]:
    """A running pool without any host to fetch from."""
    running = Pool(reachable_folder)
    require_sandbox(running)
    yield running
    running.close()


@pytest.fixture
def own_pool(reachable_tmp_path: Path) -> Iterator[Pool]:
    """A pool that the test may kill."""
    running = Pool(reachable_tmp_path)
    require_sandbox(running)
    yield running
    running.close()


def require_sandbox(pool: Pool) -> None:
    """Skip by name at home where there is no sandbox; a failure where CI promises one."""
    if pool.refusal is None:
        return
    pool.close()
    if os.environ.get("CI") == "true":
        pytest.fail(f"no sandbox: {pool.refusal}", pytrace=False)
    pytest.skip(f"no sandbox: {pool.refusal}")

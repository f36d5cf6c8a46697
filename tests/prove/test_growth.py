"""The long proof of growth: an invocation costs as much at a million events as at a thousand.

`PROVE_ROWS` events (1,000,000); on SQLite, and on PostgreSQL where its server is found (`PROVE_STORE` names
one). Rounds alternate between a fresh small system and the one that has grown. No part of `./run test`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.disk import choose_folder
from benchmarks.plan import stores_of
from benchmarks.postgres import is_available
from benchmarks.store import open_stores
from tests.support.grown import Growth, prove_growth
from tests.support.proof import Outline, proving

PROOF = Outline(
    name="growth",
    says="An invocation costs as much at a million events as at 1,000, and a rebuild takes no more memory.",
    count="PROVE_ROWS",
    usual=1_000_000,
    minutes=4.0,
    minutes_each=0.000008,
)
SIZES = Growth(small=1_000, early=100_000, n=4_000, submits=200, rounds=5)
RATIO_MAX, EVENTS_A_SECOND_MIN = 1.2, 10_000


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk: growth in memory says nothing."""
    folder = choose_folder(None, (Path("/var/tmp"), Path.home(), Path.cwd()))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_an_invocation_costs_the_same_however_much_was_recorded(seed: int, disk: Path) -> None:
    names = stores_of(os.environ.get("PROVE_STORE"), has_postgres=is_available(os.environ))
    with proving(PROOF, seed) as course, open_stores(names, disk, os.environ) as stores:
        course.figure("load_before", round(os.getloadavg()[0], 2))
        found = {store.name: prove_growth(store, disk, course, SIZES, course.wanted) for store in stores}
        for name, one in found.items():
            assert one.is_verified, name
            assert one.rebuild_events_per_s >= EVENTS_A_SECOND_MIN, name
            assert one.peak_ratio <= RATIO_MAX, name
            assert one.cpu_ratio <= RATIO_MAX, name
            # These two are times: only a quiet machine tells them apart from its other work.
            assert one.rate_ratio <= RATIO_MAX, name
            assert one.latency_ratio <= RATIO_MAX, name

"""The proof of growth in short: a grown history is a real one, on which a system runs and verifies."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.plan import SQLITE
from benchmarks.store import Store
from tests.support.grown import Growth, prove_growth
from tests.support.proof import Outline, proving

SHORT = Outline(name="growth", says="The short form.", usual=3_000, minutes=0.2)
SIZES = Growth(small=200, early=3_000, n=100, submits=10, rounds=1, warm_up=20)


@pytest.mark.timeout(180)
def test_a_system_runs_on_a_grown_ledger_and_proves_it(seed: int, tmp_path: Path) -> None:
    with proving(SHORT, seed) as course:
        found = prove_growth(Store(SQLITE), tmp_path, course, SIZES, course.wanted)
    assert found.is_verified
    assert found.rebuild_events_per_s > 0
    assert course.figures["verify_sqlite_events"] > course.wanted

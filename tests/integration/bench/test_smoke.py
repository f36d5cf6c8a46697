"""A short run of the benchmarks, as `./run bench` starts it: every figure is there and proven."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checkout import environment
from gateway.embedded.directory import MEMORY_FILESYSTEMS
from gateway.embedded.kernel import filesystem_type

N = 200


@pytest.mark.timeout(180)
def test_a_short_run_measures_and_proves_everything(tmp_path: Path) -> None:
    if filesystem_type(tmp_path) in MEMORY_FILESYSTEMS:
        pytest.skip("the tests' own folder lies in memory, where nothing is measured")
    command = [sys.executable, "-m", "gateway.cli", "bench", "--json", "--store=sqlite"]
    command += [f"--n={N}", "--rounds=1", "--producers=2"]
    done = subprocess.run(
        [*command, f"--folder={tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["n"] == N
    assert report["proof"]["ok"] is True
    # Single submits, batches, those that the projector caught up with, and the idle ones: each has a receipt.
    assert report["proof"]["receipts"] == 3 * N + report["idle_submits"]
    for name in ("governed", "celery", "governed_batch", "celery_batch", "celery_tuned"):
        assert report[f"{name}_per_s"] > 0
    assert report["catchup_events_per_s"] > 0
    assert report["phase_ms"]["governed"]["proposed_to_projected"] > 0
    assert report["governed_postgresql_per_s"] is None
    assert report["durability"]["ledger"]["journal_mode"] == "wal"
    assert report["durability"]["broker"] == report["durability"]["celery_broker"]
    assert list(tmp_path.iterdir()) == []

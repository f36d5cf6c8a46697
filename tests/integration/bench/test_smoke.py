"""A short run of the benchmarks, as `./run bench` starts it: every figure is there and proven."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checkout import environment
from benchmarks.postgres import is_available
from gateway.embedded.directory import MEMORY_FILESYSTEMS
from gateway.embedded.kernel import filesystem_type

N = 100


@pytest.mark.timeout(180)
def test_a_short_run_measures_and_proves_everything(tmp_path: Path) -> None:
    if filesystem_type(tmp_path) in MEMORY_FILESYSTEMS:
        pytest.skip("the tests' own folder lies in memory, where nothing is measured")
    command = [sys.executable, "-m", "gateway.cli", "bench", "--json"]
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
    stores = ["", "_postgresql"] if is_available(os.environ) else [""]
    for store in stores:
        assert report[f"proof{store}"]["ok"] is True
        # Single submits, batches, what the projector caught up with, and the idle ones: each has a receipt.
        assert report[f"proof{store}"]["receipts"] == 3 * N + report[f"idle_submits{store}"]
        assert report[f"governed{store}_per_s"] > 0
        assert report[f"catchup{store}_events_per_s"] > 0
        assert report["phase_ms"][f"governed{store}"]["proposed_to_projected"] > 0
    for name in ("governed", "celery", "governed_batch", "celery_batch", "celery_tuned"):
        assert report[f"{name}_per_s"] > 0
    assert report["durability"]["ledger"]["journal_mode"] == "wal"
    if "_postgresql" in stores:
        server = report["durability"]["server_postgresql"]
        assert (server["fsync"], server["synchronous_commit"]) == ("on", "on")
    assert report["durability"]["broker"] == report["durability"]["celery_broker"]
    assert list(tmp_path.iterdir()) == []

"""What starts a system or a ledger of its own, once more on PostgreSQL: `./run prove postgresql`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.support.proof import Outline, proving
from tests.support.source import ROOT
from tests.support.store import STORE

PROOF = Outline(
    name="postgresql",
    says="What the tests show on SQLite holds on PostgreSQL.",
    minutes=14.0,
)
FOLDERS = (
    "tests/integration/relay",
    "tests/integration/queue",
    "tests/integration/pool",
    "tests/integration/cli",
    "tests/integration/readme",
    "tests/integration/embedded",
    "tests/cases",
    "tests/crash",
)
COUNTED = re.compile(r"([0-9]+) (passed|failed|skipped|errors?)")


@pytest.mark.timeout(int(4 * 60 * PROOF.minutes))
def test_every_folder_holds_on_a_server(seed: int) -> None:
    with proving(PROOF, seed) as course:
        failed = []
        for folder in FOLDERS:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
                cwd=ROOT,
                env={**os.environ, STORE: "postgresql", "INTERLOCK_SEED": str(seed)},
                capture_output=True,
                text=True,
                check=False,
            )
            course.figure(folder, counts_of(done.stdout))
            if done.returncode:
                failed.append(folder)
                print(done.stdout)
        assert failed == []


def counts_of(said: str) -> Mapping[str, int]:
    """How many passed, failed and were skipped, as pytest's last line has it."""
    lines = [line for line in said.splitlines() if COUNTED.search(line)]
    return {what: int(count) for count, what in COUNTED.findall(lines[-1])} if lines else {}

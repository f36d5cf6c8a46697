"""Processes that write at once: one wins at one version, and one that dies in its turn frees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from interlock.event import invocation_stream
from tests.support.ledger import an_append, head_of, write
from tests.support.source import ROOT

RACERS = 64


@pytest.mark.timeout(60)
def test_of_64_processes_at_one_version_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger.open(path, SystemClock(), create=True)
    write(ledger, an_append("i-1"))
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.support.racer",
        str(path),
        "i-1",
        "1",
        str(RACERS),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    [said] = done.stdout.splitlines()
    word, winner = said.split()
    assert word == "won", done.stderr
    head = head_of(ledger, "i-1")
    assert (head.version, head.nonce) == (3, winner)
    with ledger.read() as view:
        assert len(view.events([invocation_stream("i-1")])[invocation_stream("i-1")]) == 3
    ledger.close()


DIES_IN_ITS_TURN = """
import signal, sys
from pathlib import Path
from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from tests.support.ledger import an_append
ledger = SqliteLedger.open(Path(sys.argv[1]), SystemClock())
with ledger.write() as transaction:
    transaction.append([an_append("i-9")])
    print("writing", flush=True)
    signal.pause()
"""


@pytest.mark.timeout(60)
def test_a_writer_that_is_killed_in_its_turn_leaves_nothing_and_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger.open(path, SystemClock(), create=True)
    command = [sys.executable, "-W", "ignore", "-c", DIES_IN_ITS_TURN, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "writing\n"
        child.kill()
    assert write(ledger, an_append("i-1")) == set()
    with ledger.read() as view:
        assert [event.stream_id for event in view.range(0, 10)] == ["i-1"]
    ledger.close()


LEAVES_A_CHILD = """
import os, signal, sys
from pathlib import Path
from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
ledger = SqliteLedger.open(Path(sys.argv[1]), SystemClock())
with ledger.write():
    child = os.fork()
    if child == 0:
        signal.alarm(50)
        signal.pause()
    print(child, flush=True)
    signal.pause()
"""


@pytest.mark.timeout(60)
def test_a_child_that_outlives_a_killed_writer_does_not_keep_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger.open(path, SystemClock(), create=True)
    command = [sys.executable, "-W", "ignore", "-c", LEAVES_A_CHILD, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        child = int(writer.stdout.readline())
        try:
            writer.kill()
            assert write(ledger, an_append("i-1")) == set()
        finally:
            os.kill(child, signal.SIGKILL)
    ledger.close()

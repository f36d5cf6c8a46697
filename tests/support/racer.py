"""Forks many processes that append to one stream at one version at once, and prints who won.

Run by tests: racer.py PATH STREAM VERSION COUNT. Each child opens the ledger itself, after the fork.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from tests.support.ledger import a_head, an_append, an_event, write

LOST, WON, BROKEN = 0, 1, 2


def main(path: Path, invocation_id: str, version: int, count: int) -> None:
    """Start all, let them go together, print the winners' numbers."""
    gate, go = os.pipe()
    children = {fork(path, invocation_id, version, number, gate, go): number for number in range(count)}
    os.close(gate)
    os.close(go)
    for _ in range(count):
        pid, status = os.wait()
        outcome = os.waitstatus_to_exitcode(status)
        if outcome != LOST:
            print("won" if outcome == WON else "broken", children[pid], flush=True)


def fork(path: Path, invocation_id: str, version: int, number: int, gate: int, go: int) -> int:
    """One racer; it waits at the gate until every writer of the pipe is gone."""
    pid = os.fork()
    if pid:
        return pid
    outcome = BROKEN
    try:
        os.close(go)
        ledger = SqliteLedger.open(path, SystemClock())
        os.read(gate, 1)
        head = a_head(invocation_id, "running", nonce=str(number), started=True)
        claim = an_append(invocation_id, version, events=[an_event("ToolExecutionStarted")] * 2, head=head)
        outcome = LOST if write(ledger, claim) else WON
        ledger.close()
    except BaseException:  # noqa: BLE001 - the parent is told by the exit code, whatever it was
        traceback.print_exc()
    finally:
        os._exit(outcome)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

"""Starts the governed system as `interlock up` starts it, and measures how fast it gets through.

The clock stops when the projector's checkpoint has passed the last event.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from benchmarks.checkout import environment
from benchmarks.figure import Idle, Rate
from benchmarks.plan import SESSIONS, Plan
from benchmarks.process import Meter, idle_cost
from benchmarks.produce import Produce, Submission
from gateway.embedded.apart import system_apart
from gateway.embedded.control import ask as ask_system
from gateway.embedded.directory import DataDirectory
from governance.adapters.sqlite_ledger import SqliteLedger
from interlock.clock import SystemClock
from interlock.errors import OursToFixError
from interlock.identifier import new_id
from interlock.proposal import PROPOSE_QUEUE, PROPOSE_TASK
from workers.adapters.sqlite_projection import SqliteProjection

EVENTS_EACH = 4
"""Requested, granted, started, completed."""
PATIENCE_SECONDS = 60.0
"""For a start, and for a stop."""
DONE_SECONDS = 600.0
POLL_SECONDS = 0.01
_TOOL = "echo"


class GovernedSide:
    """A running system, seen from outside."""

    def __init__(self, directory: DataDirectory, pid: int) -> None:
        self.directory = directory
        self._pid = pid
        self._ledger = SqliteLedger.open(directory.ledger, SystemClock(), read_only=True)
        self._views = SqliteProjection.open(directory.views, read_only=True)
        self._meter = Meter(_roles(directory))
        self._numbers = itertools.count(1)

    def measure(self, produce: Produce, n: int) -> Rate:
        """Have `n` invocations governed, executed and projected."""
        self._await_projected(self._last_seq())
        first = self._last_seq()
        submissions = self._submissions(n)
        self._meter.begin()
        began = time.perf_counter()
        produce(self.directory.broker_url, submissions)
        # Not before all their events can be there is the ledger asked how many are.
        self._await_projected(first + EVENTS_EACH * n)
        self._await_none_open()
        taken = time.perf_counter() - began
        return Rate(n / taken, self._meter.microseconds(n))

    def idle(self, plan: Plan) -> Idle:
        """Submits one after the other, each waited for by the client; then nothing at all for a while."""
        from gateway.reading import LedgerOutcomes
        from interlock.client import Client

        taken = []
        with Client(self.directory.broker_url, source=LedgerOutcomes(self._ledger)) as client:
            for number in range(plan.idle_submits):
                began = time.perf_counter()
                submitted = client.submit(_TOOL, {"value": number}, session="bench-idle", stage=f"i{number}")
                client.wait(submitted.invocation_id, 30.0)
                taken.append((time.perf_counter() - began) * 1_000)
        cpu_percent, pss_mb = idle_cost(self._pid, plan.idle_watch_seconds)
        return Idle(taken, cpu_percent, pss_mb)

    def durability(self) -> dict[str, Any]:
        """What stands for durability on both stores, as they answer themselves."""
        with Redis.from_url(self.directory.broker_client_url, decode_responses=True) as client:
            broker = {name: client.config_get(name)[name] for name in ("appendonly", "appendfsync")}
        return {"ledger": dict(self._ledger.settings()), "broker": broker}

    def close(self) -> None:
        """Let go of both stores."""
        self._views.close()
        self._ledger.close()

    def _submissions(self, n: int) -> list[Submission]:
        run = next(self._numbers)
        token = new_id()[-12:]
        made = []
        for number in range(n):
            arguments = {"value": number}
            place = {"session": f"bench-{token}-{number % SESSIONS}", "stage": f"s{run}-{number}"}
            kwargs = {"tool": _TOOL, "arguments": arguments, **place}
            made.append(Submission(PROPOSE_TASK, PROPOSE_QUEUE, new_id(), kwargs))
        return made

    def _last_seq(self) -> int:
        with self._ledger.read() as view:
            return view.last_seq()

    def _await_projected(self, seq: int) -> None:
        self._await(lambda: self._views.checkpoint().seq >= seq, f"event {seq} was not projected")

    def _await_none_open(self) -> None:
        def is_done() -> bool:
            with self._ledger.read() as view:
                counts, last_seq = view.counts(), view.last_seq()
            is_closed = counts.keys() <= {"done"}
            return is_closed and self._views.checkpoint().seq >= last_seq

        self._await(is_done, "invocations stayed open")

    def _await(self, is_so: Any, what: str) -> None:
        until = time.monotonic() + DONE_SECONDS
        while not is_so():
            if time.monotonic() > until:
                raise OursToFixError("NOT_RUNNING", what)
            time.sleep(POLL_SECONDS)


def _roles(directory: DataDirectory) -> dict[int, str]:
    """Process → role, as the running system names them."""
    roles: Any = ask_system(directory, {"do": "status"})["roles"]
    return {int(role["pid"]): str(role["name"]) for role in roles if role.get("pid")}


@contextmanager
def governed_side(directory: DataDirectory, module: str = "gateway.cli") -> Iterator[GovernedSide]:
    """The system on `directory`, as `interlock up` starts it, until the end of the block."""
    with system_apart(
        directory,
        module=module,
        environment=environment(),
        folder=directory.path.parent,
        patience_seconds=PATIENCE_SECONDS,
    ) as process:
        side = GovernedSide(directory, process.pid)
        try:
            yield side
        finally:
            side.close()


def ask(directory: DataDirectory, verb: str) -> dict[str, Any]:
    """What `interlock VERB --json` prints on the directory of a stopped system."""
    command = [sys.executable, "-m", "gateway.cli", verb, "--json", "--data", str(directory.path)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=False, env=environment(), cwd=directory.path.parent
    )
    answer: dict[str, Any] = json.loads(done.stdout or b"{}")
    return answer


def receipts(path: Path) -> int:
    """How many executions ended with a receipt in this ledger."""
    import sqlite3

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        sql = "SELECT count(*) FROM tool_event WHERE type = 'ToolExecutionCompleted'"
        count: int = connection.execute(sql).fetchone()[0]
    connection.close()
    return count

"""Measures other queues beside ours, as far as they are installed: same work, same number of producers.

They are never a dependency: `INTERLOCK_BENCH_PEERS_PYTHON` names an interpreter that has them, else this one
is asked. What is missing is named with the command that installs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from redis import Redis

from benchmarks.approach import Approach
from benchmarks.checkout import environment
from benchmarks.peers.frame import COUNTER, POSTGRES_URL, REDIS_URL
from benchmarks.plan import Plan
from benchmarks.postgres import Server
from benchmarks.producer import crew
from gateway.embedded.adapters.valkey import find_server
from gateway.embedded.broker import BrokerServer
from gateway.embedded.directory import DataDirectory, prepare
from interlock.errors import InterlockError

PYTHON = "INTERLOCK_BENCH_PEERS_PYTHON"
INSTALL: Mapping[str, str] = MappingProxyType(
    {
        "huey": "pip install huey redis",
        "dramatiq": "pip install 'dramatiq[redis]'",
        "taskiq": "pip install taskiq taskiq-redis",
        "dbos": "pip install dbos redis",
    }
)
PROGRAMS: Mapping[str, int] = MappingProxyType({"dbos": 2})
"""How many worker programs to start; those that are not named start their two workers themselves."""
WARM_UP = 8
DRAIN_SECONDS = 10.0


def measure_peers(work: Path, plan: Plan, server: Server | None) -> dict[str, dict[str, Any]]:
    """Name → version, settings, durability and rate, or what is `missing`."""
    return {name: _measured(name, work, plan, server) for name in INSTALL}


def _measured(name: str, work: Path, plan: Plan, server: Server | None) -> dict[str, Any]:
    found = check(name)
    if "missing" in found:
        return found
    if name == "dbos" and server is None:
        return found | {"missing": "it needs PostgreSQL: --store both"}
    try:
        if name != "dbos" or server is None:
            return found | {"per_s": _rate(name, work, plan, {})}
        with server.database("bench_dbos") as url:
            return found | {"per_s": _rate(name, work, plan, {POSTGRES_URL: url})}
    except (InterlockError, OSError) as error:
        # A peer that fails here is told as such; what was measured of the others stands.
        return found | {"missing": f"failed: {error}"}


def check(name: str) -> dict[str, Any]:
    """What a peer says of itself; what is `missing` where it does not run."""
    command = [*_program(name), "check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), cwd="/")
    except (OSError, subprocess.CalledProcessError):
        return {"missing": f"not installed: {INSTALL[name]}"}
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def _rate(name: str, work: Path, plan: Plan, places: Mapping[str, str]) -> float:
    directory = DataDirectory.at(work / f"peer-{name}")
    prepare(directory)
    broker = BrokerServer(directory, find_server({}))
    broker.start()
    settings = environment() | dict(places) | {REDIS_URL: directory.broker_client_url}
    try:
        client = Redis.from_url(directory.broker_client_url, decode_responses=True)
        with client, _workers(name, directory, settings):
            approach = Approach(lambda: int(client.get(COUNTER) or 0), name)
            _send(name, settings, [WARM_UP], approach, WARM_UP)
            shares = [len(range(first, plan.n, plan.producers)) for first in range(plan.producers)]
            return round(_send(name, settings, shares, approach, WARM_UP + plan.n), 1)
    finally:
        broker.stop()


def _send(name: str, settings: Mapping[str, str], shares: list[int], approach: Approach, goal: int) -> float:
    """Have each producer send its share; calls a second until the count is at `goal`."""
    commands = [[*_program(name), "send"]] * len(shares)
    with crew(commands, [str(share) for share in shares], settings) as producers:
        began = time.perf_counter()
        producers.begin()
        approach.reach(goal)
        taken = time.perf_counter() - began
        producers.finish()
    return sum(shares) / taken


@contextmanager
def _workers(name: str, directory: DataDirectory, settings: Mapping[str, str]) -> Iterator[None]:
    """The peer's worker programs, each with what it starts in a group of its own, gone at the end."""
    with (directory.path / "workers.log").open("ab") as log:
        started = [
            subprocess.Popen(
                [*_program(name), "work"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(settings),
                cwd=directory.path,
                process_group=0,
            )
            for _ in range(PROGRAMS.get(name, 1))
        ]
    try:
        yield
    finally:
        for program in started:
            _end(program)


def _end(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    with suppress(subprocess.TimeoutExpired):
        program.wait(DRAIN_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)  # whatever of it is left
    program.wait()


def _program(name: str) -> list[str]:
    python = os.environ.get(PYTHON) or sys.executable
    return [python, "-m", f"benchmarks.peers.{name}_peer"]

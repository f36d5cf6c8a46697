"""Starts bare Celery on a Valkey of its own, configured as ours is, and measures how fast it gets through."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from benchmarks.approach import Approach
from benchmarks.bare import COUNTER, PROCESSES
from benchmarks.checkout import environment
from benchmarks.figure import Rate
from benchmarks.order import BARE, Order
from benchmarks.plan import Plan
from benchmarks.process import Meter
from benchmarks.produce import in_batches
from benchmarks.producer import crew, own_commands
from gateway.embedded.adapters.valkey import find_server
from gateway.embedded.broker import BrokerServer
from gateway.embedded.directory import DataDirectory, prepare


class CelerySide:
    """Workers that serve, and the broker below them."""

    def __init__(
        self, directory: DataDirectory, broker_pid: int, workers: list[subprocess.Popen[bytes]]
    ) -> None:
        self._directory = directory
        self._client = Redis.from_url(directory.broker_client_url, decode_responses=True)
        self._meter = Meter({broker_pid: "broker", **{worker.pid: "worker" for worker in workers}})

    def measure(self, way: str, plan: Plan) -> Rate:
        """Have `plan.n` tasks done; the clock stops when the last one has counted."""
        self._client.set(COUNTER, 0)
        orders = [share.to_line() for share in self._order(way, plan.n).shared(plan.producers)]
        with crew(own_commands(plan.producers), orders) as producers:
            self._meter.begin()
            began = time.perf_counter()
            producers.begin()
            Approach(self._done, "Celery").reach(plan.n)
            taken = time.perf_counter() - began
            spent = self._meter.spent() | {"producer": producers.finish()}
        costs = {name: seconds * 1_000_000 / plan.n for name, seconds in spent.items() if seconds}
        return Rate(plan.n / taken, costs)

    def await_workers(self, count: int) -> None:
        """Wait until every worker takes tasks: as many probes at once as all of them hold, twice."""
        self._client.set(COUNTER, 0)
        with in_batches(self._directory.broker_url) as send:
            for rounds in (1, 2):
                send(self._order("batch", count).submissions())
                Approach(self._done, "Celery").reach(rounds * count)

    def settings(self) -> dict[str, str]:
        """Durability of the broker, as it answers itself."""
        return {name: str(self._client.config_get(name)[name]) for name in ("appendonly", "appendfsync")}

    def _order(self, way: str, n: int) -> Order:
        return Order(BARE, way, self._directory.broker_url, n)

    def _done(self) -> int:
        return int(self._client.get(COUNTER) or 0)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


@contextmanager
def celery_side(path: Path, *, tuned: bool) -> Iterator[CelerySide]:
    """Bare Celery in `path`, running until the end of the block."""
    directory = DataDirectory.at(path)
    prepare(directory)
    server = BrokerServer(directory, find_server({}))
    server.start()
    assert server.pid is not None
    workers = [_start(directory, path / f"worker-{name}.log", tuned, name) for name in _names(tuned)]
    side = CelerySide(directory, server.pid, workers)
    try:
        side.await_workers(2 * PROCESSES)
        yield side
    finally:
        side.close()
        for worker in workers:
            _stop(worker)
        server.stop()


def _names(tuned: bool) -> tuple[str, ...]:
    return ("first", "second") if tuned else ("only",)


def _start(directory: DataDirectory, log: Path, tuned: bool, name: str) -> subprocess.Popen[bytes]:
    kind = "tuned" if tuned else "usual"
    command = [
        sys.executable,
        "-m",
        "benchmarks.bare",
        kind,
        directory.broker_url,
        directory.broker_client_url,
    ]
    with log.open("ab") as file:
        return subprocess.Popen(
            [*command, name], stdout=file, stderr=file, env=environment(), cwd=directory.path
        )


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(30)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()

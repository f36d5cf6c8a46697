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

from benchmarks.bare import COUNTER, PROCESSES, QUEUE, TASK
from benchmarks.checkout import environment
from benchmarks.figure import Rate
from benchmarks.process import Meter
from benchmarks.produce import Produce, Submission, in_batches
from gateway.embedded.adapters.valkey import find_server
from gateway.embedded.broker import BrokerServer
from gateway.embedded.directory import DataDirectory, prepare
from interlock.errors import OursToFixError
from interlock.identifier import new_id

READY_SECONDS = 60.0
DONE_SECONDS = 300.0
POLL_SECONDS = 0.005


class CelerySide:
    """Workers that serve, and the broker below them."""

    def __init__(
        self, directory: DataDirectory, broker_pid: int, workers: list[subprocess.Popen[bytes]]
    ) -> None:
        self._directory = directory
        self._client = Redis.from_url(directory.broker_client_url, decode_responses=True)
        self._meter = Meter({broker_pid: "broker", **{worker.pid: "worker" for worker in workers}})

    def measure(self, produce: Produce, n: int) -> Rate:
        """Have `n` tasks done; the clock stops when the last one has counted."""
        self._client.set(COUNTER, 0)
        self._meter.begin()
        began = time.perf_counter()
        produce(self._directory.broker_url, _submissions(n))
        self._await(n, DONE_SECONDS)
        taken = time.perf_counter() - began
        return Rate(n / taken, self._meter.microseconds(n))

    def await_workers(self, count: int) -> None:
        """Wait until every worker takes tasks: as many probes at once as all of them hold, twice."""
        self._client.set(COUNTER, 0)
        for rounds in (1, 2):
            in_batches(self._directory.broker_url, _submissions(count))
            self._await(rounds * count, READY_SECONDS)

    def settings(self) -> dict[str, str]:
        """Durability of the broker, as it answers itself."""
        return {name: str(self._client.config_get(name)[name]) for name in ("appendonly", "appendfsync")}

    def _await(self, count: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while int(self._client.get(COUNTER) or 0) < count:
            if time.monotonic() > until:
                raise OursToFixError("NOT_RUNNING", f"Celery did not get through {count} tasks")
            time.sleep(POLL_SECONDS)

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


def _submissions(n: int) -> Iterator[Submission]:
    for _ in range(n):
        yield Submission(TASK, QUEUE, new_id(), {})

"""Load of every kind while roles are replaced: single calls and batches over all pools.

It notes when calls were answered, and so how long none was.
"""

from __future__ import annotations

import http.server
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.embedded.control import ask
from gateway.embedded.directory import DataDirectory
from gateway.reading import open_reading
from interlock.adapters.redis_client import connect
from interlock.answer import read_answer
from interlock.proposal import PROPOSE_QUEUE, REPLY_PREFIX
from tests.support.calling import Call, Fate, Mix, Traffic, echo, listing, prepare, shell, writing
from tests.support.crashing import TWO
from tests.support.running import REPO, RunningSystem, running_system
from tests.support.store import LEDGER_URL
from tests.support.wait import until

BATCH = 20
BATCH_PAUSE_SECONDS = 0.8
RESTART_SECONDS = 120.0
FETCH = "http.fetch"
MANY = 1_000_000
UNCERTAIN = frozenset(("ReconciliationRequired", "ExecutionAbandoned"))


class Answering(http.server.BaseHTTPRequestHandler):
    """Says `ok` to every question."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Quietly."""


@dataclass
class Pulse:
    """When calls were answered, and the longest time in which none was."""

    answered: list[float] = field(default_factory=list)

    def note(self) -> None:
        self.answered.append(time.monotonic())

    def gap_ms(self, since: float) -> int:
        """The longest time between two answers since then."""
        moments = [since, *sorted(at for at in self.answered if at >= since)]
        gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
        return round(max(gaps, default=0.0) * 1_000)


@dataclass
class Load:
    """A system under load, its history, and its pulse."""

    system: RunningSystem
    traffic: Traffic
    pulse: Pulse
    rng: random.Random
    port: int
    closing: threading.Event = field(default_factory=threading.Event)

    def singles(self) -> None:
        """One call at a time, of every kind, each seen through."""
        number = 0
        while not self.closing.wait(0.02):
            number += 1
            [call] = self.traffic.send([self._call(f"single-{number // 8}")])
            if call.fate is not Fate.UNKNOWN:
                self.pulse.note()

    def batches(self) -> None:
        """Many calls at once, then their answers."""
        number = 0
        while not self.closing.wait(BATCH_PAUSE_SECONDS):
            number += 1
            calls = [self._call(f"batch-{number}-{place % 8}") for place in range(BATCH)]
            for call in calls:
                self.traffic.note(call)
            self._send(calls)
            self._hear(calls)

    def _call(self, stage: str) -> Call:
        session, kind = self.rng.choice(("one", "two")), self.rng.random()
        if kind < 0.5:
            return echo(session, stage)
        if kind < 0.65:
            return listing(session, stage)
        if kind < 0.8:
            return writing(session, stage)
        if kind < 0.9:
            return shell(session, stage)
        return Call(FETCH, {"url": f"http://localhost:{self.port}/{self.rng.random()}"}, session, stage)

    def _send(self, calls: list[Call]) -> None:
        items = [call.item(REPLY_PREFIX + call.id) for call in calls]
        client = connect(self.system.directory.broker_client_url)
        client.lpush(PROPOSE_QUEUE, *items)
        client.close()

    def _hear(self, calls: list[Call]) -> None:
        client = connect(self.system.directory.broker_client_url, blocking=True)
        for call in calls:
            found: Any = client.brpop([REPLY_PREFIX + call.id], timeout=20)
            if found:
                answer = read_answer(found[1])
                call.fate = Fate.FAIL if answer.status == "refused" else Fate.OK
                call.code = answer.code
                self.pulse.note()
        client.close()

    def restart(self, *roles: str) -> list[dict[str, Any]]:
        """A rolling restart by the command, as an operator asks for it; a step a role."""
        line = [sys.executable, "-m", "gateway.cli.main", "restart", *roles]
        line += ["--data", str(self.system.directory.path)]
        done = subprocess.run(
            line, cwd=REPO, env=dict(os.environ), capture_output=True, timeout=RESTART_SECONDS, check=False
        )
        assert done.returncode == 0, done
        said: Any = ask(self.system.directory, {"do": "status"})["restart"]
        return list(said["roles"])


@contextmanager
def loaded_system(rng: random.Random, *, ledger_url: str = "", replicas: str = TWO) -> Iterator[Load]:
    """A started system that singles and batches come to, until the block ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    port = server.server_address[1]
    settings = {
        "INTERLOCK_REPLICAS": replicas,
        "INTERLOCK_EGRESS": f"localhost:{port}@127.0.0.0/8+::1/128",
        # As in the product: nothing of what a restart brings is to be hidden by a net that hangs low.
        "INTERLOCK_RELEASE_AGAIN_MS": "5000",
        "INTERLOCK_LOOK_AGAIN_MS": "30000",
    }
    settings |= {LEDGER_URL: ledger_url} if ledger_url else {}
    try:
        with running_system(**settings) as system:
            try:
                system.start()
                mix = Mix(rng)
                signer = prepare(system.directory, mix)
                with Traffic(system.directory, mix, signer, producers=0) as traffic:
                    load = Load(system, traffic, Pulse(), rng, port)
                    yield from _under_load(load)
            except BaseException:
                print(system.said())
                raise
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def uncertain(directory: DataDirectory) -> set[str]:
    """Invocations whose outcome was ever unknown, or whose claim was ever given up."""
    with open_reading(directory) as reading, reading.ledger.read() as view:
        events = view.range(0, MANY)
    return {event.stream_id for event in events if event.type in UNCERTAIN}


def _under_load(load: Load) -> Iterator[Load]:
    threads = [threading.Thread(target=work) for work in (load.singles, load.singles, load.batches)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(load.pulse.answered) >= BATCH, 30, "calls are answered")
        yield load
    finally:
        load.closing.set()
        for thread in threads:
            thread.join()

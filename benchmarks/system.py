"""Starts the governed system as `interlock up` starts it, and measures how fast it gets through.

The clock stops when the projector's checkpoint has passed the last event. What is asked of the ledger is
asked before or after that: whoever measures takes no part in what is measured.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from redis import Redis

from benchmarks.approach import Approach
from benchmarks.figure import Idle, Rate
from benchmarks.order import GOVERNED, TOOL, Order
from benchmarks.phase import LAST, phase_medians_ms
from benchmarks.plan import SESSIONS, Plan, lanes
from benchmarks.process import Meter, idle_cost
from benchmarks.producer import crew, own_commands
from benchmarks.store import Store
from gateway.embedded.apart import system_apart
from gateway.embedded.control import ask as ask_system
from gateway.embedded.directory import DataDirectory
from governance.client_queue import LOOK_SECONDS as CLIENTS_LOOK_SECONDS
from governance.ledger import Ledger
from governance.principal import LOCAL_OPERATOR, find_principals, register
from interlock.errors import OursToFixError
from interlock.event import PrincipalRegistered, StoredEvent
from interlock.identifier import new_id

EVENTS_EACH = 4
"""Requested, granted, started, completed."""
PATIENCE_SECONDS = 60.0
"""For a start, and for a stop."""
SETTLE_SECONDS = 60.0
LOOK_SECONDS = 0.05
STILL_LOOKS = 3
PAGE_EVENTS = 5_000


class GovernedSide:
    """A running system, seen from outside."""

    def __init__(self, directory: DataDirectory, store: Store, pid: int) -> None:
        self.directory, self._store, self._pid = directory, store, pid
        self._ledger = store.ledger(directory)
        self._views = store.views(directory)
        self._roles = _roles(directory)
        self._meter = Meter({**self._roles, **dict.fromkeys(store.server_pids, "database")})

    def measure(self, way: str, plan: Plan) -> Rate:
        """Have `plan.n` invocations governed, executed and projected."""
        self._admit(plan)
        first = self._still()
        goal = first + events_of(plan.n)
        approach = Approach(self._projected, "the projection")
        with crew(own_commands(plan.producers), self._orders(way, plan)) as producers:
            self._meter.begin()
            began = time.perf_counter()
            producers.begin()
            # Not before all their events can be there is the ledger asked how many are.
            approach.reach(goal)
            taken = time.perf_counter() - began
            spent = self._meter.spent()
            last = self._closed(goal)
            if last > goal:  # something was tried twice: its events belong to it
                approach.reach(last)
                taken, spent = time.perf_counter() - began, self._meter.spent()
            spent["producer"] = producers.finish()
        costs = {name: seconds * 1_000_000 / plan.n for name, seconds in spent.items() if seconds}
        phases = phase_medians_ms(events_between(self._ledger, first, last), approach.seen)
        return Rate(plan.n / taken, costs, phases)

    def catch_up(self, plan: Plan) -> float:
        """Events a second of a projector that stood still while `plan.n` invocations went through."""
        self._admit(plan)
        goal = self._still() + events_of(plan.n)
        projectors = [pid for pid, name in self._roles.items() if name.startswith("projector")]
        with crew(own_commands(plan.producers), self._orders("batch", plan)) as producers:
            for pid in projectors:
                os.kill(pid, signal.SIGSTOP)
            try:
                behind = self._projected()
                producers.begin()
                Approach(self._last_seq, "the ledger").reach(goal)
                self._await(lambda: not self._is_open(), "invocations stayed open")
                producers.finish()
            finally:
                began = time.perf_counter()
                for pid in projectors:
                    os.kill(pid, signal.SIGCONT)
            Approach(self._projected, "the projection").reach(goal)
        return (goal - behind) / (time.perf_counter() - began)

    def idle(self, plan: Plan) -> Idle:
        """Submits one after the other, each waited for by the client; then nothing at all for a while."""
        self._admit(plan)
        taken = self.latencies_ms(plan.idle_submits)
        cpu_percent, pss_mb = idle_cost((self._pid, *self._store.server_pids), plan.idle_watch_seconds)
        return Idle(taken, cpu_percent, pss_mb)

    def latencies_ms(self, count: int) -> list[float]:
        """How long each of so many single submits took until its client had the outcome."""
        from gateway.reading import LedgerOutcomes
        from interlock.client import Client

        taken = []
        with Client(self.directory.broker_url, source=LedgerOutcomes(self._ledger)) as client:
            for number in range(count):
                began = time.perf_counter()
                submitted = client.submit(TOOL, {"value": number}, session="bench-idle", stage=f"i{number}")
                client.wait(submitted.invocation_id, 30.0)
                taken.append((time.perf_counter() - began) * 1_000)
        return taken

    def durability(self) -> dict[str, Any]:
        """What stands for durability on both stores, as they answer themselves."""
        with Redis.from_url(self.directory.broker_client_url, decode_responses=True) as client:
            broker = {name: client.config_get(name)[name] for name in ("appendonly", "appendfsync")}
        return {"ledger": dict(self._ledger.settings()), "broker": broker}

    def _admit(self, plan: Plan) -> None:
        """Register the clients that are to propose, and wait until the governor serves them."""
        wanted = {lane.client for lane in lanes(plan.tenants)}
        with self._ledger.read() as view:
            missing = sorted(wanted - find_principals(view, wanted).keys())
        if not missing:
            return
        with closing(self._store.ledger(self.directory, read_only=False)) as ledger:
            for name in missing:
                client = PrincipalRegistered(role="client", person=name, tenant=name)
                register(ledger, name, client, by=LOCAL_OPERATOR)
        threading.Event().wait(2 * CLIENTS_LOOK_SECONDS)

    def close(self) -> None:
        """Let go of both stores."""
        self._views.close()
        self._ledger.close()

    def _orders(self, way: str, plan: Plan) -> list[str]:
        order = Order(GOVERNED, way, self.directory.broker_url, plan.n, new_id()[-12:], plan.tenants)
        return [share.to_line() for share in order.shared(plan.producers)]

    def _still(self) -> int:
        """The last number once nothing is open, all of it is projected, and nothing more comes."""
        looks: list[int] = []

        def is_still() -> bool:
            looks.append(self._last_seq())
            recent = looks[-STILL_LOOKS:]
            return (
                len(recent) == STILL_LOOKS
                and len(set(recent)) == 1
                and self._projected() >= recent[0]
                and not self._is_open()
            )

        self._await(is_still, "the system did not come to rest")
        return looks[-1]

    def _projected(self) -> int:
        return self._views.checkpoint().seq

    def _last_seq(self) -> int:
        with self._ledger.read() as view:
            return view.last_seq()

    def _is_open(self) -> bool:
        with self._ledger.read() as view:
            return not view.counts().keys() <= {"done"}

    def _closed(self, goal: int) -> int:
        """The last number once nothing is open: `goal`, unless more events were needed."""
        self._await(lambda: not self._is_open(), "invocations stayed open")
        return max(goal, self._last_seq())

    @staticmethod
    def _await(is_so: Any, what: str) -> None:
        until = time.monotonic() + SETTLE_SECONDS
        while not is_so():
            if time.monotonic() > until:
                raise OursToFixError("NOT_RUNNING", what)
            threading.Event().wait(LOOK_SECONDS)


def events_of(n: int) -> int:
    """How many events a measurement appends: its invocations', and one for each session that it begins."""
    return EVENTS_EACH * n + min(n, SESSIONS)


def events_between(ledger: Ledger, after: int, until: int) -> Iterator[StoredEvent]:
    """Events with after < seq ≤ until, in order, in bounded memory."""
    while after < until:
        with ledger.read() as view:
            page = view.range(after, min(PAGE_EVENTS, until - after))
        if not page:
            return
        yield from page
        after = page[-1].seq


def _roles(directory: DataDirectory) -> dict[int, str]:
    """Process → role, as the running system names them."""
    roles: Any = ask_system(directory, {"do": "status"})["roles"]
    return {int(role["pid"]): str(role["name"]) for role in roles if role.get("pid")}


@contextmanager
def governed_side(
    directory: DataDirectory, store: Store, module: str = "gateway.cli"
) -> Iterator[GovernedSide]:
    """The system on `directory` and `store`, as `interlock up` starts it, until the end of the block."""
    with system_apart(
        directory,
        module=module,
        environment=store.environment(),
        folder=directory.path.parent,
        patience_seconds=PATIENCE_SECONDS,
    ) as process:
        side = GovernedSide(directory, store, process.pid)
        try:
            yield side
        finally:
            side.close()


def ask(directory: DataDirectory, store: Store, verb: str) -> dict[str, Any]:
    """What `interlock VERB --json` prints on the directory of a stopped system."""
    command = [sys.executable, "-m", "gateway.cli", verb, "--json", "--data", str(directory.path)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=False, env=store.environment(), cwd=directory.path.parent
    )
    answer: dict[str, Any] = json.loads(done.stdout or b"{}")
    return answer


def receipts(directory: DataDirectory, store: Store) -> int:
    """How many executions ended with a receipt, counted event by event through the ledger's port."""
    ledger = store.ledger(directory)
    try:
        with ledger.read() as view:
            last = view.last_seq()
        return sum(event.type == LAST for event in events_between(ledger, 0, last))
    finally:
        ledger.close()

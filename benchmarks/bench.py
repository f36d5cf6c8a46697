"""The whole run: all sides in turns, then what else is promised, then the proof that it really happened.

Started as root it works under the unprivileged id, like the system it measures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.checkout import environment
from benchmarks.disk import choose_folder, fdatasync_p50_ms
from benchmarks.plan import POSTGRESQL, SESSIONS, SQLITE, Plan, lanes, stores_of
from benchmarks.postgres import EXISTING, PACKAGE, is_available
from gateway.embedded.directory import DataDirectory
from gateway.embedded.settled import run_settled
from interlock.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.figure import Governed, Idle, Measured, Proof, Rate, Sandbox
    from benchmarks.store import Store
    from benchmarks.system import GovernedSide


def main(
    *,
    as_json: bool = False,
    n: int | None = None,
    rounds: int | None = None,
    producers: int | None = None,
    store: str | None = None,
    peers: bool = False,
    folder: Path | None = None,
) -> int:
    """Run everything and print it; 0 where what was measured is also proven."""
    has_postgres = is_available(os.environ)
    try:
        stores = stores_of(store, has_postgres=has_postgres)
        plan = Plan.of(n, rounds, producers=producers, stores=stores, peers=peers)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if store is None and not has_postgres:
        say(f"SQLite only: PostgreSQL needs its server's package ({PACKAGE}) or {EXISTING}")
    place = choose_folder(folder, (Path("/var/tmp"), Path.home(), Path.cwd()))
    try:
        return run_settled(DataDirectory.at(place / "work"), "bench", lambda: _run(place, plan, as_json))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def say(line: str) -> None:
    """Tell how far it is."""
    print(f"bench: {line}", file=sys.stderr, flush=True)


def _run(place: Path, plan: Plan, as_json: bool) -> int:
    from benchmarks.store import open_stores
    from benchmarks.tell import tell

    work = place / "work"
    work.mkdir(mode=0o700, exist_ok=True)
    with open_stores(plan.stores, work, os.environ) as stores:
        measured = Run(work, plan, stores).measured()
    report = measured.to_json()
    if as_json:
        print(json.dumps(report))
    else:
        tell(report)
    return 0 if measured.is_proven else 1


@dataclass(slots=True)
class OnStore:
    """The governed side on one store, as far as it was measured."""

    store: Store
    directory: DataDirectory
    singles: list[Rate] = field(default_factory=list)
    batches: list[Rate] = field(default_factory=list)
    idle: Idle | None = None
    catchup_events_per_s: float = 0.0
    durability: Mapping[str, Any] = field(default_factory=dict)
    submitted: int = 0

    def measure(self, plan: Plan, number: int) -> None:
        """One round; idle figures come before anything piled up, the catching up at the very end."""
        from benchmarks.system import governed_side

        with governed_side(self.directory, self.store) as ours:
            if self.idle is None:
                self._look_at_idle(ours, plan)
            for way, rates in (("single", self.singles), ("batch", self.batches)):
                rates.append(ours.measure(way, plan))
                say(f"  governed, {self.store.name}, {way}: {rates[-1].per_s:.0f}/s")
                self.submitted += plan.n
            if number == plan.rounds:
                self.catchup_events_per_s = ours.catch_up(plan)
                self.submitted += plan.n

    def _look_at_idle(self, ours: GovernedSide, plan: Plan) -> None:
        self.idle, self.durability = ours.idle(plan), ours.durability()
        self.submitted += plan.idle_submits

    def governed(self) -> Governed:
        """What it came to, proven."""
        from benchmarks.figure import Governed, Side

        assert self.idle is not None
        proof = self._proof()
        return Governed(Side(self.singles), Side(self.batches), self.idle, self.catchup_events_per_s, proof)

    def _proof(self) -> Proof:
        from benchmarks.figure import Proof
        from benchmarks.system import ask, receipts

        say(f"verifying and folding from zero, {self.store.name}")
        verified = ask(self.directory, self.store, "verify")
        rebuilt = ask(self.directory, self.store, "rebuild")
        return Proof(
            verify_ok=verified.get("ok") is True,
            events=int(verified.get("events", 0)),
            receipts=receipts(self.directory, self.store),
            expected_receipts=self.submitted,
            rebuild_equal=rebuilt.get("equal") is True,
            rebuild_events_per_s=float(rebuilt.get("events_per_s", 0.0)),
        )


@dataclass(slots=True)
class Run:
    """One run in one folder: its rounds, and what they came to so far."""

    work: Path
    plan: Plan
    stores: list[Store]
    bare: dict[str, list[Rate]] = field(default_factory=dict)
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    durability: dict[str, Any] = field(default_factory=dict)

    def measured(self) -> Measured:
        """Everything, in order. Raises where something does not get through."""
        from benchmarks.figure import Bare, Measured, Side

        began, load = time.monotonic(), _load()
        self.durability["fdatasync_p50_ms"] = fdatasync_p50_ms(self.work, self.plan.fsyncs)
        self.durability["folder"] = str(self.work.parent.parent)
        sandbox = self._sandbox()
        ours = [OnStore(store, DataDirectory.at(self.work / store.name)) for store in self.stores]
        for number in range(1, self.plan.rounds + 1):
            say(f"round {number} of {self.plan.rounds}")
            for one in ours:
                one.measure(self.plan, number)
            self._celery()
            self._peers()
        return Measured(
            n=self.plan.n,
            governed={one.store.name: one.governed() for one in ours},
            bare=Bare(*(Side(self.bare[name]) for name in ("celery", "celery_batch", "celery_tuned"))),
            sandbox=sandbox,
            durability=self.durability | _durability(ours),
            batch=_batches(),
            setting=self._setting(time.monotonic() - began) | {"load_before": load, "load_after": _load()},
            peers=self._peers_found(),
        )

    def _celery(self) -> None:
        from benchmarks.celery_side import celery_side

        with celery_side(self.work / "celery", tuned=False) as theirs:
            self._note("celery", theirs.measure("single", self.plan))
            self._note("celery_batch", theirs.measure("batch", self.plan))
            self.durability["celery_broker"] = theirs.settings()
        with celery_side(self.work / "celery", tuned=True) as tuned:
            self._note("celery_tuned", tuned.measure("batch", self.plan))

    def _note(self, name: str, rate: Rate) -> None:
        self.bare.setdefault(name, []).append(rate)
        say(f"  {name}: {rate.per_s:.0f}/s")

    def _peers(self) -> None:
        if not self.plan.peers:
            return
        from benchmarks.peer import measure_peers

        server = next((store.server for store in self.stores if store.server is not None), None)
        for name, found in measure_peers(self.work, self.plan, server).items():
            peer = self.peers.setdefault(name, {"rounds": []})
            peer |= {key: value for key, value in found.items() if key != "per_s"}
            if "per_s" in found:
                peer["rounds"].append(found["per_s"])
                say(f"  {name}: {found['per_s']:.0f}/s")
            else:
                say(f"  {name}: {found['missing']}")

    def _peers_found(self) -> dict[str, dict[str, Any]]:
        import statistics

        for peer in self.peers.values():
            peer["per_s"] = statistics.median(peer["rounds"]) if peer["rounds"] else None
        return self.peers

    def _sandbox(self) -> Sandbox:
        from benchmarks.figure import Sandbox

        folder = self.work / "sandbox"
        folder.mkdir()
        command = [sys.executable, "-m", "benchmarks.sandbox", str(folder), str(self.plan.sandbox_runs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment(), cwd=folder)
        return Sandbox(**json.loads(done.stdout))

    def _setting(self, seconds: float) -> dict[str, Any]:
        return {
            "rounds": self.plan.rounds,
            "producers": self.plan.producers,
            "stores": list(self.plan.stores),
            "replicas": os.environ.get("INTERLOCK_REPLICAS") or "one of each role",
            "cores": len(os.sched_getaffinity(0)),
            "python": sys.version.split()[0],
            "tenants": self.plan.tenants,
            "queues": [lane.queue for lane in lanes(self.plan.tenants)][:3],
            "sessions_a_measurement": SESSIONS,
            "stages": "one for each invocation",
            "seconds": round(seconds, 1),
        }


def _durability(ours: list[OnStore]) -> dict[str, Any]:
    """What every store and broker answered of itself."""
    found: dict[str, Any] = {}
    for one in ours:
        suffix = "" if one.store.name == SQLITE else f"_{one.store.name}"
        found[f"ledger{suffix}"] = one.durability["ledger"]
        found["broker"] = one.durability["broker"]
        if one.store.name == POSTGRESQL:
            found["server_postgresql"] = one.store.server_settings()
    return found


def _load() -> float:
    """The load average of the last minute: what else the machine had to do, and afterwards ourselves."""
    return round(os.getloadavg()[0], 2)


def _batches() -> dict[str, Any]:
    from benchmarks.produce import BATCH
    from interlock.settings import settings_from

    settings = settings_from(os.environ)
    return {
        "published": BATCH,
        "intake_max": settings.intake_max,
        "envelope_max": settings.envelope_max,
        "window_pure": settings.window("pure"),
        "slots_pure": settings.slots_pure,
    }

"""The whole run: both sides in turns, then what else is promised, then the proof that it really happened.

Started as root it works under the unprivileged id, like the system it measures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.checkout import environment
from benchmarks.disk import choose_folder, fdatasync_p50_ms
from benchmarks.plan import SESSIONS, Plan
from gateway.embedded.directory import DataDirectory
from gateway.embedded.settled import run_settled
from interlock.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.figure import Measured, Proof, Rate, Sandbox
    from benchmarks.system import GovernedSide


def main(
    *, as_json: bool = False, n: int | None = None, rounds: int | None = None, folder: Path | None = None
) -> int:
    """Run everything and print it; 0 where what was measured is also proven."""
    try:
        plan = Plan.of(n, rounds)
    except ValueError as error:
        raise UsageError(str(error)) from error
    place = choose_folder(folder, (Path("/var/tmp"), Path.home(), Path.cwd()))
    try:
        return run_settled(DataDirectory.at(place / "work"), "bench", lambda: _run(place, plan, as_json))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(place: Path, plan: Plan, as_json: bool) -> int:
    from benchmarks.tell import tell

    work = place / "work"
    work.mkdir(mode=0o700, exist_ok=True)
    measured = Run(work, plan).measured()
    report = measured.to_json()
    if as_json:
        print(json.dumps(report))
    else:
        tell(report)
    return 0 if measured.proof.is_good else 1


@dataclass(slots=True)
class Run:
    """One run in one folder: its rounds, and what they came to so far."""

    work: Path
    plan: Plan
    rates: dict[str, list[Rate]] = field(default_factory=dict)
    submitted: int = 0

    def measured(self) -> Measured:
        """Everything, in order. Raises where something does not get through."""
        from benchmarks.figure import Measured, Side

        directory = DataDirectory.at(self.work / "governed")
        began, load = time.monotonic(), _load()
        sync_ms = fdatasync_p50_ms(self.work, self.plan.fsyncs)
        sandbox = self._sandbox()
        idle, durability = self._rounds(directory)
        proof = self._proof(directory)
        sides = {name: Side(rates) for name, rates in self.rates.items()}
        return Measured(
            n=self.plan.n,
            **sides,
            idle=idle,
            sandbox=sandbox,
            proof=proof,
            durability={**durability, "fdatasync_p50_ms": sync_ms, "folder": str(self.work.parent.parent)},
            batch=_batches(),
            setting=self._setting(time.monotonic() - began) | {"load_before": load, "load_after": _load()},
        )

    def _rounds(self, directory: DataDirectory) -> tuple[Any, dict[str, Any]]:
        """All rounds; idle figures and durability come from the first start, before anything piled up."""
        from benchmarks.celery_side import celery_side
        from benchmarks.produce import in_batches, one_by_one
        from benchmarks.system import governed_side

        found: tuple[Any, dict[str, Any]] | None = None
        for number in range(1, self.plan.rounds + 1):
            self._say(f"round {number} of {self.plan.rounds}")
            with governed_side(directory) as ours:
                if found is None:
                    found = self._idle(ours)
                self._measure("governed", ours.measure, one_by_one, ours=True)
                self._measure("governed_batch", ours.measure, in_batches, ours=True)
            with celery_side(self.work / "celery", tuned=False) as theirs:
                self._measure("celery", theirs.measure, one_by_one)
                self._measure("celery_batch", theirs.measure, in_batches)
                bare = theirs.settings()
            with celery_side(self.work / "celery", tuned=True) as tuned:
                self._measure("celery_tuned", tuned.measure, in_batches)
            found[1]["celery_broker"] = bare
        assert found is not None
        return found

    def _idle(self, ours: GovernedSide) -> tuple[Any, dict[str, Any]]:
        idle = ours.idle(self.plan)
        self.submitted += self.plan.idle_submits
        return idle, ours.durability()

    def _measure(self, name: str, measure: Any, produce: Any, *, ours: bool = False) -> None:
        rate = measure(produce, self.plan.n)
        self.submitted += self.plan.n if ours else 0
        self.rates.setdefault(name, []).append(rate)
        self._say(f"  {name}: {rate.per_s:.0f}/s")

    def _sandbox(self) -> Sandbox:
        from benchmarks.figure import Sandbox

        folder = self.work / "sandbox"
        folder.mkdir()
        command = [sys.executable, "-m", "benchmarks.sandbox", str(folder), str(self.plan.sandbox_runs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment(), cwd=folder)
        return Sandbox(**json.loads(done.stdout))

    def _proof(self, directory: DataDirectory) -> Proof:
        from benchmarks.figure import Proof
        from benchmarks.system import ask, receipts

        self._say("verifying and folding from zero")
        verified, rebuilt = ask(directory, "verify"), ask(directory, "rebuild")
        return Proof(
            verify_ok=verified.get("ok") is True,
            events=int(verified.get("events", 0)),
            receipts=receipts(directory.ledger),
            expected_receipts=self.submitted,
            rebuild_equal=rebuilt.get("equal") is True,
            rebuild_events_per_s=float(rebuilt.get("events_per_s", 0.0)),
        )

    def _setting(self, seconds: float) -> dict[str, Any]:
        return {
            "rounds": self.plan.rounds,
            "cores": len(os.sched_getaffinity(0)),
            "python": sys.version.split()[0],
            "store": "sqlite",
            "tenants": 1,
            "sessions_a_measurement": SESSIONS,
            "stages": "one for each invocation",
            "seconds": round(seconds, 1),
        }

    @staticmethod
    def _say(line: str) -> None:
        print(f"bench: {line}", file=sys.stderr, flush=True)


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

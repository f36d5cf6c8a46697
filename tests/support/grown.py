"""Real systems on ledgers of chosen sizes: made, grown while they are stopped, started, measured, proven.

The history is what `tests.support.growth` writes, under the system's own keys; what is measured is a system
that really runs on it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.approach import Approach
from benchmarks.figure import MEASURING, Rate, percentile
from benchmarks.plan import Plan
from benchmarks.store import Store
from benchmarks.system import GovernedSide, governed_side
from gateway.embedded.directory import DataDirectory
from governance.adapters.sqlite_ledger import SqliteLedger
from governance.keys import KeyPurpose, read_key
from governance.ledger import Ledger, LedgerInfo, LedgerTransaction
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.clock import SystemClock
from interlock.identifier import new_id
from scheduler.relay import SequencedOnAppend, Sequencer
from tests.support.growth import grow
from tests.support.installation import Installation
from tests.support.proof import Course
from tests.support.wait import until

TOLD_EVERY = 100_000
LEAD_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Growth:
    """How one proof of growth goes."""

    small: int
    """Events of the small systems when they start."""
    early: int
    """At how many events the memory of a rebuild is looked at first."""
    n: int
    """Invocations a measurement."""
    submits: int
    """Single submits a measurement."""
    rounds: int
    warm_up: int = 500
    """Invocations before each measurement."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a proof of growth came to; ratios are of the grown system to the small ones, above 1 is worse."""

    is_verified: bool
    rebuild_events_per_s: float
    peak_ratio: float
    """Memory of a rebuild at the end to the one early on."""
    cpu_ratio: float
    rate_ratio: float
    latency_ratio: float


@dataclass(slots=True)
class Cost:
    """What invocations cost at one size of the ledger."""

    rates: list[Rate] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """Median rate of batches."""
        return statistics.median(rate.per_s for rate in self.rates)

    @property
    def cpu_us(self) -> float:
        """Median CPU time of one invocation, all processes but the one that measures."""
        return statistics.median(
            sum(cost for name, cost in rate.cpu_us.items() if name != MEASURING) for rate in self.rates
        )

    def slower(self, other: Cost) -> float:
        """How much slower batches were than `other`'s of the same round: the median over the rounds."""
        pairs = zip(self.rates, other.rates, strict=True)
        return statistics.median(theirs.per_s / mine.per_s for mine, theirs in pairs)

    @property
    def p50_ms(self) -> float:
        """Median latency of single submits on an idle system."""
        return percentile(self.latencies_ms, 50)

    def take(self, side: GovernedSide, sizes: Growth) -> None:
        """One more measurement of a running system, which is made warm before."""
        side.measure("batch", Plan(sizes.warm_up))
        self.rates.append(side.measure("batch", Plan(sizes.n)))
        self.latencies_ms += side.latencies_ms(sizes.submits)


class SequencedLedger:
    """A ledger whose events have their numbers when a transaction has ended, whatever store it is on."""

    def __init__(self, ledger: Ledger, sequencer: Sequencer, leave: Callable[[], None]) -> None:
        self._ledger, self._sequencer, self._leave = ledger, sequencer, leave
        self.read, self.settings = ledger.read, ledger.settings

    @property
    def info(self) -> LedgerInfo:
        return self._ledger.info

    @contextmanager
    def write(self, keys: Iterable[str] = (), *, control: bool = False) -> Iterator[LedgerTransaction]:
        with self._ledger.write(keys, control=control) as transaction:
            yield transaction
        while self._sequencer.sequence():
            pass

    def close(self) -> None:
        self._leave()
        self._ledger.close()


def prove_growth(store: Store, disk: Path, course: Course, sizes: Growth, rows: int) -> Found:
    """Grow one system on `store` to `rows` events, and measure it in turns with fresh small ones."""
    large = DataDirectory.at(disk / f"large-{store.name}")
    make_system(large, store)
    early = _grown(large, store, min(sizes.early, rows), course)
    late = _grown(large, store, rows, course) if rows > sizes.early else early
    small_cost, large_cost = Cost(), Cost()
    for number in range(sizes.rounds):
        with _fresh(store, disk / f"small-{store.name}-{number}") as (directory, other):
            make_system(directory, other)
            grow_ledger(directory, other, sizes.small, lambda _: None)
            _measure(directory, other, small_cost, sizes, course)
        _measure(large, store, large_cost, sizes, course)
    verified = ask_measured(large, store, "verify")
    course.figure(f"verify_{store.name}_events", verified.said.get("events"))
    course.figure(f"verify_{store.name}_peak_mb", round(verified.peak_mb, 1))
    found = Found(
        is_verified=verified.said.get("ok") is True and early.said["equal"] and late.said["equal"],
        rebuild_events_per_s=float(late.said["events_per_s"]),
        peak_ratio=late.peak_mb / early.peak_mb,
        cpu_ratio=large_cost.cpu_us / small_cost.cpu_us,
        rate_ratio=large_cost.slower(small_cost),
        latency_ratio=large_cost.p50_ms / small_cost.p50_ms,
    )
    _tell(store, course, small_cost, large_cost, found)
    return found


def _grown(directory: DataDirectory, store: Store, events: int, course: Course) -> Answer:
    """Grow, let a system project all of it, and fold it from zero."""
    marks = iter(range(TOLD_EVERY, events, TOLD_EVERY))
    mark = next(marks, events)

    def told(seq: int) -> None:
        nonlocal mark
        if seq >= mark:
            course.say(f"{store.name}: {seq} events written")
            mark = next(marks, events + TOLD_EVERY)

    last = grow_ledger(directory, store, events, told)
    with governed_side(directory, store) as side:
        catch_up(side, store)
    answer = ask_measured(directory, store, "rebuild")
    course.figure(f"rebuild_{store.name}_at_{last}_events_per_s", answer.said.get("events_per_s"))
    course.figure(f"rebuild_{store.name}_at_{last}_peak_mb", round(answer.peak_mb, 1))
    return answer


@contextmanager
def _fresh(store: Store, path: Path) -> Iterator[tuple[DataDirectory, Store]]:
    """An empty place on the same kind of store."""
    if store.server is None:
        yield DataDirectory.at(path), Store(store.name)
        return
    with store.server.database("interlock_small") as url:
        yield DataDirectory.at(path), Store(store.name, url, store.server)


def _measure(directory: DataDirectory, store: Store, cost: Cost, sizes: Growth, course: Course) -> None:
    with governed_side(directory, store) as side:
        cost.take(side, sizes)
    rate = cost.rates[-1]
    course.say(f"{directory.path.name}: {rate.per_s:.0f}/s, {sum(rate.cpu_us.values()):.0f} us of CPU each")


def _tell(store: Store, course: Course, small: Cost, large: Cost, found: Found) -> None:
    for name, cost in (("small", small), ("large", large)):
        course.figure(f"{name}_{store.name}_per_s", round(cost.per_s, 1))
        course.figure(f"{name}_{store.name}_cpu_us", round(cost.cpu_us, 1))
        course.figure(f"{name}_{store.name}_idle_p50_ms", round(cost.p50_ms, 2))
        course.figure(f"{name}_{store.name}_idle_p99_ms", round(percentile(cost.latencies_ms, 99), 2))
    for name in ("peak_ratio", "cpu_ratio", "rate_ratio", "latency_ratio"):
        course.figure(f"{name}_{store.name}", round(getattr(found, name), 3))


def make_system(directory: DataDirectory, store: Store) -> None:
    """A system that started and stopped once: keys, tools, operator."""
    with governed_side(directory, store):
        pass


def grow_ledger(directory: DataDirectory, store: Store, events: int, told: Callable[[int], None]) -> int:
    """Grow a stopped system's ledger to so many events under its own keys; returns the last number."""
    ledger = _writable(directory, store)
    try:
        signers = {purpose: _signer(directory, purpose) for purpose in KeyPurpose if purpose.signs}
        installation = Installation(
            ledger,
            SystemClock(),
            signers[KeyPurpose.GOVERNANCE],
            signers[KeyPurpose.POOL],
            signers[KeyPurpose.ANCHOR],
        )
        return grow(installation, events, told=told)
    finally:
        ledger.close()


def catch_up(side: GovernedSide, store: Store) -> None:
    """Wait until everything that the ledger holds is projected."""
    ledger, views = store.ledger(side.directory), store.views(side.directory)
    try:
        with ledger.read() as view:
            last = view.last_seq()
        Approach(lambda: views.checkpoint().seq, "the projection").reach(last)
    finally:
        views.close()
        ledger.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command of the product printed, and how much memory it took at most."""

    said: dict[str, Any]
    peak_mb: float


def ask_measured(directory: DataDirectory, store: Store, verb: str) -> Answer:
    """`interlock VERB --json` on a stopped system."""
    command = [sys.executable, "-m", "gateway.cli", verb, "--json", "--data", str(directory.path)]
    output = directory.path.with_name(f"{directory.path.name}.{verb}.json")
    with output.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, env=store.environment(), cwd=directory.path.parent)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return Answer(json.loads(output.read_bytes() or b"{}"), usage.ru_maxrss / 1024)


def _signer(directory: DataDirectory, purpose: KeyPurpose) -> Ed25519Signer:
    return Ed25519Signer.from_bytes(read_key(directory.keys, purpose))


def _writable(directory: DataDirectory, store: Store) -> SequencedLedger:
    if store.url is None:
        plain = SqliteLedger.open(directory.ledger, SystemClock())
        return SequencedLedger(plain, SequencedOnAppend(), lambda: None)
    from governance.adapters.postgres_ledger import PostgresLedger, PostgresSequencer

    opened = PostgresLedger.open(store.url, SystemClock())
    sequencer = PostgresSequencer(opened, f"growth-{new_id()}")
    until(lambda: sequencer.sequence() or sequencer.is_leader, LEAD_SECONDS, "the sequencer leads")
    return SequencedLedger(opened, sequencer, sequencer.close)

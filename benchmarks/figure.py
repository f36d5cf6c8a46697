"""From what was measured to the figures of the report: medians, ratios, percentiles. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MEASURING = "measuring"
"""The process that looks on, among those whose cost is told."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One measurement: how many a second, and what each cost every process, in microseconds of CPU."""

    per_s: float
    cpu_us: Mapping[str, float]
    phase_ms: Mapping[str, float | None] = field(default_factory=dict)
    """Step of an invocation → the median milliseconds it took; nothing where no steps are known."""


@dataclass(frozen=True, slots=True)
class Side:
    """All rounds of one way to do it."""

    rounds: Sequence[Rate]

    @property
    def per_s(self) -> float:
        """The median rate."""
        return round(statistics.median(rate.per_s for rate in self.rounds), 1)

    @property
    def runs(self) -> list[float]:
        """Every round's rate, in the order they were made."""
        return [round(rate.per_s, 1) for rate in self.rounds]

    @property
    def cpu_us(self) -> dict[str, float]:
        """Process → the median of its CPU time for each invocation; the largest first."""
        names = {name for rate in self.rounds for name in rate.cpu_us}
        medians = {
            name: round(statistics.median(rate.cpu_us.get(name, 0.0) for rate in self.rounds), 1)
            for name in names
        }
        spent = sorted(medians.items(), key=lambda item: (-item[1], item[0]))
        return {name: cost for name, cost in spent if cost > 0}

    @property
    def phase_ms(self) -> dict[str, float]:
        """Step → the median over the rounds, in the order of the steps."""
        taken: dict[str, list[float]] = {}
        for rate in self.rounds:
            for name, value in rate.phase_ms.items():
                if value is not None:
                    taken.setdefault(name, []).append(value)
        return {name: round(statistics.median(values), 2) for name, values in taken.items()}


def ratio(ours: Side, theirs: Side) -> float:
    """The median over the rounds of ours ÷ theirs: what drifts from round to round cancels out."""
    pairs = zip(ours.rounds, theirs.rounds, strict=True)
    return round(statistics.median(one.per_s / other.per_s for one, other in pairs), 3)


def cpu_ratio(ours: Side, theirs: Side) -> float | None:
    """Their CPU time for one ÷ ours, all processes and the producers together: above 1 ours costs less.

    It says on a busy machine, too, what the rates say on a quiet one; None where nothing was counted. Whoever
    measures is left out on both sides.
    """
    spent = _cost(ours)
    return round(_cost(theirs) / spent, 3) if spent else None


def _cost(side: Side) -> float:
    return sum(cost for name, cost in side.cpu_us.items() if name != MEASURING)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed; raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = max(0, -(-len(ordered) * percent // 100) - 1)
    return ordered[int(place)]


@dataclass(frozen=True, slots=True)
class Idle:
    """What the system does when it is asked little, or nothing."""

    latencies_ms: Sequence[float]
    cpu_percent: float
    """Of one core, all processes together."""
    pss_mb: float

    def to_json(self) -> dict[str, Any]:
        """Percentiles of the latencies, and the cost of doing nothing."""
        return {
            "idle_p50_ms": round(percentile(self.latencies_ms, 50), 2),
            "idle_p99_ms": round(percentile(self.latencies_ms, 99), 2),
            "idle_max_ms": round(max(self.latencies_ms), 2),
            "idle_submits": len(self.latencies_ms),
            "idle_cpu_percent": round(self.cpu_percent, 2),
            "idle_pss_mb": round(self.pss_mb, 1),
        }


@dataclass(frozen=True, slots=True)
class Sandbox:
    """`shell.run true` through the supervisor beside a plain subprocess, in turns."""

    sandboxed_p50_ms: float | None
    plain_p50_ms: float
    reason: str = ""
    """Why there is no sandboxed figure."""

    def to_json(self) -> dict[str, Any]:
        """The ratio; None where nothing could be sandboxed here."""
        sandboxed = self.sandboxed_p50_ms
        return {
            "sandbox_p50_ratio": None if sandboxed is None else round(sandboxed / self.plain_p50_ms, 2),
            "sandbox": asdict(self),
        }


@dataclass(frozen=True, slots=True)
class Proof:
    """What the ledger and its views say after everything was measured."""

    verify_ok: bool
    events: int
    receipts: int
    expected_receipts: int
    rebuild_equal: bool
    rebuild_events_per_s: float

    @property
    def is_good(self) -> bool:
        """Whether what was measured really happened."""
        return self.verify_ok and self.rebuild_equal and self.receipts == self.expected_receipts


@dataclass(frozen=True, slots=True)
class Governed:
    """Everything of the governed side on one store."""

    single: Side
    batch: Side
    idle: Idle
    catchup_events_per_s: float
    proof: Proof

    def to_json(self, bare: Bare) -> dict[str, Any]:
        """Its figures beside those of the other side."""
        return {
            "governed_per_s": self.single.per_s,
            "governed_batch_per_s": self.batch.per_s,
            "ratio": ratio(self.single, bare.single),
            "ratio_batch": ratio(self.batch, bare.batch),
            "ratio_batch_to_tuned": ratio(self.batch, bare.tuned),
            "cpu_ratio": cpu_ratio(self.single, bare.single),
            "cpu_ratio_batch": cpu_ratio(self.batch, bare.batch),
            **self.idle.to_json(),
            "catchup_events_per_s": round(self.catchup_events_per_s, 1),
            "rebuild_events_per_s": self.proof.rebuild_events_per_s,
            "proof": {**asdict(self.proof), "ok": self.proof.is_good},
        }


@dataclass(frozen=True, slots=True)
class Bare:
    """Everything of bare Celery."""

    single: Side
    batch: Side
    tuned: Side


STORES = ("sqlite", "postgresql")
UNITS = ("_events_per_s", "_per_s", "_ms", "_percent", "_mb")


def on(store: str, name: str) -> str:
    """The report's word for a figure on a store: SQLite's has none, others stand before the unit."""
    if store == STORES[0]:
        return name
    unit = next((unit for unit in UNITS if name.endswith(unit)), "")
    return f"{name.removesuffix(unit)}_{store}{unit}"


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything of one run."""

    n: int
    governed: Mapping[str, Governed]
    """By store; what was not measured is absent."""
    bare: Bare
    sandbox: Sandbox
    durability: Mapping[str, Any]
    batch: Mapping[str, Any]
    setting: Mapping[str, Any] = field(default_factory=dict)
    peers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_proven(self) -> bool:
        """Whether everything that was measured really happened."""
        return all(governed.proof.is_good for governed in self.governed.values())

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON object; the figures of a store that was not measured are None."""
        sides = self._sides()
        bare = {"celery": self.bare.single, "celery_batch": self.bare.batch, "celery_tuned": self.bare.tuned}
        report: dict[str, Any] = {"n": self.n}
        names = {name for governed in self.governed.values() for name in governed.to_json(self.bare)}
        for store in STORES:
            governed = self.governed.get(store)
            figures = dict.fromkeys(sorted(names)) if governed is None else governed.to_json(self.bare)
            report |= {on(store, name): value for name, value in figures.items()}
        return {
            **report,
            **{f"{name}_per_s": side.per_s for name, side in bare.items()},
            **{f"peer_{name}_per_s": peer.get("per_s") for name, peer in self.peers.items()},
            **self.sandbox.to_json(),
            "durability": dict(self.durability),
            "batch": dict(self.batch),
            "rounds": {name: side.runs for name, side in sides.items()},
            "cpu_us_each": {name: side.cpu_us for name, side in sides.items()},
            "phase_ms": {name: side.phase_ms for name, side in sides.items() if side.phase_ms},
            "peers": {name: dict(peer) for name, peer in self.peers.items()},
            "setting": dict(self.setting),
        }

    def _sides(self) -> dict[str, Side]:
        sides = {}
        for store, governed in self.governed.items():
            sides[on(store, "governed")] = governed.single
            sides[on(store, "governed_batch")] = governed.batch
        bare = self.bare
        return {**sides, "celery": bare.single, "celery_batch": bare.batch, "celery_tuned": bare.tuned}

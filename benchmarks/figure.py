"""From what was measured to the figures of the report: medians, ratios, percentiles. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Rate:
    """One measurement: how many a second, and what each cost every process, in microseconds of CPU."""

    per_s: float
    cpu_us: Mapping[str, float]


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


def ratio(ours: Side, theirs: Side) -> float:
    """The median over the rounds of ours ÷ theirs: what drifts from round to round cancels out."""
    pairs = zip(ours.rounds, theirs.rounds, strict=True)
    return round(statistics.median(one.per_s / other.per_s for one, other in pairs), 3)


def cpu_ratio(ours: Side, theirs: Side) -> float | None:
    """Their CPU time for one ÷ ours, all processes and the producer together: above 1 ours costs less.

    It says on a busy machine, too, what the rates say on a quiet one; None where nothing was counted.
    """
    spent = sum(ours.cpu_us.values())
    return round(sum(theirs.cpu_us.values()) / spent, 3) if spent else None


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
class Measured:
    """Everything of one run."""

    n: int
    governed: Side
    celery: Side
    governed_batch: Side
    celery_batch: Side
    celery_tuned: Side
    idle: Idle
    sandbox: Sandbox
    proof: Proof
    durability: Mapping[str, Any]
    batch: Mapping[str, Any]
    setting: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        sides = {
            "governed": self.governed,
            "celery": self.celery,
            "governed_batch": self.governed_batch,
            "celery_batch": self.celery_batch,
            "celery_tuned": self.celery_tuned,
        }
        return {
            "n": self.n,
            **{f"{name}_per_s": side.per_s for name, side in sides.items()},
            "ratio": ratio(self.governed, self.celery),
            "ratio_batch": ratio(self.governed_batch, self.celery_batch),
            "ratio_batch_to_tuned": ratio(self.governed_batch, self.celery_tuned),
            "cpu_ratio": cpu_ratio(self.governed, self.celery),
            "cpu_ratio_batch": cpu_ratio(self.governed_batch, self.celery_batch),
            **self.idle.to_json(),
            "rebuild_events_per_s": self.proof.rebuild_events_per_s,
            **self.sandbox.to_json(),
            "proof": {**asdict(self.proof), "ok": self.proof.is_good},
            "durability": dict(self.durability),
            "batch": dict(self.batch),
            "rounds": {name: side.runs for name, side in sides.items()},
            "cpu_us_each": {name: side.cpu_us for name, side in sides.items()},
            "setting": dict(self.setting),
        }

"""Tells a person what a run of the benchmarks came to. Plain lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

BUDGETS: Mapping[str, tuple[str, float]] = {
    "ratio": (">=", 1.5),
    "ratio_batch": (">=", 3.0),
    "idle_p50_ms": ("<=", 25.0),
    "idle_p99_ms": ("<=", 80.0),
    "sandbox_p50_ratio": ("<=", 12.0),
    "rebuild_events_per_s": (">=", 10_000.0),
    "idle_cpu_percent": ("<=", 2.0),
    "idle_pss_mb": ("<=", 700.0),
}


def tell(report: Mapping[str, Any]) -> None:
    """Print the report."""
    for line in lines(report):
        print(line)


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report, line by line."""
    yield f"{report['n']} invocations a measurement, {report['setting']['rounds']} rounds, medians"
    for name in ("governed", "celery", "governed_batch", "celery_batch", "celery_tuned"):
        runs = " ".join(f"{run:.0f}" for run in report["rounds"][name])
        yield f"  {name:<16}{report[f'{name}_per_s']:>9.0f}/s   ({runs})"
    yield "against the budgets"
    for name, (sense, bound) in BUDGETS.items():
        yield f"  {name:<22}{_shown(report[name])}   {_verdict(report[name], sense, bound)}"
    for name in ("ratio_batch_to_tuned", "cpu_ratio", "cpu_ratio_batch"):
        yield f"  {name:<22}{_shown(report[name])}   no budget"
    yield "where the time goes (CPU microseconds an invocation)"
    for name, costs in report["cpu_us_each"].items():
        yield f"  {name:<16}" + ", ".join(f"{process} {cost:.0f}" for process, cost in costs.items())
    durability = report["durability"]
    ledger, broker = durability["ledger"], durability["broker"]
    yield (
        f"durability, read back: ledger journal_mode={ledger['journal_mode']} "
        f"synchronous={ledger['synchronous']}; broker appendonly={broker['appendonly']} "
        f"appendfsync={broker['appendfsync']}; fdatasync p50 {durability['fdatasync_p50_ms']} ms"
    )
    proof = report["proof"]
    yield (
        f"proof: verify {'passes' if proof['verify_ok'] else 'FAILS'} over {proof['events']} events, "
        f"{proof['receipts']} of {proof['expected_receipts']} receipts, "
        f"rebuild {'equal' if proof['rebuild_equal'] else 'NOT EQUAL'}"
    )
    before, after = report["setting"]["load_before"], report["setting"]["load_after"]
    yield f"load average {before} before, {after} after: only a quiet machine has figures worth keeping"
    yield "one producer, one tenant (the local client has no other), one machine"


def _shown(value: float | None) -> str:
    return "       none" if value is None else f"{value:>11.2f}"


def _verdict(value: float | None, sense: str, bound: float) -> str:
    if value is None:
        return "not measured"
    met = value >= bound if sense == ">=" else value <= bound
    return f"{'met' if met else 'MISSED'} ({sense} {bound:g})"

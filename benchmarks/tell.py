"""Tells a person what a run of the benchmarks came to. Plain lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.figure import STORES, on

BUDGETS: Mapping[str, tuple[str, float]] = {
    "ratio": (">=", 1.5),
    "ratio_batch": (">=", 3.0),
    "ratio_postgresql": (">=", 1.2),
    "ratio_batch_postgresql": (">=", 2.5),
    "idle_p50_ms": ("<=", 25.0),
    "idle_p99_ms": ("<=", 80.0),
    "idle_p50_postgresql_ms": ("<=", 25.0),
    "idle_p99_postgresql_ms": ("<=", 80.0),
    "sandbox_p50_ratio": ("<=", 12.0),
    "catchup_events_per_s": (">=", 10_000.0),
    "catchup_postgresql_events_per_s": (">=", 10_000.0),
    "rebuild_events_per_s": (">=", 10_000.0),
    "rebuild_postgresql_events_per_s": (">=", 10_000.0),
    "idle_cpu_percent": ("<=", 2.0),
    "idle_pss_mb": ("<=", 700.0),
    "idle_cpu_postgresql_percent": ("<=", 2.0),
    "idle_pss_postgresql_mb": ("<=", 700.0),
}
BESIDE = ("ratio_batch_to_tuned", "cpu_ratio", "cpu_ratio_batch")


def tell(report: Mapping[str, Any]) -> None:
    """Print the report."""
    for line in lines(report):
        print(line)


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report, line by line."""
    setting = report["setting"]
    yield (
        f"{report['n']} invocations a measurement, {setting['producers']} producers on each side, "
        f"{setting['rounds']} rounds, medians"
    )
    for name, rates in report["rounds"].items():
        runs = " ".join(f"{run:.0f}" for run in rates)
        yield f"  {name:<26}{report[f'{name}_per_s']:>8.0f}/s   ({runs})"
    yield from _peers(report["peers"])
    yield "against the budgets"
    for name, (sense, bound) in BUDGETS.items():
        yield f"  {name:<34}{_shown(report[name])}   {_verdict(report[name], sense, bound)}"
    for name in (on(store, name) for store in STORES for name in BESIDE):
        yield f"  {name:<34}{_shown(report[name])}   no budget"
    yield "where the time goes (CPU microseconds an invocation)"
    for name, costs in report["cpu_us_each"].items():
        yield f"  {name:<26}" + ", ".join(f"{process} {cost:.0f}" for process, cost in costs.items())
    yield "where an invocation is meanwhile (median milliseconds under load, from the ledger's times)"
    for name, steps in report["phase_ms"].items():
        yield f"  {name:<26}" + ", ".join(f"{step} {taken:.1f}" for step, taken in steps.items())
    yield from _durability(report["durability"])
    yield from _proofs(report)
    yield (
        f"load average {setting['load_before']} before, {setting['load_after']} after: "
        "only a quiet machine has figures worth keeping"
    )
    spread = f"{setting['tenants']} tenants, {setting['sessions_a_measurement']} sessions a measurement"
    yield f"{spread}, {setting['cores']} cores"


def _peers(peers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, peer in peers.items():
        if peer["per_s"] is None:
            yield f"  {name:<26}not measured: {peer['missing']}"
        else:
            runs = " ".join(f"{run:.0f}" for run in peer["rounds"])
            yield f"  {name:<26}{peer['per_s']:>8.0f}/s   ({runs})  {peer['version']}; {peer['durability']}"


def _durability(durability: Mapping[str, Any]) -> Iterator[str]:
    """Read back from every store, as it answered."""
    for name, said in durability.items():
        if isinstance(said, Mapping):
            yield f"durability, read back, {name}: " + ", ".join(
                f"{key}={value}" for key, value in said.items()
            )
    yield f"fdatasync p50 {durability['fdatasync_p50_ms']} ms in {durability.get('folder', 'its folder')}"


def _proofs(report: Mapping[str, Any]) -> Iterator[str]:
    for store in STORES:
        proof = report[on(store, "proof")]
        if proof is not None:
            yield (
                f"proof, {store}: verify {'passes' if proof['verify_ok'] else 'FAILS'} "
                f"over {proof['events']} events, "
                f"{proof['receipts']} of {proof['expected_receipts']} receipts, "
                f"rebuild {'equal' if proof['rebuild_equal'] else 'NOT EQUAL'}"
            )


def _shown(value: float | None) -> str:
    return "       none" if value is None else f"{value:>11.2f}"


def _verdict(value: float | None, sense: str, bound: float) -> str:
    if value is None:
        return "not measured"
    met = value >= bound if sense == ">=" else value <= bound
    return f"{'met' if met else 'MISSED'} ({sense} {bound:g})"

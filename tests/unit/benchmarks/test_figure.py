"""From rounds to figures: medians, paired ratios, percentiles, and a report that holds what it promises."""

from __future__ import annotations

import pytest

from benchmarks.figure import Idle, Measured, Proof, Rate, Sandbox, Side, cpu_ratio, percentile, ratio
from benchmarks.tell import BUDGETS, lines

PROMISED = (
    "governed_per_s", "celery_per_s", "ratio", "governed_batch_per_s", "celery_batch_per_s", "ratio_batch",
    "celery_tuned_per_s", "idle_p50_ms", "idle_p99_ms", "rebuild_events_per_s", "sandbox_p50_ratio",
    "durability", "batch",
)  # fmt: skip


def side(*rates: float) -> Side:
    return Side([Rate(rate, {"governor": 200.0, "broker": 50.0 + rate}) for rate in rates])


def measured(proof: Proof | None = None, sandbox: Sandbox | None = None) -> Measured:
    settings = {"journal_mode": "wal", "synchronous": "2"}
    broker = {"appendonly": "yes", "appendfsync": "everysec"}
    return Measured(
        n=100,
        governed=side(200, 300, 250),
        celery=side(100, 100, 100),
        governed_batch=side(400, 400, 400),
        celery_batch=side(100, 100, 100),
        celery_tuned=side(500, 500, 500),
        idle=Idle([5.0, 1.0, 9.0], 1.0, 200.0),
        sandbox=sandbox or Sandbox(10.0, 2.0),
        proof=proof or Proof(True, 400, 100, 100, True, 12_000.0),
        durability={"ledger": settings, "broker": broker, "fdatasync_p50_ms": 0.1},
        batch={"published": 500},
        setting={"rounds": 3, "load_before": 0.1, "load_after": 2.0},
    )


def test_the_ratio_is_the_median_of_the_pairs_not_of_the_sides() -> None:
    # The machine was twice as fast in the last round, for both.
    assert ratio(side(100, 110, 400), side(100, 100, 200)) == 1.1


def test_the_ratio_of_costs_is_theirs_by_ours() -> None:
    # 200 + 50 + rate: 300 against 600.
    assert cpu_ratio(side(50), side(350)) == 2.0
    assert cpu_ratio(Side([Rate(1.0, {})]), side(1)) is None


def test_a_side_is_told_by_its_median_and_every_round() -> None:
    assert side(100, 300, 200).per_s == 200
    assert side(100, 300, 200).runs == [100, 300, 200]


def test_costs_are_medians_and_the_dearest_process_comes_first() -> None:
    assert list(side(100, 300, 200).cpu_us.items()) == [("broker", 250.0), ("governor", 200.0)]


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([1.0], 50, 1.0),
        ([1.0], 99, 1.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        (list(map(float, range(1, 201))), 99, 198.0),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_the_report_holds_every_promised_figure() -> None:
    report = measured().to_json()
    assert [name for name in (*PROMISED, *BUDGETS) if name not in report] == []
    assert report["ratio"] == 2.5
    assert report["sandbox_p50_ratio"] == 5.0
    assert report["idle_p50_ms"] == 5.0


def test_what_could_not_be_measured_is_told_as_such() -> None:
    report = measured(sandbox=Sandbox(None, 2.0, "SANDBOX_UNAVAILABLE: no user namespaces")).to_json()
    assert report["sandbox_p50_ratio"] is None
    assert any("not measured" in line for line in lines(report))


@pytest.mark.parametrize(
    "proof",
    [
        Proof(False, 400, 100, 100, True, 1.0),
        Proof(True, 400, 99, 100, True, 1.0),
        Proof(True, 400, 100, 100, False, 1.0),
    ],
)
def test_without_proof_nothing_is_good(proof: Proof) -> None:
    assert not measured(proof).proof.is_good
    assert measured(proof).to_json()["proof"]["ok"] is False


def test_every_budget_is_told_with_its_verdict() -> None:
    told = list(lines(measured().to_json()))
    for name in BUDGETS:
        assert any(line.split()[:1] == [name] and ("met" in line or "MISSED" in line) for line in told), name

"""From rounds to figures: medians, paired ratios, percentiles, and a report that holds what it promises."""

from __future__ import annotations

import pytest

from benchmarks.figure import (
    Bare,
    Governed,
    Idle,
    Measured,
    Proof,
    Rate,
    Sandbox,
    Side,
    cpu_ratio,
    on,
    percentile,
    ratio,
)
from benchmarks.tell import BUDGETS, lines

PROMISED = (
    "governed_per_s", "celery_per_s", "ratio", "governed_batch_per_s", "celery_batch_per_s", "ratio_batch",
    "celery_tuned_per_s", "idle_p50_ms", "idle_p99_ms", "rebuild_events_per_s", "sandbox_p50_ratio",
    "durability", "batch",
)  # fmt: skip


def side(*rates: float) -> Side:
    return Side([Rate(rate, {"governor": 200.0, "broker": 50.0 + rate}) for rate in rates])


PHASES = {"proposed_to_requested": 4.0, "requested_to_granted": None}
GOOD = Proof(True, 400, 100, 100, True, 12_000.0)


def governed(proof: Proof, factor: float = 1.0) -> Governed:
    single = Side([Rate(rate * factor, {"governor": 200.0}, PHASES) for rate in (200.0, 300.0, 250.0)])
    return Governed(single, side(400, 400, 400), Idle([5.0, 1.0, 9.0], 1.0, 200.0), 11_000.0, proof)


def measured(
    proof: Proof = GOOD, sandbox: Sandbox | None = None, *, stores: tuple[str, ...] = ("sqlite",)
) -> Measured:
    settings = {"journal_mode": "wal", "synchronous": "2"}
    broker = {"appendonly": "yes", "appendfsync": "everysec"}
    setting = {"rounds": 3, "producers": 1, "tenants": 1, "sessions_a_measurement": 200, "cores": 2}
    return Measured(
        n=100,
        governed={store: governed(proof, 1.0 if store == "sqlite" else 0.5) for store in stores},
        bare=Bare(side(100, 100, 100), side(100, 100, 100), side(500, 500, 500)),
        sandbox=sandbox or Sandbox(10.0, 2.0),
        durability={"ledger": settings, "broker": broker, "fdatasync_p50_ms": 0.1},
        batch={"published": 500},
        setting={**setting, "load_before": 0.1, "load_after": 2.0},
        peers={"huey": {"per_s": 50.0, "rounds": [50.0], "version": "huey 1", "durability": "none"},
               "dbos": {"per_s": None, "rounds": [], "missing": "not installed: pip install dbos"}},
    )  # fmt: skip


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
    assert report["phase_ms"] == {"governed": {"proposed_to_requested": 4.0}}


def test_a_store_has_keys_of_its_own_and_none_where_it_was_not_measured() -> None:
    one, two = measured().to_json(), measured(stores=("sqlite", "postgresql")).to_json()
    assert one.keys() == two.keys()
    assert (one["ratio_postgresql"], two["ratio"], two["ratio_postgresql"]) == (None, 2.5, 1.25)
    assert (one["idle_p50_postgresql_ms"], two["idle_p50_postgresql_ms"]) == (None, 5.0)
    assert two["rounds"]["governed_postgresql"] == [100.0, 150.0, 125.0]
    only = measured(stores=("postgresql",)).to_json()
    assert (only["ratio"], only["ratio_postgresql"]) == (None, 1.25)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("governed_per_s", "governed_postgresql_per_s"),
        ("rebuild_events_per_s", "rebuild_postgresql_events_per_s"),
        ("ratio_batch", "ratio_batch_postgresql"),
    ],
)
def test_the_word_of_a_store_stands_before_the_unit(name: str, word: str) -> None:
    assert on("postgresql", name) == word
    assert on("sqlite", name) == name


def test_peers_are_told_and_what_is_missing_is_named() -> None:
    report = measured().to_json()
    assert (report["peer_huey_per_s"], report["peer_dbos_per_s"]) == (50.0, None)
    assert any("pip install dbos" in line for line in lines(report))


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
    assert not measured(proof).is_proven
    assert not measured(proof, stores=("postgresql",)).is_proven
    assert measured(proof).to_json()["proof"]["ok"] is False


def test_every_budget_is_told_with_its_verdict() -> None:
    told = list(lines(measured(stores=("sqlite", "postgresql")).to_json()))
    for name in BUDGETS:
        assert any(line.split()[:1] == [name] and ("met" in line or "MISSED" in line) for line in told), name

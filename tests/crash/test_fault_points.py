"""Killed at every named point, three times each, the system comes to rest and nothing is doubled or lost."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from interlock.fault import POINTS
from tests.support.crashing import FIRINGS_MIN, TOGETHER, planned, prove_faults

OF_CLIENTS = frozenset(("client.before_send", "client.after_send"))
OF_LEDGER = ("ledger.before_commit", "ledger.after_commit")


def test_every_point_is_in_one_of_the_runs() -> None:
    assert {point for points in TOGETHER for point in points} | OF_CLIENTS | set(OF_LEDGER) == set(POINTS)


@pytest.mark.parametrize("points", TOGETHER, ids=lambda points: points[0])
def test_killed_at_these_points_everything_comes_to_rest(points: Sequence[str], rng: random.Random) -> None:
    proof = prove_faults(planned(rng, points, "kill"), rng, times=FIRINGS_MIN)
    assert proof.findings == []
    assert {point: count for point, count in proof.fired.items() if count >= FIRINGS_MIN}.keys() == set(
        points
    )

"""Killed at every named point, three times each, the system comes to rest and nothing is doubled or lost."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from interlock.fault import POINTS
from tests.support.crashing import FIRINGS_MIN, planned, prove_faults

# Points of different processes go together: each process is then ended often, and none so often that it is
# made to wait long before its next start.
TOGETHER: tuple[tuple[str, ...], ...] = (
    (
        "propose.after_take",
        "propose.after_decode",
        "claim.after_hint",
        "claim.before_commit",
        "relay.before_publish",
        "project.after_read",
    ),
    (
        "propose.before_commit",
        "propose.after_commit",
        "claim.after_commit",
        "run.before_effect",
        "sweep.before_commit",
        "project.before_commit",
    ),
    (
        "propose.after_publish",
        "propose.after_answer",
        "run.after_effect",
        "report.before_spool",
        "sweep.after_commit",
        "project.after_commit",
    ),
    (
        "grant.before_commit",
        "grant.after_commit",
        "report.after_spool",
        "recover.before_report",
        "relay.after_publish",
    ),
    (
        "grant.after_publish",
        "vote.after_commit",
        "report.before_commit",
        "report.after_commit",
        "recover.after_report",
        "sweep.before_publish",
    ),
    (
        "dispatch.before_publish",
        "dispatch.after_publish",
    ),
)
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

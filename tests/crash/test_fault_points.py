"""Killed at every named point, three times each, the system comes to rest and nothing is doubled or lost."""

from __future__ import annotations

import random

from interlock.fault import POINTS
from tests.support.crashing import FIRINGS_MIN
from tests.support.killing import POINTS as OF_ROLES
from tests.support.killing import kill_for
from tests.support.store import LEDGER_URL, store_settings

OF_CLIENTS = frozenset(("client.before_send", "client.after_send"))
OF_LEDGER = ("ledger.before_commit", "ledger.after_commit")
ON_A_SERVER = (
    "propose.before_commit",
    "propose.after_commit",
    "grant.after_commit",
    "claim.after_commit",
    "run.after_effect",
    "report.before_commit",
    "relay.after_publish",
    "project.before_commit",
    "project.after_commit",
    "sweep.after_commit",
)
"""Around every commit of another kind."""


def test_every_point_is_killed_somewhere() -> None:
    assert set(OF_ROLES) | OF_CLIENTS | set(OF_LEDGER) == set(POINTS)


def test_killed_at_any_point_everything_comes_to_rest(rng: random.Random) -> None:
    kill(rng, OF_ROLES)


def test_killed_around_commits_on_a_server_everything_comes_to_rest(rng: random.Random) -> None:
    with store_settings("postgresql") as settings:
        kill(rng, ON_A_SERVER, settings[LEDGER_URL])


def kill(rng: random.Random, points: tuple[str, ...], ledger_url: str = "") -> None:
    proof = kill_for(dict.fromkeys(points, FIRINGS_MIN), rng, ledger_url=ledger_url)
    assert proof.findings == []
    assert {point for point in points if proof.fired[point] < FIRINGS_MIN} == set()

"""A soak of random everything: kills, stops, emptied brokers, lost answers, restarts, for as long as is said.

`PROVE_SECONDS` seconds in rounds of their own, each checked; `INTERLOCK_TEST_STORE=postgresql` on PostgreSQL.
No part of `./run test`.
"""

from __future__ import annotations

import random
import time
from collections import Counter

from tests.support.crashing import hurt_system, settle
from tests.support.hurting import HURTS, hurt
from tests.support.idle import baseline, grown
from tests.support.killing import BACKLOG_MAX, PAUSE_SECONDS, PRODUCERS, QUICKLY
from tests.support.proof import Outline, proving
from tests.support.store import LEDGER_URL, store_settings, wanted
from tests.support.wait import until

PROOF = Outline(
    name="soak",
    says="Whatever can be hurt is hurt at random, and nothing is lost, doubled, stuck or left behind.",
    count="PROVE_SECONDS",
    usual=300,
    minutes=1.0,
    minutes_each=1 / 50,
)
ROUND_SECONDS = 40.0
QUIET_SECONDS = 180.0


def test_random_everything(seed: int) -> None:
    rng = random.Random(seed)
    with proving(PROOF, seed) as course:
        done, findings, calls, rounds = Counter[str](), list[str](), 0, 0
        give_up_at = time.monotonic() + course.wanted
        while time.monotonic() < give_up_at:
            found, count = one_round(rng, done)
            findings += found
            calls, rounds = calls + count, rounds + 1
            for finding in found:
                course.say(f"FOUND {finding}")
            course.say(f"round {rounds}: {dict(done)}, {calls} calls, {len(findings)} findings")
        course.figure("rounds", rounds)
        course.figure("calls", calls)
        course.figure("hurts", dict(done))
        course.figure("findings", len(findings))
        assert findings == []


def one_round(rng: random.Random, done: Counter[str]) -> tuple[list[str], int]:
    """Some seconds of it on a system of its own; what does not hold afterwards, and how many calls."""
    with (
        store_settings(wanted()) as store,
        hurt_system(
            rng,
            times=1,
            producers=PRODUCERS,
            pause_seconds=PAUSE_SECONDS,
            backlog_max=BACKLOG_MAX,
            ledger_url=store.get(LEDGER_URL, ""),
            **QUICKLY,
        ) as (system, traffic),
    ):
        before = baseline(system)
        give_up_at = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < give_up_at:
            name = rng.choice(HURTS)
            hurt(system, name, rng)
            done[name] += 1
        until(system.all_ready, 30, "all roles serve again")
        findings = [str(finding) for finding in settle(system, traffic, QUIET_SECONDS)]
        return [*findings, *grown(system, before)], len(traffic.calls)

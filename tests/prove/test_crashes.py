"""The long proof of crashes: every point is killed many times, with two of each role, each run checked.

`PROVE_KILLS` kills a point; `PROVE_SECONDS` bounds the time, and what was reached by then is said;
`INTERLOCK_TEST_STORE=postgresql` runs it on PostgreSQL. No part of `./run test`.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter

from tests.support.calling import Fate
from tests.support.killing import POINTS, TIMES_MAX, kill_for
from tests.support.proof import Course, Outline, proving
from tests.support.store import LEDGER_URL, store_settings, wanted

PROOF = Outline(
    name="crashes",
    says="Processes are killed at every point, and nothing is lost, doubled or stuck.",
    count="PROVE_KILLS",
    usual=200,
    minutes=1.0,
    minutes_each=0.08,
)
RUNS_IN_VAIN_MAX = 5
"""So many runs in a row in which a point that is missing was never killed end the proof."""


def test_every_point_killed_many_times(seed: int) -> None:
    with proving(PROOF, seed) as course:
        reached, findings = kill_all(course, random.Random(seed))
        course.figure("kills_a_point_min", min(reached[point] for point in POINTS))
        course.figure("kills", reached.total())
        course.figure("kills_by_point", {point: reached[point] for point in POINTS})
        course.figure("findings", len(findings))
        assert findings == []
        if not os.environ.get("PROVE_SECONDS"):
            assert [point for point in POINTS if reached[point] < course.wanted] == []


def kill_all(course: Course, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Run after run until every point was killed often enough, or the time is over."""
    give_up_at = time.monotonic() + float(os.environ.get("PROVE_SECONDS") or "inf")
    reached, calls, findings = Counter[str](), Counter[Fate](), list[str]()
    in_vain = 0
    while left := {point: lacking for point in POINTS if (lacking := course.wanted - reached[point]) > 0}:
        if time.monotonic() >= give_up_at or in_vain >= RUNS_IN_VAIN_MAX:
            break
        with store_settings(wanted()) as store:
            proof = kill_for(left, rng, ledger_url=store.get(LEDGER_URL, ""))
        in_vain = 0 if any(proof.fired[point] for point in left) else in_vain + 1
        reached += proof.fired
        calls.update(call.fate for call in proof.calls)
        for finding in proof.findings:
            course.say(f"FOUND {finding}")
            findings.append(str(finding))
        course.say(
            f"{reached.total()} kills, {len(left)} points left (up to {TIMES_MAX} each a run), "
            f"{calls.total()} calls, {len(findings)} findings"
        )
    course.figure("calls", {fate.value: calls[fate] for fate in Fate})
    return reached, findings

"""The long proof of crashes: every point is killed many times, in runs of a few kills each, each run checked.

`PROVE_KILLS` kills a point (20); `INTERLOCK_SEED` repeats a run. No part of `./run test`.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter

from tests.support.calling import Fate
from tests.support.crashing import TOGETHER, planned, prove_faults

KILLS_A_RUN = 5
"""More in one run, and its processes would be made to wait ever longer between their starts."""
FIRE_SECONDS = 240.0


def test_every_point_killed_many_times(seed: int) -> None:
    wanted = int(os.environ.get("PROVE_KILLS", "20"))
    rng, began = random.Random(seed), time.monotonic()
    fired: Counter[str] = Counter()
    calls: Counter[Fate] = Counter()
    findings = []
    print(f"seed {seed}, {wanted} kills a point")
    for points in TOGETHER:
        left = wanted
        while left > 0:
            times = min(left, KILLS_A_RUN)
            proof = prove_faults(planned(rng, points, "kill"), rng, times, FIRE_SECONDS)
            left -= times
            fired += proof.fired
            calls.update(call.fate for call in proof.calls)
            findings += proof.findings
            minutes = (time.monotonic() - began) / 60
            print(
                f"{minutes:5.1f} min  {points[0]} …  {fired.total()} kills, {calls.total()} calls", flush=True
            )
    print({point: fired[point] for points in TOGETHER for point in points})
    print(f"calls {dict(calls)}, findings {len(findings)}, {(time.monotonic() - began) / 60:.1f} minutes")
    assert findings == []
    assert all(fired[point] >= wanted for points in TOGETHER for point in points)

"""Many kills in one start: every point that is still to be killed at once, until time or kills are used up.

What ends a run is the clock, and not the point that is reached least: the next run asks for what is missing.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping

from tests.support.crashing import TOGETHER, Proof, hurt_system, settle
from tests.support.wait import until

POINTS = tuple(point for points in TOGETHER for point in points)
"""Every point of the roles."""
TIMES_MAX = 12
"""Kills of one point in one run: what is hit again and again waits ever longer to be offered again."""
RUN_SECONDS = 60.0
PRODUCERS = 16
PAUSE_SECONDS = 0.1
BACKLOG_MAX = 60
"""What is accepted is also to be finished within the run."""
QUIET_SECONDS = 120.0
QUICKLY: Mapping[str, str] = {
    "INTERLOCK_LOOK_AGAIN_MS": "800",
    "INTERLOCK_RELEASE_AGAIN_MS": "200",
}
FEEDERS: Mapping[str, tuple[str, ...]] = {
    "recover.": ("report.after_spool", "report.before_commit"),
    "sweep.before_commit": ("claim.after_commit", "run.before_effect"),
    "sweep.after_commit": ("claim.after_commit", "run.after_effect"),
    "sweep.before_publish": ("claim.after_hint", "dispatch.before_publish"),
}
"""What has to be killed for these to be reached at all."""


def kill_for(
    left: Mapping[str, int], rng: random.Random, *, seconds: float = RUN_SECONDS, ledger_url: str = ""
) -> Proof:
    """Kill processes at these points, each at most as often as is left, for at most so long; then check."""
    wanted = {point: min(count, TIMES_MAX) for point, count in left.items() if count > 0}
    times = max(wanted.values())
    plan = plan_of(wanted, rng)
    with hurt_system(
        rng,
        plan=plan,
        times=times,
        producers=PRODUCERS,
        pause_seconds=PAUSE_SECONDS,
        backlog_max=BACKLOG_MAX,
        ledger_url=ledger_url,
        **QUICKLY,
    ) as (system, traffic):
        give_up_at = time.monotonic() + seconds

        def is_over() -> bool:
            fired = Counter(firing.point for firing in system.firings())
            return time.monotonic() >= give_up_at or all(fired[point] >= n for point, n in wanted.items())

        until(is_over, seconds + 10, "the run is over")
        system.disarm()
        findings = settle(system, traffic, QUIET_SECONDS)
        fired = Counter(firing.point for firing in system.firings())
    return Proof(fired, traffic.calls, findings)


def plan_of(wanted: Mapping[str, int], rng: random.Random) -> list[str]:
    """A kill a point, each at one of the first times that a process reaches it, and what leads there."""
    feeders = [
        f"{point}:{nth}:kill"
        for rare, points in FEEDERS.items()
        if any(point.startswith(rare) for point in wanted)
        for point in points
        for nth in (1, 2)
    ]
    rare = tuple(FEEDERS)
    plain = [f"{point}:{1 if point.startswith(rare) else rng.randint(1, 4)}:kill" for point in wanted]
    return sorted({*plain, *feeders})

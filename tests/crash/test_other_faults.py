"""What does not end a process: errors in the middle of a step, steps that take long or never come back."""

from __future__ import annotations

import random

from tests.support.crashing import planned, prove_faults

RAISED = (
    "propose.after_commit",
    "grant.before_commit",
    "claim.after_commit",
    "run.before_effect",
    "run.after_effect",
    "report.after_commit",
    "relay.after_publish",
    "project.before_commit",
)
DELAYED = ("claim.after_commit", "run.before_effect", "report.before_commit", "relay.before_publish")
HUNG = ("propose.before_commit", "claim.after_hint", "project.before_commit")
LEDGER = ("ledger.before_commit:25:kill", "ledger.after_commit:26:kill")
"""Later than anything that happens before the roles run."""


def test_an_error_in_the_middle_of_a_step_loses_and_doubles_nothing(rng: random.Random) -> None:
    # Twice a point, for a process may end of the first error or live on.
    first = rng.randint(1, 3)
    plan = [f"{point}:{nth}:raise" for point in RAISED for nth in (first, first + 2)]
    assert prove_faults(plan, rng).findings == []


def test_steps_that_take_long_or_never_come_back_lose_and_double_nothing(rng: random.Random) -> None:
    plan = [*planned(rng, DELAYED, "delay"), *planned(rng, HUNG, "hang")]
    assert prove_faults(plan, rng).findings == []


def test_killed_around_any_commit_nothing_is_lost_or_doubled(rng: random.Random) -> None:
    assert prove_faults(LEDGER, rng, times=3).findings == []

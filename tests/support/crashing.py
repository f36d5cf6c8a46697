"""One run of the crash proof: traffic on a system in which faults fire; when it is quiet again, the check.

A run in which a planned fault did not fire as often as planned is no proof, and fails.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.calling import Call, Mix, Traffic, prepare
from tests.support.checker import Finding, check
from tests.support.quiet import QUIET_SECONDS, wait_until_quiet
from tests.support.running import UP, RunningSystem, running_system
from tests.support.store import LEDGER_URL
from tests.support.wait import until

FIRE_SECONDS = 60.0
TWO = "governor=2,scheduler=2,projector=2,pool-pure=2,pool-fs=2,pool-shell=2"
"""Two of every role that the traffic needs."""
ONE = ""
FIRINGS_MIN = 3


@dataclass
class Proof:
    """What a run came to."""

    fired: Counter[str] = field(default_factory=Counter)
    """Point → firings."""
    calls: list[Call] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@contextmanager
def hurt_system(
    rng: random.Random,
    *,
    plan: Sequence[str] = (),
    times: int = 1,
    program: Sequence[str] = UP,
    producers: int = 4,
    pause_seconds: float = 0.02,
    backlog_max: int = 0,
    replicas: str = TWO,
    ledger_url: str = "",
    **settings: str,
) -> Iterator[tuple[RunningSystem, Traffic]]:
    """A started system, with two of each role, under traffic. What it said is shown with any failure."""
    given = {"INTERLOCK_REPLICAS": replicas, "INTERLOCK_BACKOFF_MAX_MS": "0", **settings}
    if ledger_url:
        given[LEDGER_URL] = ledger_url
    with running_system(program, **given) as system:
        try:
            # What kills a role again and again before it was ever ready is no crash: the start gives up.
            system.environment |= system.plan(plan, times) | system.unarmed()
            system.start()
            system.arm()
            mix = Mix(rng)
            signer = prepare(system.directory, mix)
            with Traffic(system.directory, mix, signer, producers, pause_seconds, backlog_max) as traffic:
                yield system, traffic
        except BaseException:
            print(system.said())
            raise


def settle(system: RunningSystem, traffic: Traffic, quiet_seconds: float = QUIET_SECONDS) -> list[Finding]:
    """End the traffic, wait until all is quiet and nobody answers any more, and check."""
    traffic.close()
    wait_until_quiet(system.directory, traffic.calls, quiet_seconds)
    traffic.end()
    wait_until_quiet(system.directory, traffic.calls, quiet_seconds)
    return check(system.directory, traffic.calls, system.faulted_pids())


def prove_faults(
    plan: Sequence[str], rng: random.Random, times: int = 1, seconds: float = FIRE_SECONDS
) -> Proof:
    """Let each planned fault fire `times` times under traffic within `seconds`, heal, settle and check."""
    with hurt_system(rng, plan=plan, times=times) as (system, traffic):
        fire_all(system, len(plan) * times, seconds)
        findings = settle(system, traffic)
        fired = Counter(firing.point for firing in system.firings())
    return Proof(fired, traffic.calls, findings)


def fire_all(system: RunningSystem, wanted: int, seconds: float = FIRE_SECONDS) -> None:
    """Until so many faults fired; what hangs meanwhile is ended, as somebody would."""

    def have_fired() -> bool:
        system.heal()
        return len(system.firings()) >= wanted

    try:
        until(have_fired, seconds, f"{wanted} faults fired")
    except AssertionError as error:
        fired = "\n".join(map(str, system.firings()))
        raise AssertionError(f"{error}; these did:\n{fired}") from None


TOGETHER: tuple[tuple[str, ...], ...] = (
    (
        "propose.after_take",
        "propose.after_decode",
        "claim.after_hint",
        "claim.before_commit",
        "dispatch.before_publish",
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
        "compute.after_run",
        "report.after_spool",
        "dispatch.after_publish",
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
)
"""Every point of the roles. Those of different processes go together: each process is then ended often, and
none so often that it is made to wait long before its next start."""

RARE = ("sweep.", "recover.")
"""Points that are reached only after another fault: they fire whenever they are reached."""


def planned(rng: random.Random, points: Sequence[str], action: str, nth_max: int = 4) -> list[str]:
    """A fault a point, each at one of the first times that a process reaches it."""
    return [
        f"{point}:{1 if point.startswith(RARE) else rng.randint(1, nth_max)}:{action}" for point in points
    ]

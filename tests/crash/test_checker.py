"""The checker is itself tested: with a safety taken out it finds the fault, every time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.adapters.celery_hints import CeleryHintPublisher
from interlock.hint import Hint
from tests.support.calling import Traffic, shell
from tests.support.checker import Finding, check
from tests.support.crashing import ONE, fire_all, hurt_system, settle
from tests.support.quiet import wait_until_quiet
from tests.support.running import REPO, RunningSystem
from tests.support.wait import until

SABOTAGE = str(Path(__file__).with_name("sabotage.py"))
LATE_BATCHES = 3
UNSETTLED_SECONDS = 5.0
"""How long a system that may never be quiet is given."""


def without(*what: str) -> tuple[str, ...]:
    """The program that starts `up` with these taken out."""
    return (SABOTAGE, ",".join(what), "up")


def findings_of(system: RunningSystem, traffic: Traffic) -> list[Finding]:
    """What the checker finds, be the system quiet or not."""
    traffic.close()
    try:
        wait_until_quiet(system.directory, traffic.calls, UNSETTLED_SECONDS)
    except AssertionError as error:
        print(error)
    return check(system.directory, traffic.calls, system.faulted_pids())


def found(findings: list[Finding], *invariants: str) -> bool:
    print(*findings[:20], sep="\n")
    return any(finding.invariant in invariants for finding in findings)


def test_with_the_claim_check_out_a_doubled_hint_is_found(rng: random.Random) -> None:
    with hurt_system(rng, replicas=ONE, program=without("claim_check"), producers=1) as (system, traffic):
        traffic.close()
        double_hints(system, traffic)
        assert found(findings_of(system, traffic), "I1", "I2", "I6")


def test_with_everything_in_place_a_doubled_hint_does_nothing(rng: random.Random) -> None:
    with hurt_system(rng, replicas=ONE, program=without(), producers=1) as (system, traffic):
        double_hints(system, traffic)
        assert settle(system, traffic) == []


def double_hints(system: RunningSystem, traffic: Traffic) -> None:
    """Calls that take a moment, each hint of which comes ten times."""
    publisher = CeleryHintPublisher(system.directory.broker_url)
    try:
        for place in range(4):
            [call] = traffic.send([shell("one", f"many-{place}", seconds=0.3)])
            publisher.publish([Hint("shell", (call.id,))] * 10)
    finally:
        publisher.close()


def test_with_the_permit_check_out_a_forged_permit_is_found(rng: random.Random) -> None:
    program = without("permit_check", "forged_permits")
    with hurt_system(rng, replicas=ONE, program=program, producers=0) as (system, traffic):
        [call] = traffic.send([shell("one", "forged")])
        findings = findings_of(system, traffic)
        assert (system.directory.workspaces / "one" / "effects").read_text().split() == [call.nonce]
        assert found(findings, "I6")


def test_with_the_sweep_out_a_lost_hint_is_found(rng: random.Random) -> None:
    program = without("sweep")
    with hurt_system(rng, replicas=ONE, program=program, plan=["claim.after_hint:1:kill"], times=3) as (
        system,
        traffic,
    ):
        fire_all(system, 3)
        assert found(findings_of(system, traffic), "I4")


def test_with_the_dedupe_out_a_doubled_event_is_found(rng: random.Random) -> None:
    with hurt_system(rng, replicas=ONE, program=without("dedupe", "doubled_entries")) as (system, traffic):
        until(lambda: len(traffic.calls) >= 20, 20, "some calls")
        assert found(findings_of(system, traffic), "I5")


def test_with_everything_in_place_a_doubled_event_does_nothing(rng: random.Random) -> None:
    with hurt_system(rng, replicas=ONE, program=without("doubled_entries")) as (system, traffic):
        until(lambda: len(traffic.calls) >= 20, 20, "some calls")
        assert settle(system, traffic) == []


@pytest.mark.parametrize(("taken_out", "is_found"), [("compare_and_set", True), ("", False)])
def test_of_two_projectors_a_late_one_is_found_without_the_compare_and_set(
    rng: random.Random, taken_out: str, is_found: bool
) -> None:
    with (
        hurt_system(rng, replicas=ONE, program=without(taken_out), producers=2) as (system, traffic),
        second_projector(system, taken_out) as late,
    ):
        until(lambda: late.exists() and len(late.read_text().split()) == LATE_BATCHES, 30, "it was late")
        if is_found:
            assert found(findings_of(system, traffic), "I5")
        else:
            assert settle(system, traffic) == []


@contextmanager
def second_projector(system: RunningSystem, taken_out: str) -> Iterator[Path]:
    """Another projector on the same views, which is late between reading and storing; where it says so."""
    late = system.fault_log.with_name("late")
    process = subprocess.Popen(
        [sys.executable, SABOTAGE, f"{taken_out},late_batches", "projector", str(system.directory.path)],
        env={**os.environ, **system.environment, "INTERLOCK_LATE_LOG": str(late)},
        cwd=REPO,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield late
    finally:
        process.terminate()
        process.wait(15)

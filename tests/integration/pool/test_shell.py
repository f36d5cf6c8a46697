"""The shell pool: effects run once, whatever dies around them, and their outcomes find their way."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gateway.start import POOL_DRAIN_SECONDS
from tests.integration.pool.serving import END_RUNNING
from tests.integration.pool.system import PoolSystem
from tests.support.permitted import body_of, cancel, phase_of, types_of
from tests.support.wait import until
from workers.pool import END_RUNNING_SECONDS, STOP_GRACE_SECONDS

WRITE = {"argv": ["/bin/sh", "-c", "echo effect >> effects.txt"]}


def effects(system: PoolSystem) -> int:
    file = workspace(system) / "effects.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def workspace(system: PoolSystem) -> Path:
    return system.directory.workspaces / "s"


def started(system: PoolSystem, file: str = "began") -> bool:
    return (workspace(system) / file).exists()


def long_run(seconds: int) -> dict[str, list[str]]:
    return {"argv": ["/bin/sh", "-c", f"touch began; sleep {seconds}; echo effect >> effects.txt"]}


def test_a_program_runs_in_its_sandbox(sandboxed: PoolSystem) -> None:
    pool = sandboxed.start_pool("shell")
    identifier = sandboxed.ask("shell.run", WRITE)
    sandboxed.publish("shell", identifier)
    assert sandboxed.outcome(identifier) == "done"
    receipt = body_of(sandboxed.ledger, identifier, "ToolExecutionCompleted")["sealed"]["receipt"]
    assert receipt["exit_code"] == 0
    assert receipt["sandbox"]["strength"] == "N"
    assert [entity["name"] for entity in receipt["affected_entities"]] == ["effects.txt"]
    assert body_of(sandboxed.ledger, identifier, "ToolExecutionStarted")["sandbox"]["strength"] == "N"
    assert effects(sandboxed) == 1
    assert sandboxed.end(pool) == 0


def test_a_stopping_pool_finishes_what_runs_and_claims_nothing_new(sandboxed: PoolSystem) -> None:
    pool = sandboxed.start_pool("shell")
    first = sandboxed.ask("shell.run", long_run(1))
    sandboxed.publish("shell", first)
    until(lambda: started(sandboxed), 30, "it runs")
    pool.send_signal(signal.SIGTERM)
    second = sandboxed.ask("shell.run", WRITE, stage="second")
    sandboxed.publish("shell", second)
    assert pool.wait(60) == 0
    assert types_of(sandboxed.ledger, first)[-1] == "ToolExecutionCompleted"
    assert phase_of(sandboxed.ledger, second) == "queued"
    assert effects(sandboxed) == 1


def test_a_cancelled_program_is_ended(sandboxed: PoolSystem) -> None:
    sandboxed.start_pool("shell")
    identifier = sandboxed.ask("shell.run", long_run(60))
    sandboxed.publish("shell", identifier)
    until(lambda: started(sandboxed), 30, "it runs")
    cancel(sandboxed.ledger, identifier)
    assert sandboxed.outcome(identifier, 5) == "done"
    assert body_of(sandboxed.ledger, identifier, "ToolExecutionFailed")["failure"]["code"] == "CANCELLED"
    assert effects(sandboxed) == 0


@pytest.mark.parametrize("point", ["report.after_spool", "report.before_commit", "report.after_commit"])
def test_an_outcome_that_was_spooled_survives_its_pool(sandboxed: PoolSystem, point: str) -> None:
    pool = sandboxed.start_pool("shell", INTERLOCK_TESTING="1", INTERLOCK_FAULT=f"{point}:1:kill")
    identifier = sandboxed.ask("shell.run", WRITE)
    sandboxed.publish("shell", identifier)
    assert pool.wait(60) == -signal.SIGKILL
    sandboxed.start_pool("shell")
    assert sandboxed.outcome(identifier) == "done"
    assert types_of(sandboxed.ledger, identifier)[2:] == ["ToolExecutionStarted", "ToolExecutionCompleted"]
    assert effects(sandboxed) == 1


def test_what_a_supervisor_knows_after_its_pools_death_is_brought_in(sandboxed: PoolSystem) -> None:
    pool = sandboxed.start_pool("shell")
    identifier = sandboxed.ask("shell.run", long_run(60))
    sandboxed.publish("shell", identifier)
    until(lambda: started(sandboxed), 30, "it runs")
    sandboxed.end(pool, signal.SIGKILL)
    sandboxed.start_pool("shell")
    assert sandboxed.outcome(identifier) == "done"
    failure = body_of(sandboxed.ledger, identifier, "ToolExecutionFailed")["failure"]
    assert (failure["code"], failure["began"]) == ("LEASE_LOST", True)
    assert effects(sandboxed) == 0


def test_a_pool_without_its_spawner_ends(sandboxed: PoolSystem) -> None:
    pool = sandboxed.start_pool("shell")
    children = Path(f"/proc/{pool.pid}/task/{pool.pid}/children").read_text().split()
    import os

    os.kill(int(children[0]), signal.SIGKILL)
    assert pool.wait(60) == 1


def test_one_slot_serves_while_another_is_busy(sandboxed: PoolSystem) -> None:
    sandboxed.start_pool("shell")
    slow = sandboxed.ask("shell.run", long_run(60))
    sandboxed.publish("shell", slow)
    until(lambda: started(sandboxed), 30, "it runs")
    quick = [sandboxed.ask("shell.run", WRITE, stage=f"q{n}") for n in range(3)]
    for identifier in quick:
        sandboxed.publish("shell", identifier)
    assert [sandboxed.outcome(identifier) for identifier in quick] == ["done"] * 3
    assert phase_of(sandboxed.ledger, slow) == "running"
    cancel(sandboxed.ledger, slow)
    sandboxed.outcome(slow)


def test_a_stopping_pool_ends_in_time_what_runs_and_records_it(sandboxed: PoolSystem) -> None:
    assert END_RUNNING_SECONDS + STOP_GRACE_SECONDS < POOL_DRAIN_SECONDS
    pool = sandboxed.start_pool("shell", **{END_RUNNING: "1"})
    identifier = sandboxed.ask("shell.run", long_run(60))
    sandboxed.publish("shell", identifier)
    until(lambda: started(sandboxed), 30, "it runs")
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(POOL_DRAIN_SECONDS) == 0
    assert phase_of(sandboxed.ledger, identifier) == "done"
    failure = body_of(sandboxed.ledger, identifier, "ToolExecutionFailed")["failure"]
    assert (failure["code"], failure["began"]) == ("CANCELLED", True)
    assert "POOL_STOPPING" in failure["sentence"]
    assert effects(sandboxed) == 0

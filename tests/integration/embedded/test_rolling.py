"""A rolling restart of real processes: the replacement is ready before the old one is asked to stop."""

from __future__ import annotations

import os
import signal
from typing import Any

from gateway.embedded.control import ask
from tests.integration.embedded.started import StartSystem, System
from tests.support.wait import until

IN_ORDER = ["projector", "scheduler", "pool-pure", "pool-fs", "pool-shell", "pool-network", "governor"]


def restart(system: System, *roles: str) -> dict[str, Any]:
    """Ask for it and wait until it is over; what became of it."""
    answer = ask(system.directory, {"do": "restart", "roles": list(roles)})
    assert answer["ok"], answer
    said: dict[str, Any] = {}

    def is_over() -> bool:
        found: Any = ask(system.directory, {"do": "status"})["restart"]
        said.update(found)
        return bool(found["over"])

    until(is_over, 30, "the restart is over")
    return said


def test_every_role_is_replaced_in_order_and_none_counts_as_having_failed(start_system: StartSystem) -> None:
    system = start_system().wait_ready()
    before = system.status()

    said = restart(system)

    after = system.status()
    assert [step["role"] for step in said["roles"]] == IN_ORDER
    assert {step["state"] for step in said["roles"]} == {"done"}
    for step in said["roles"]:
        name = step["role"]
        assert (step["old_pid"], step["new_pid"]) == (before[name]["pid"], after[name]["pid"])
        assert step["old_pid"] != step["new_pid"]
        assert after[name]["ready"]
        assert after[name]["restarts"] == 0
    assert after["broker"]["pid"] == before["broker"]["pid"]
    assert (system.directory.run / "ended").read_text().split() == IN_ORDER


def test_an_old_process_that_does_not_stop_is_ended_after_its_drain_time(start_system: StartSystem) -> None:
    system = start_system("stubborn").wait_ready()

    said = restart(system, "stubborn")

    assert [step["state"] for step in said["roles"]] == ["done"]
    assert said["roles"][0]["drained_ms"] >= 200


def test_one_that_dies_while_its_replacement_starts_is_replaced_all_the_same(
    start_system: StartSystem,
) -> None:
    system = start_system().wait_ready()
    old = system.role_pid("governor")
    answer = ask(system.directory, {"do": "restart", "roles": ["governor"]})
    assert answer["ok"]
    os.kill(old, signal.SIGKILL)

    until(lambda: system.status()["governor"]["pid"] not in (None, old), 20, "another one serves")


def test_what_is_no_role_or_has_to_run_alone_is_refused(start_system: StartSystem) -> None:
    system = start_system().wait_ready()

    nobody = ask(system.directory, {"do": "restart", "roles": ["nobody"]})
    broker = ask(system.directory, {"do": "restart", "roles": ["broker"]})

    assert (nobody["ok"], nobody["code"]) == (False, "USAGE")
    assert (broker["ok"], broker["code"]) == (False, "USAGE")


def test_a_stop_in_the_middle_of_a_restart_leaves_nothing(start_system: StartSystem) -> None:
    system = start_system("stubborn").wait_ready()
    assert ask(system.directory, {"do": "restart", "roles": ["stubborn", "governor"]})["ok"]
    os.kill(system.pid, signal.SIGTERM)

    status, _, _ = system.wait_end(30)

    assert status == 0  # and the fixture finds what outlives it


def test_a_hangup_of_a_role_changes_nothing(start_system: StartSystem) -> None:
    system = start_system().wait_ready()
    before = system.status()
    for role in before.values():
        if role["name"] != "broker":
            os.kill(int(str(role["pid"])), signal.SIGHUP)

    restart(system, "projector")

    after = system.status()
    assert {name for name in after if after[name]["pid"] != before[name]["pid"]} == {"projector"}

"""A producer that is killed while it proposes, and asks again under the same id, has one invocation."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.calling import Call, Fate, shell
from tests.support.crashing import FIRINGS_MIN, ONE, hurt_system, settle
from tests.support.running import REPO, RunningSystem

CLIENT = Path(__file__).with_name("client.py")
POINTS = ("client.before_send", "client.after_send")


def propose(system: RunningSystem, call: Call, plan: dict[str, str]) -> int:
    """Let a process propose this call; its exit status."""
    argv: list[str] = call.arguments["argv"]  # type: ignore[assignment]  # made by `shell`
    command = [sys.executable, str(CLIENT), system.directory.broker_client_url, call.id, argv[-1]]
    environment = {**os.environ, "INTERLOCK_TESTING": "1", **plan}
    return subprocess.run(command, env=environment, cwd=REPO, timeout=30, check=False).returncode


def test_a_killed_producer_that_asks_again_has_one_invocation(rng: random.Random) -> None:
    with hurt_system(rng, producers=1, replicas=ONE) as (system, traffic):
        for point in POINTS:
            call = shell("one", "client")
            traffic.note(call)
            for _ in range(FIRINGS_MIN):
                plan = system.plan([f"{point}:1:kill"], FIRINGS_MIN)
                assert propose(system, call, plan) == -signal.SIGKILL
            assert propose(system, call, {}) == 0
            call.fate = Fate.OK
        assert settle(system, traffic) == []
        fired = [firing.point for firing in system.firings()]
        assert fired == [point for point in POINTS for _ in range(FIRINGS_MIN)]

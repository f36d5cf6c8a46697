"""Ways in which a running system is hurt from outside, each by its name. What is stopped is woken again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from contextlib import closing

from gateway.embedded.control import ask
from interlock.adapters.redis_client import connect
from interlock.errors import NotRunningError
from tests.support.running import RunningSystem
from tests.support.wait import until

HURTS = ("kill", "kill", "kill", "freeze", "broker", "empty", "restart", "whole", "rest")
FROZEN_SECONDS = 3.0
RESTED_SECONDS = 1.0


def hurt(system: RunningSystem, name: str, rng: random.Random) -> None:
    """Do this once, and wait until it can be done again."""
    if name == "rest":
        threading.Event().wait(RESTED_SECONDS)
    elif name == "whole":
        system.kill()
        until(lambda: not system.pids(), 30, "nothing of it lives")
        system.start()
    elif name == "broker":
        system.wait_restarted("broker", system.kill_role("broker"))
    elif name == "empty":
        _empty(system)
    elif name == "restart":
        _restart(system, rng)
    elif name == "freeze":
        _freeze(system, _some_role(system, rng))
    else:
        role = _some_role(system, rng)
        system.wait_restarted(role, system.kill_role(role))


def _some_role(system: RunningSystem, rng: random.Random) -> str:
    until(system.roles, 20, "roles run")
    return rng.choice(sorted(name for name in system.roles() if name != "broker"))


def _freeze(system: RunningSystem, role: str) -> None:
    """Stop a process for longer than its lease, with everything below it that it could serve by."""
    pid = system.kill_role(role, signal.SIGSTOP)
    threading.Event().wait(FROZEN_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _restart(system: RunningSystem, rng: random.Random) -> None:
    """A rolling restart of some role; what is replaced is hurt by nobody."""
    with contextlib.suppress(NotRunningError):
        ask(system.directory, {"do": "restart", "roles": [_some_role(system, rng)]})


def _empty(system: RunningSystem) -> None:
    def is_emptied() -> bool:
        try:
            with closing(connect(system.directory.broker_client_url)) as client:
                return bool(client.flushall())
        except Exception:  # noqa: BLE001 - it is being started
            return False

    until(is_emptied, 30, "the broker is emptied")

"""A pool as a process of its own: starts the spawner first, then carries out calls that come on stdin.

One JSON object a line: `{"id", "call", "claim_holds"}` begins a call in a thread, `{"id", "stop"}` stops it;
each outcome is answered by `{"id", "outcome", "asked"}`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from workers.supervisor.port import NotStarted
from workers.supervisor.probe import find_sandbox
from workers.supervisor.profile import EgressEntry, Settings
from workers.supervisor.report import decode_call, encode_outcome
from workers.supervisor.spawned import SpawnedSupervisor
from workers.supervisor.spawner import start_spawner


class Driver:
    """Runs each call in a thread of its own."""

    def __init__(self, supervisor: SpawnedSupervisor) -> None:
        self._supervisor = supervisor
        self._reasons: dict[int, str] = {}
        self._lock = threading.Lock()

    def obey(self, order: dict[str, Any]) -> None:
        if "stop" in order:
            self._reasons[order["id"]] = order["stop"]
        else:
            threading.Thread(target=self._carry_out, args=(order,), daemon=True).start()

    def answer(self, **fields: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(fields) + "\n")
            sys.stdout.flush()

    def _carry_out(self, order: dict[str, Any]) -> None:
        number, asked = order["id"], []

        def before_effect() -> bool:
            asked.append("before_effect")
            return bool(order["claim_holds"])

        call = decode_call(order["call"])
        outcome = self._supervisor.execute(call, lambda: self._reasons.get(number), before_effect)
        self.answer(id=number, outcome=encode_outcome(outcome), asked=asked)


def main() -> None:
    """Starts as the settings in argv say and serves until stdin ends."""
    given = json.loads(sys.argv[1])
    found = find_sandbox()
    lock_fd = os.open(given["lock"], os.O_RDWR | os.O_CREAT, 0o600) if given["lock"] else None
    if lock_fd is not None:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # A descriptor of the pool's that every child would inherit if nobody took care.
    leak = os.open(given["canary"], os.O_RDONLY)
    os.set_inheritable(leak, True)
    settings = Settings(
        found,
        tuple(EgressEntry(host, port, tuple(networks)) for host, port, networks in given["egress"]),
        Path(given["orphans"]),
        lock_fd,
    )
    supervisor = start_spawner(settings)
    driver = Driver(supervisor)
    report = None if isinstance(found, NotStarted) else found.report.layers
    refusal = [found.code, found.message] if isinstance(found, NotStarted) else None
    driver.answer(id=0, spawner_pid=supervisor.spawner_pid, layers=report, refusal=refusal)
    for line in sys.stdin:
        driver.obey(json.loads(line))


if __name__ == "__main__":
    main()

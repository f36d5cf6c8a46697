"""`shell.run true` through a pool's supervisor beside a plain subprocess, in turns; a program of its own.

The spawner has to be forked before any thread, so this runs in a fresh process and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figure import percentile
from workers.supervisor.port import PROCESS_SPAWN, SHELL_EXEC, Call, Completed, NotStarted
from workers.supervisor.probe import find_sandbox
from workers.supervisor.profile import Settings
from workers.supervisor.spawned import SpawnedSupervisor
from workers.supervisor.spawner import start_spawner

START_WITHIN_NS = 10_000_000_000
WARM_UP = 3


def main(arguments: list[str]) -> None:
    """`FOLDER COUNT`."""
    folder, count = Path(arguments[0]), int(arguments[1])
    sandbox = find_sandbox()
    plain_ms: list[float] = []
    held_ms: list[float] = []
    reason = ""
    lock = os.open(folder / "sandbox.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    orphans, workspace = folder / "orphans", folder / "workspace"
    orphans.mkdir()
    workspace.mkdir()
    if isinstance(sandbox, NotStarted):
        reason = f"{sandbox.code}: {sandbox.message}"
    with start_spawner(Settings(sandbox, (), orphans, lock)) as supervisor:
        for number in range(-WARM_UP, count):
            plain = _plain()
            held = 0.0 if reason else _held(supervisor, workspace, number)
            if number >= 0:
                plain_ms.append(plain)
                held_ms.append(held)
    print(
        json.dumps(
            {
                "sandboxed_p50_ms": None if reason else round(percentile(held_ms, 50), 3),
                "plain_p50_ms": round(percentile(plain_ms, 50), 3),
                "reason": reason,
            }
        )
    )


def _plain() -> float:
    began = time.perf_counter()
    subprocess.run(["/usr/bin/true"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return (time.perf_counter() - began) * 1_000


def _held(supervisor: SpawnedSupervisor, workspace: Path, number: int) -> float:
    call = Call(
        invocation_id=f"bench-{number}",
        tool="shell.run",
        arguments={"argv": ["true"]},
        session_id="bench",
        workspace=workspace,
        capabilities=frozenset((SHELL_EXEC, PROCESS_SPAWN)),
        wall_limit_ms=20_000,
        output_limit_bytes=1_048_576,
        start_by_boottime_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME) + START_WITHIN_NS,
        claim=f"claim-{number}",
    )
    began = time.perf_counter()
    outcome = supervisor.execute(call, lambda: None, lambda: True)
    taken = (time.perf_counter() - began) * 1_000
    if not isinstance(outcome, Completed) or outcome.exit_code != 0:
        raise RuntimeError(f"true did not run: {outcome}")
    return taken


if __name__ == "__main__":
    main(sys.argv[1:])

"""Finds out, by running one, whether this machine can hold a sandbox, and how strongly.

The presence of a program proves nothing, so a canary is laid out and a sandbox is told to read it. The
answer is a proven sandbox or a refusal; there is no third.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from workers.adapters.bubblewrap import find_interpreter, find_launcher
from workers.supervisor.port import Call, Completed, NotStarted, Outcome, SandboxReport
from workers.supervisor.profile import SANDBOX_UID, Sandbox, Settings
from workers.supervisor.spawner import start_spawner
from workers.tools.table import SELF_TEST

_WALL_LIMIT_MS = 10_000
_REMEDY = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces and "
    "kernel.apparmor_restrict_unprivileged_userns, the container's seccomp profile) "
    "or install the system's bubblewrap package"
)
_NAMESPACES = tuple(f"namespace:{name}" for name in ("user", "mount", "pid", "net", "ipc", "uts", "cgroup"))


def probe_sandbox() -> SandboxReport | NotStarted:
    """The layers that held in a sandbox just run here, or why tools cannot run at all."""
    found = find_sandbox()
    return found.report if isinstance(found, Sandbox) else found


def find_sandbox() -> Sandbox | NotStarted:
    """The strongest sandbox that proves itself here. Call it in the main thread, before any other starts."""
    launcher = find_launcher()
    if isinstance(launcher, NotStarted):
        return launcher
    interpreter, prefix = find_interpreter()
    refusal = NotStarted("SANDBOX_UNAVAILABLE", _REMEDY)
    for deny_user_namespaces in (True, False):
        candidate = Sandbox(launcher, interpreter, prefix, deny_user_namespaces, SandboxReport("N"))
        proven = _proven(candidate)
        if isinstance(proven, Sandbox):
            return proven
        refusal = proven
    return refusal


def _proven(candidate: Sandbox) -> Sandbox | NotStarted:
    with _canary() as (path, port):
        outcome = _run_self_test(candidate, {"canary": path, "port": port, "uid": SANDBOX_UID})
    if not isinstance(outcome, Completed):
        return NotStarted("SANDBOX_UNAVAILABLE", f"{outcome.message}; {_REMEDY}")
    held = outcome.output["held"]
    broken = sorted(name for name, is_held in held.items() if not is_held)
    if broken:
        return NotStarted("SANDBOX_UNAVAILABLE", f"the sandbox did not hold: {', '.join(broken)}; {_REMEDY}")
    layers = _layers(candidate, outcome.output)
    return dataclasses.replace(candidate, report=SandboxReport("N", layers))


def _layers(candidate: Sandbox, output: dict[str, object]) -> tuple[str, ...]:
    denied = ("namespaces-denied",) if output["denies_namespaces"] else ()
    lent = (f"interpreter-of-ours:{candidate.interpreter_prefix}",) if candidate.interpreter_prefix else ()
    return ("bubblewrap", *_NAMESPACES, "no-new-privileges", "no-capabilities", *denied, "rlimits", *lent)


def _run_self_test(candidate: Sandbox, arguments: dict[str, object]) -> Outcome:
    call = Call(
        invocation_id=SELF_TEST,
        tool=SELF_TEST,
        arguments=arguments,
        session_id=SELF_TEST,
        workspace=None,
        capabilities=frozenset(),
        wall_limit_ms=_WALL_LIMIT_MS,
        output_limit_bytes=65_536,
        start_by_boottime_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME) + _WALL_LIMIT_MS * 1_000_000,
    )
    with start_spawner(Settings(candidate, is_self_test=True)) as supervisor:
        return supervisor.execute(call, lambda: None)


@contextmanager
def _canary() -> Iterator[tuple[str, int]]:
    """A file and a port that everybody on this machine can reach, and nobody in a sandbox."""
    with (
        tempfile.TemporaryDirectory(prefix="interlock-canary-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "canary")
        with open(path, "x", encoding="ascii") as file:
            file.write("canary")
        yield path, server.getsockname()[1]

"""`shell.run`: a program and its arguments as an array, in the sandbox. Builds no shell string, ever."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from workers.supervisor.launch import Program
from workers.supervisor.port import FILE_READ, AffectedEntity, Call
from workers.supervisor.watch import Ran
from workers.tools.path import refused_path
from workers.tools.plan import Answer, Refusal
from workers.tools.snapshot import (
    Changes,
    ScanBounds,
    Snapshot,
    changes_between,
    take_snapshot,
)

_SIGNALS = range(129, 129 + 64)
_NOT_FOUND = re.compile(rb"^bwrap: execvp ", re.MULTILINE)
_NO_FOLDER = re.compile(rb"^bwrap: Can't chdir to ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ShellPlan:
    """One `shell.run`, with the workspace as it was before."""

    call: Call
    launch: Program
    wall_limit_ms: int
    before: Snapshot
    bounds: ScanBounds

    def conclude(self, ran: Ran) -> Answer | Refusal:
        """The program's own end, whatever its exit code."""
        if ran.exit_code is None:
            return _not_reached(ran, self.launch)
        changes = self._changes()
        truncated = {"stdout": ran.stdout.truncated, "stderr": ran.stderr.truncated}
        truncated["changed_files"] = not changes.is_whole
        flags = tuple(name for name, cut in truncated.items() if cut)
        metrics = {"stdout_bytes": ran.stdout.size_bytes, "stderr_bytes": ran.stderr.size_bytes}
        return Answer(ran.exit_code, _output(ran, changes), changes.entities, metrics, flags)

    def affected(self) -> tuple[AffectedEntity, ...]:
        """What a program that was ended had changed by then."""
        return self._changes().entities

    def _changes(self) -> Changes:
        if FILE_READ not in self.call.capabilities:
            return Changes()
        after = take_snapshot(self.call.workspace, self.bounds, self.before)
        return changes_between(self.before, after, self.bounds)


def plan_shell(call: Call) -> ShellPlan | Refusal:
    """The plan of one call; looks at the workspace as it is now."""
    arguments = call.arguments
    folder = arguments.get("cwd", "")
    if any("\0" in word for word in arguments["argv"]) or not arguments["argv"][0]:
        return Refusal("SCHEMA_INVALID", "argv has an empty program name or a word with a NUL")
    if folder and (refusal := refused_path(folder)):
        return Refusal("PATH_INVALID", f"cwd: {refusal}")
    program = Program(tuple(arguments["argv"]), arguments.get("stdin", "").encode(), folder)
    wall_limit_ms = min(call.wall_limit_ms, arguments.get("timeout_ms", call.wall_limit_ms))
    bounds = ScanBounds()
    root = call.workspace if FILE_READ in call.capabilities else None
    return ShellPlan(call, program, wall_limit_ms, take_snapshot(root, bounds), bounds)


def _not_reached(ran: Ran, program: Program) -> Refusal:
    said = ran.stderr.kept.decode(errors="replace").strip()
    if _NOT_FOUND.search(ran.stderr.kept):
        return Refusal("TOOL_FAILED", f"{program.argv[0]!r} cannot be run: {said}")
    if _NO_FOLDER.search(ran.stderr.kept):
        return Refusal("TOOL_FAILED", f"cwd {program.folder!r}: {said}")
    return Refusal("SANDBOX_SETUP_FAILED", said or "the sandbox ended before the program began")


def _output(ran: Ran, changes: Changes) -> dict[str, Any]:
    # As a shell tells it: a code above 128 stands for the signal that ended the program.
    signal = ran.exit_code - 128 if ran.exit_code in _SIGNALS and ran.exit_code else None
    return {
        "exit_code": ran.exit_code,
        "signal": signal,
        "duration_ms": ran.duration_ms,
        "stdout": ran.stdout.described(),
        "stderr": ran.stderr.described(),
        "changed_files": [change.described() for change in changes.changes],
        "changed_files_truncated": not changes.is_whole,
    }

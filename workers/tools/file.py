"""`fs.list`, `fs.read`, `fs.write`: our own small program, inside the same sandbox as any other tool."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.supervisor.launch import Program
from workers.supervisor.port import AffectedEntity, Call
from workers.supervisor.profile import PROGRAM_INSIDE
from workers.supervisor.report import plain, to_bytes
from workers.supervisor.watch import Ran
from workers.tools.path import refused_path
from workers.tools.plan import Answer, Refusal
from workers.tools.snapshot import UNREAD

FILE_TOOLS = ("fs.list", "fs.read", "fs.write")
_WRITING = ("fs.write",)
"""Which of them change the file at `path`, and answer with its digest before and after."""
_OF_FOLDERS = ("fs.list",)
"""Which of them may be asked for the workspace itself."""
_SCRIPT = Path(__file__).with_name("program.py")


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One call of a file tool."""

    call: Call
    launch: Program
    wall_limit_ms: int

    def conclude(self, ran: Ran) -> Answer | Refusal:
        """The program's answer; its refusals have changed nothing."""
        if ran.exit_code is None:
            said = ran.stderr.kept.decode(errors="replace").strip()
            return Refusal("SANDBOX_SETUP_FAILED", said or "the sandbox ended before the program began")
        answer = _parsed(ran)
        if answer is None:
            began = self.call.tool in _WRITING
            return Refusal("OUTPUT_INVALID", "the file program's answer is cut or is no JSON object", began)
        if "error" in answer:
            return Refusal(answer["error"]["code"], answer["error"]["message"])
        return self._answer(answer["output"])

    def affected(self) -> tuple[AffectedEntity, ...]:
        """A write that was ended may have happened: the file is named, its content was not read."""
        if self.call.tool not in _WRITING:
            return ()
        return (AffectedEntity("file", self.call.arguments["path"], UNREAD, UNREAD),)

    def _answer(self, output: dict[str, Any]) -> Answer:
        flags = ("output",) if output.get("truncated") else ()
        return Answer(0, output, _written(output), {}, flags)


def plan_file(call: Call, interpreter: str) -> FilePlan | Refusal:
    """The plan of one call; `interpreter` is the sandbox's Python."""
    path = call.arguments.get("path", ".")
    if refusal := refused_path(path):
        return Refusal("PATH_INVALID", refusal)
    if call.tool not in _OF_FOLDERS and path == ".":
        return Refusal("PATH_INVALID", "names no file")
    request = to_bytes({"tool": call.tool, "arguments": plain(call.arguments)})
    argv = (interpreter, "-I", "-S", "-B", PROGRAM_INSIDE)
    program = Program(argv, request, script=_SCRIPT.read_bytes())
    return FilePlan(call, program, call.wall_limit_ms)


def _parsed(ran: Ran) -> dict[str, Any] | None:
    if ran.exit_code != 0 or ran.stdout.truncated:
        return None
    try:
        answer = json.loads(ran.stdout.kept)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and answer.keys() & {"output", "error"} else None


def _written(output: dict[str, Any]) -> tuple[AffectedEntity, ...]:
    if "sha256_after" not in output:
        return ()
    before, after = (output[name] and f"sha256:{output[name]}" for name in ("sha256_before", "sha256_after"))
    return (AffectedEntity("file", output["path"], before, after),)

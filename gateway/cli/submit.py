"""`submit`: proposes one invocation, or many from a file, and says what became of it.

What stands in --args is handed on as the text it is: governance reads it, so every way in gives one verdict.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.file import open_named
from gateway.cli.option import AsJson, Data
from gateway.cli.output import standard_output
from gateway.cli.place import enter_running
from interlock.errors import UsageError


class Mode(StrEnum):
    """How far it may go without asking."""

    locked = "locked"
    observe = "observe"
    edit = "edit"
    operate = "operate"


SUBJECT = "agent"
"""On whose behalf, unless told otherwise."""
DEADLINE_SECONDS_MAX = 365 * 86_400

_Tool = Annotated[str | None, typer.Argument(metavar="TOOL", help="`name`, or `catalogue/name`.")]
_Text = Annotated[
    str | None,
    typer.Option("--args", metavar="JSON", help="The arguments as JSON text; - reads standard input."),
]
_Batch = Annotated[
    Path | None,
    typer.Option("--batch", metavar="FILE", help="Many: a JSON object a line; - reads standard input."),
]


def submit(
    tool: _Tool = None,
    arguments: _Text = None,
    batch: _Batch = None,
    session: Annotated[str | None, typer.Option("--session", metavar="S")] = None,
    stage: Annotated[str | None, typer.Option("--stage", metavar="G")] = None,
    subject: Annotated[str, typer.Option("--subject", metavar="U", help="On whose behalf.")] = SUBJECT,
    mode: Annotated[Mode | None, typer.Option("--mode", help="A lower mode for this one.")] = None,
    route: Annotated[str | None, typer.Option("--route", metavar="R")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="K", help="Idempotency key.")] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="0-9", min=0, max=9, help="0 is first.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option("--deadline", metavar="SECONDS", help="Reject it, or end it, after this.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", help="A wanted repetition.")] = 0,
    invocation_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its id: a new UUIDv7; else one is made.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait this long for the outcome.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Fail for a program's exit code too.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Propose an invocation. Exit codes: 0 completed (without --wait: accepted), 3 parked, 4 rejected,
    5 failed, 6 outcome unknown; 1 where nothing is known, 2 for wrong usage."""
    output = standard_output(as_json)
    said = {
        "session": session,
        "stage": stage,
        "subject": subject,
        "mode": None if mode is None else mode.value,
        "route": route,
        "priority": priority,
        "deadline_ms": _milliseconds(deadline),
    }
    common = {name: value for name, value in said.items() if value is not None}
    if batch is not None:
        if tool is not None or arguments is not None or key is not None or invocation_id is not None:
            raise UsageError("--batch takes tool, arguments, key and id from its lines")
        lines = open_named(batch)  # before root is given up: the file belongs to whoever called
        directory = enter_running(data)
        from gateway.cli.batch import submit_lines

        return submit_lines(directory, lines, common, output, wait=wait, check=check)
    if tool is None or arguments is None:
        raise UsageError("submit needs TOOL and --args, or --batch")
    text = _text(arguments)
    own = {"key": key, "repeat": repeat or None, "id": invocation_id}
    fields = {**common, **{name: value for name, value in own.items() if value is not None}}
    directory = enter_running(data)
    from gateway.cli.batch import submit_one

    return submit_one(directory, {**fields, "tool": tool}, text, output, wait=wait, check=check)


def _milliseconds(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not 0 < seconds <= DEADLINE_SECONDS_MAX:
        raise UsageError(f"--deadline is more than 0 and at most {DEADLINE_SECONDS_MAX} seconds")
    return max(1, round(seconds * 1_000))


def _text(arguments: str) -> str:
    """The text of the arguments as bytes came in: what is not UTF-8 is refused rather than changed."""
    if arguments == "-":
        raw = sys.stdin.buffer.read()
    else:
        raw = arguments.encode("utf-8", "surrogateescape")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--args is not UTF-8 at byte {error.start}") from error

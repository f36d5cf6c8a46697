"""`restart`: replaces the processes of a running system one after the other, with nothing turned away.

The system itself does it; this command asks, and tells how far it is.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.option import AsJson, Data
from gateway.cli.output import Output, standard_output
from gateway.cli.place import enter
from gateway.cli.verdict import Exit
from interlock.errors import RetryLaterError, UsageError

LOOK_SECONDS = 0.05
ENDED = frozenset(("done", "failed", "left"))


def restart(
    role: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ROLE...]", help="Roles as `doctor` names them; without one, all."),
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Replace roles of the running system one by one; each replacement is ready before the old one stops."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.embedded.control import ask

    answer: Any = ask(directory, {"do": "restart", "roles": role or []})
    if not answer.get("ok"):
        raise _refused(answer)
    number, told = answer["restart"]["number"], 0
    while True:
        status: Any = ask(directory, {"do": "status"})
        progress = status["restart"]
        if progress is None or progress["number"] != number:
            raise RetryLaterError("NOT_READY", "another restart was asked for meanwhile")
        told = _tell(output, progress["roles"], told)
        if progress["over"]:
            break
        output.wait(LOOK_SECONDS)
    ok = all(step["state"] == "done" for step in progress["roles"])
    if as_json:
        output.json({"ok": ok, "roles": progress["roles"]})
    return Exit.OK if ok else Exit.ERROR


def _refused(answer: Any) -> Exception:
    if answer.get("code") == "USAGE":
        return UsageError(answer["error"])
    return RetryLaterError("NOT_READY", str(answer.get("error")))


def _tell(output: Output, steps: list[Any], told: int) -> int:
    """A line for each whose turn is over since the last look; how many lines there are by now."""
    ended = [step for step in steps if step["state"] in ENDED]
    for step in ended[told:]:
        output.text(_line(step))
    return len(ended)


def _line(step: Any) -> str:
    if step["state"] == "done":
        return (
            f"{step['role']}: process {step['old_pid']} replaced by {step['new_pid']}, "
            f"ready after {step['ready_ms']} ms, drained after {step['drained_ms']} ms"
        )
    if step["state"] == "failed":
        return f"{step['role']}: the replacement did not become ready; process {step['old_pid']} serves on"
    return f"{step['role']}: left as it is"

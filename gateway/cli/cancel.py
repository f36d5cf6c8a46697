"""`cancel`: asks for the end of invocations; what runs is ended by its own supervisor."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from gateway.cli.name import as_called
from gateway.cli.option import AsJson, Data, Ids
from gateway.cli.output import complain, standard_output
from gateway.cli.place import enter_running, require_owner
from gateway.cli.verdict import Exit
from interlock.errors import GiveUpError, NotFoundError

_Reason = Annotated[str, typer.Option("--reason", metavar="R", help="Why.")]


def cancel(ids: Ids, reason: _Reason = "", data: Data = None, as_json: AsJson = False) -> int:
    """Ask for the end of invocations; 1 where one of them does not exist."""
    output = standard_output(as_json)
    directory = enter_running(data)
    require_owner(directory)
    from gateway.reading import open_for_writing
    from gateway.wiring import publish_hints, wake_relay
    from governance.cancel import cancel as ask_for_end
    from governance.line import Line
    from governance.principal import LOCAL_OPERATOR
    from interlock.settings import settings_from

    try:
        line = Line(settings_from(os.environ))
    except ValueError as error:
        raise GiveUpError("CONFIG_INVALID", str(error)) from error
    results: list[dict[str, Any]] = []
    with open_for_writing(directory) as ledger:
        for invocation_id in ids:
            done = ask_for_end(ledger, line, invocation_id, by=f"operator:{LOCAL_OPERATOR}", reason=reason)
            if done is not None:
                publish_hints(directory, done.hints)
            results.append(_line(invocation_id, done))
    wake_relay(directory)
    if as_json:
        output.json({"cancelled": results})
    for result in results:
        if result["found"]:
            output.text(f"{result['invocation_id']}  {result['phase']}{_note(result)}")
        else:
            complain(str(NotFoundError("invocation", result["invocation_id"])))
    return Exit.OK if all(result["found"] for result in results) else Exit.ERROR


def _line(invocation_id: str, done: Any) -> dict[str, Any]:
    return {
        "invocation_id": invocation_id,
        "found": done is not None,
        "phase": None if done is None else done.phase,
        "already_final": done is not None and done.already_final,
    }


def _note(result: dict[str, Any]) -> str:
    if result["already_final"]:
        return ", it had ended before"
    if result["phase"] == "reconciliation_required":
        return as_called(
            ", it cannot be cancelled: whether it happened has to be found out, "
            f"`interlock reconcile show {result['invocation_id']}`"
        )
    return ", its supervisor will end it" if result["phase"] == "running" else ""

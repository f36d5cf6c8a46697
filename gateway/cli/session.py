"""`sessions`: opens one with its mode and owner, shows what happened in it, closes it to new proposals."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.cli.option import AsJson, Data, Tenant
from gateway.cli.output import standard_output
from gateway.cli.place import enter, enter_running, require_owner
from gateway.cli.visible import visible
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.workspace import DEFAULT_TENANT, workspace_name

TENANT = DEFAULT_TENANT
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The session.")]


class _Mode(StrEnum):
    """How far a session may go without asking."""

    locked = "locked"
    observe = "observe"
    edit = "edit"
    operate = "operate"


def open_session(
    name: _Name,
    mode: Annotated[_Mode, typer.Option("--mode", help="How far it may go without asking.")],
    client: Annotated[
        str, typer.Option("--client", metavar="C", help="The only client that may use it.")
    ] = "local",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Open a session."""
    output = standard_output(as_json)
    _require_name(name)
    directory = enter_running(data)
    require_owner(directory)
    from gateway.reading import open_for_writing
    from gateway.wiring import wake_relay
    from governance.principal import LOCAL_OPERATOR
    from governance.session import open_session as record
    from interlock.tier import SessionMode

    wanted = SessionMode(mode.value)
    with open_for_writing(directory) as ledger:
        refused = record(ledger, TENANT, name, wanted, client=client, opened_by=LOCAL_OPERATOR)
    wake_relay(directory)
    if refused is not None:
        raise InterlockError(refused.code, refused.sentence)
    output.text(visible(f"session {name} is open in mode {mode.value} for client {client}"))
    if as_json:
        output.json({"session": name, "mode": mode.value, "client": client, "closed": False})


def close_session(name: _Name, data: Data = None, as_json: AsJson = False) -> None:
    """Take no further proposal; what was accepted goes on."""
    output = standard_output(as_json)
    directory = enter_running(data)
    require_owner(directory)
    from gateway.reading import open_for_writing
    from gateway.wiring import wake_relay
    from governance.principal import LOCAL_OPERATOR
    from governance.session import close_session as record

    with open_for_writing(directory) as ledger:
        refused = record(ledger, TENANT, name, closed_by=LOCAL_OPERATOR)
    wake_relay(directory)
    if refused is not None:
        raise InterlockError(refused.code, refused.sentence)
    output.text(visible(f"session {name} is closed"))
    if as_json:
        output.json({"session": name, "closed": True})


def show_session(
    name: _Name, tenant: Tenant = DEFAULT_TENANT, data: Data = None, as_json: AsJson = False
) -> None:
    """A session's mode, owner, stages and workspace."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading
    from governance.session import find_session

    with open_reading(directory) as reading:
        with reading.ledger.read() as view:
            facts = find_session(view, tenant, name)
        if facts is None:
            raise NotFoundError("session", name)
        seq, state = reading.state(name, tenant)
    workspace = directory.workspaces / workspace_name(tenant, name)
    document: dict[str, Any] = {
        "tenant": tenant,
        "session": name,
        "mode": facts.mode.value,
        "client": facts.client,
        "closed": facts.closed,
        "invocations": len(state.records),
        "statuses": dict(Counter(record.status for record in state.records)),
        "stages": _stages(state.records),
        "workspace": str(workspace) if workspace.is_dir() else None,
        "seq": seq,
    }
    if as_json:
        output.json(document)
        return
    shown = {key: value for key, value in document.items() if key not in ("statuses", "stages")}
    output.facts({**shown, "closed": "yes" if facts.closed else "no"})
    rows = [
        (stage, str(counts["open"]), str(counts["final"])) for stage, counts in document["stages"].items()
    ]
    output.table(("stage", "open", "final"), rows)


def _stages(records: Any) -> dict[str, dict[str, int]]:
    stages: dict[str, dict[str, int]] = {}
    for record in records:
        counts = stages.setdefault(record.stage, {"open": 0, "final": 0})
        counts["final" if record.phase == "done" else "open"] += 1
    return stages


def _require_name(name: str) -> None:
    """The form that a proposal's session must have too: another could never be used."""
    import re

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name):
        raise UsageError(
            "a session's name is 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter or digit"
        )

"""`state`: the folded state of one session, as of the end of the ledger."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.moment import iso
from gateway.cli.name import as_called
from gateway.cli.option import AsJson, Data, Tenant
from gateway.cli.output import Output, complain, standard_output
from gateway.cli.place import enter
from gateway.cli.visible import visible
from interlock.errors import NotFoundError
from interlock.workspace import DEFAULT_TENANT

WAITING_MAX = 1_000
PAGE = 50
_Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session.")]


def state(
    session: _Session, tenant: Tenant = DEFAULT_TENANT, data: Data = None, as_json: AsJson = False
) -> None:
    """ToolState: the records of all invocations of a session, in the order of their requests."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading

    with open_reading(directory) as reading:
        seq, folded = reading.state(session, tenant)
        stop = reading.stopped(session, tenant)
        known = bool(folded.records) or _exists(reading, tenant, session)
        waiting = _waiting(reading, folded)
    if not known:
        raise NotFoundError("session", visible(session)[:100])
    if stop is not None:
        complain(f"{stop.code}: session {session} is folded up to event {stop.seq - 1} only: {stop.detail}")
    if as_json:
        records = [record.to_json() for record in folded.records]
        output.json(
            {
                "tenant": tenant,
                "session": session,
                "seq": seq,
                "digest": folded.digest,
                "records": records,
                "waits_for": waiting,
            }
        )
    else:
        _print(output, folded, seq)
        for identifier, what in waiting.items():
            output.text(f"{identifier}  {what}")


def _exists(reading: Any, tenant: str, session: str) -> bool:
    from governance.session import find_session

    with reading.ledger.read() as view:
        return find_session(view, tenant, session) is not None


def _waiting(reading: Any, folded: Any) -> dict[str, str]:
    """What each invocation that has not ended waits for, by its id."""
    from gateway.waiting import waits_for

    found: dict[str, str] = {}
    pending = [record.invocation_id for record in folded.records if record.phase != "done"]
    for start in range(0, min(len(pending), WAITING_MAX), PAGE):
        with reading.ledger.read() as view:
            for identifier in pending[start : start + PAGE]:
                what = waits_for(view, identifier)
                if what is not None:
                    found[identifier] = as_called(what)
    return found


def _print(output: Output, folded: Any, seq: int) -> None:
    rows = [
        (
            record.invocation_id,
            record.status,
            record.phase,
            record.tier,
            record.tool,
            record.stage,
            iso(record.requested_at_us),
            record.reason_code or ("" if record.exit_code is None else f"exit {record.exit_code}"),
        )
        for record in folded.records
    ]
    output.table(("invocation", "status", "phase", "tier", "tool", "stage", "requested", "how"), rows)
    output.text(f"{len(rows)} invocations up to event {seq}")

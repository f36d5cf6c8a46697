"""`state`: the folded state of one session, as of the end of the ledger."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.moment import iso
from gateway.cli.option import AsJson, Data
from gateway.cli.output import Output, complain, standard_output
from gateway.cli.place import enter

_Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session.")]


def state(session: _Session, data: Data = None, as_json: AsJson = False) -> None:
    """ToolState: the records of all invocations of a session, in the order of their requests."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading

    with open_reading(directory) as reading:
        seq, folded = reading.state(session)
        stop = reading.stopped(session)
    if stop is not None:
        complain(f"{stop.code}: session {session} is folded up to event {stop.seq - 1} only: {stop.detail}")
    if as_json:
        records = [record.to_json() for record in folded.records]
        output.json({"session": session, "seq": seq, "digest": folded.digest, "records": records})
    else:
        _print(output, folded, seq)


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

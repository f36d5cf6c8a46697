"""`verify`, `rebuild` and `replay`: what is recorded proves itself; nothing is executed or repaired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.option import AsJson, Data, Tenant
from gateway.cli.output import Output, complain, progress, standard_output
from gateway.cli.place import enter
from gateway.cli.verdict import Exit
from gateway.cli.visible import visible, visible_json
from interlock.errors import InterlockError, NotFoundError
from interlock.state import SessionName
from interlock.workspace import DEFAULT_TENANT

if TYPE_CHECKING:
    from gateway.embedded.directory import DataDirectory
    from gateway.replay import Answered, Replay

_Anchors = Annotated[
    list[Path] | None,
    typer.Option(
        "--anchor", metavar="PATH", help="A file of signed heads that was kept elsewhere; repeatable."
    ),
]
_Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session.")]


def verify(anchor: _Anchors = None, data: Data = None, as_json: AsJson = False) -> int:
    """Check chain, anchors, keys and meaning of the whole log; 1 where something is wrong."""
    output = standard_output(as_json)
    elsewhere = [path.absolute() for path in anchor or ()]
    for path in elsewhere:
        if not path.is_file():
            raise NotFoundError("anchor file", str(path))
    directory = enter(data)
    from gateway.proof import prove_log

    with progress("verifying"):
        report: dict[str, Any] = dict(prove_log(directory, elsewhere).to_json())
    if as_json:
        output.json(report)
    else:
        _print_report(output, report)
    return Exit.OK if report["ok"] else Exit.ERROR


def _print_report(output: Output, report: dict[str, Any]) -> None:
    for fault in report["faults"]:
        at = "the ledger" if fault["seq"] is None else f"event {fault['seq']}"
        output.text(visible(f"{at}: {fault['code']}: {fault['detail']}"))
    if report["more"]:
        output.text(f"and {report['more']} more")
    said = "holds" if report["ok"] else "DOES NOT HOLD"
    output.text(f"the log {said}: {report['events']} events, head {report['head']}")
    output.text(f"anchors vouch for it up to event {report['anchored']}")


def rebuild(
    switch: Annotated[
        bool, typer.Option("--switch", help="Let the new fold be the one that is read.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Fold the whole log from zero and compare with the projection; 1 where they differ."""
    output = standard_output(as_json)
    directory = enter(data)
    with progress("folding the log from zero"):
        report = _rebuilt(directory, switch)
    if as_json:
        output.json(report)
    else:
        for difference in report["differences"]:
            session = SessionName(difference["tenant"], difference["session"])
            what = str(session) if session.session else "the checkpoint"
            said = f"{difference['projected']} in the projection, {difference['rebuilt']} folded"
            output.text(visible(f"{what} differs: {said}"))
        said = "equal" if report["equal"] else "NOT EQUAL"
        output.text(
            f"{said} at event {report['seq']}: {report['sessions']} sessions, "
            f"{report['events']} events at {report['events_per_s']:.0f}/s"
        )
    return Exit.OK if report["equal"] else Exit.ERROR


def _rebuilt(directory: DataDirectory, switch: bool) -> dict[str, Any]:
    from gateway.reading import open_reading
    from gateway.refold import refold
    from gateway.store import open_projection
    from gateway.wiring import broker_answers
    from workers.rebuild import PATIENCE_SECONDS
    from workers.rebuild import rebuild as fold_beside

    with open_reading(directory) as reading:
        is_running = broker_answers(directory)
        if switch or (reading.projection is not None and is_running):
            report = fold_beside(
                reading.ledger,
                directory.path,
                switch=switch,
                patience_seconds=PATIENCE_SECONDS if is_running else None,
                live=open_projection(directory),
            )
        else:  # a stopped system's directory is left as it is
            report = refold(reading)
    differences = [difference._asdict() for difference in report.differences]
    return {**report._asdict(), "differences": differences}


def replay(
    session: _Session, tenant: Tenant = DEFAULT_TENANT, data: Data = None, as_json: AsJson = False
) -> int:
    """Rebuild a session's state from its events and answer from its receipts; executes nothing."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading
    from gateway.replay import replay as answer_again

    with open_reading(directory) as reading:
        replayed = answer_again(reading, session, tenant)
    if not replayed.answers:
        raise NotFoundError("session with invocations", session)
    if as_json:
        output.json(_document(replayed))
    else:
        _print_replay(output, replayed)
    if replayed.is_equal is False:
        complain(str(InterlockError("CHAIN_BROKEN", "projection and fold differ: rebuild the projection")))
        return Exit.ERROR
    return Exit.OK


def _document(replayed: Replay) -> dict[str, Any]:
    return {
        "tenant": replayed.state.tenant,
        "session": replayed.state.session,
        "seq": replayed.seq,
        "digest": replayed.state.digest,
        "executions": 0,
        "equal": replayed.is_equal,
        "projected_seq": replayed.projected_seq,
        "answers": [_answer(answered) for answered in replayed.answers],
    }


def _answer(answered: Answered) -> dict[str, Any]:
    record, result = answered.record, answered.result
    return {
        "invocation_id": record.invocation_id,
        "tool": record.tool,
        "status": record.status,
        "phase": record.phase,
        "result": None if result is None else {"kind": type(result).__name__.lower(), **result.to_json()},
    }


def _print_replay(output: Output, replayed: Replay) -> None:
    for answered in replayed.answers:
        record = answered.record
        output.text(visible(f"{record.invocation_id}  {record.tool}  {record.status}"))
        if answered.result is not None:
            said = visible_json(answered.result.to_json())
            output.text("\n".join(f"  {line}" for line in said.split("\n")))
    equal = {True: "equal to", False: "NOT EQUAL to", None: "without"}[replayed.is_equal]
    output.text(f"{len(replayed.answers)} answers, 0 executions; the fold is {equal} the projection")

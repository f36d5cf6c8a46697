"""`show`: everything the ledger tells of one invocation, the chain of its causes included."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.moment import iso, iso_or_none
from gateway.cli.name import as_called
from gateway.cli.option import AsJson, Data
from gateway.cli.output import Output, standard_output
from gateway.cli.place import enter
from gateway.cli.visible import coded, visible, visible_json

_Id = Annotated[str, typer.Argument(metavar="ID", help="The invocation.")]


def show(invocation_id: _Id, data: Data = None, as_json: AsJson = False) -> None:
    """One invocation: record, decisions, approvals, receipt, and the chain of causes."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading
    from gateway.story import tell
    from gateway.waiting import waits_for
    from interlock.errors import NotFoundError

    with open_reading(directory) as reading, reading.ledger.read() as view:
        story = tell(view, invocation_id)
        waiting = waits_for(view, invocation_id)
    if story is None:
        raise NotFoundError("invocation", visible(invocation_id)[:100])
    document = {**_document(story), "waits_for": waiting and as_called(waiting)}
    if as_json:
        output.json(document)
    else:
        _print(output, document)


def _document(story: Any) -> dict[str, Any]:
    from gateway.story import approvals, arguments, decisions, receipt

    return {
        "record": {
            **story.record.to_json(),
            "requested_at": iso(story.record.requested_at_us),
            "started_at": iso_or_none(story.record.started_at_us),
            "completed_at": iso_or_none(story.record.completed_at_us),
        },
        "arguments": arguments(story),
        "decisions": decisions(story),
        "approvals": approvals(story),
        "receipt": receipt(story),
        "events": [_line(event) for event in story.events],
        "evidence": [{**_line(event), "payload": event.body()} for event in story.evidence],
        "causes": [_link(link) for link in story.causes],
    }


def _line(event: Any) -> dict[str, Any]:
    return {
        "seq": event.seq or None,
        "version": event.version,
        "type": event.type,
        "at": iso(event.at_us),
        "cause": event.cause,
        "actor": event.actor,
    }


def _link(link: Any) -> dict[str, Any]:
    at = iso(link.at_us) if link.at_us else None
    return {
        "what": link.what,
        "seq": link.seq or None,
        "stream": link.stream or None,
        "at": at,
        "actor": link.actor,
        "cause": link.cause or None,
    }


# --- for people ----------------------------------------------------------------------------------


def _print(output: Output, document: dict[str, Any]) -> None:
    record = document["record"]
    output.facts(
        {
            "invocation": record["invocation_id"],
            "status": f"{record['status']} ({record['phase']})",
            "reason": coded(record["reason_code"], record["reason"]),
            "now": document["waits_for"],
            "tool": f"{record['tool']} version {record['tool_version']}",
            "tier": f"{record['tier']}, pool {record['pool']}",
            "session": f"{record['session']}, stage {record['stage']}",
            "client": record["client"],
            "subject": record["subject"],
            "requested": record["requested_at"],
            "started": record["started_at"],
            "completed": record["completed_at"],
            "attempt": record["attempt"],
            "granted by": record["granted_by"],
            "approvers": ", ".join(record["approvers"]),
            "exit code": record["exit_code"],
        }
    )
    output.text("arguments")
    output.text(_indented(visible_json(document["arguments"])))
    _print_decisions(output, document["decisions"])
    _print_approvals(output, document["approvals"])
    _print_receipt(output, document["receipt"])
    _print_causes(output, document["causes"])


def _print_decisions(output: Output, decisions: list[dict[str, Any]]) -> None:
    output.text("decisions")
    for decision in decisions:
        output.text(f"  {iso(decision['at_us'])}  {decision['type']} by {visible(str(decision['by']))}")
        for reason in decision["reasons"]:
            pointer = f" at {reason['pointer']}" if reason.get("pointer") else ""
            output.text(visible(f"    {reason['code']}: {reason['sentence']}{pointer}"))
        steps = [f"{verdict['step']} {verdict['outcome']}" for verdict in decision["verdicts"]]
        if steps:
            output.text(f"    {', '.join(steps)}")


def _print_approvals(output: Output, approvals: dict[str, Any]) -> None:
    votes = [(voted["vote"], "") for voted in approvals["votes"]]
    votes += [
        (refused["vote"], f" (did not count: {refused['reason']['code']})")
        for refused in approvals["refused"]
    ]
    if votes:
        output.text("answers")
    for vote, note in votes:
        why = f": {vote['reason']}" if vote["reason"] else ""
        output.text(visible(f"  {vote['approver']} said {vote['decision']}{why}{note}"))


def _print_receipt(output: Output, sealed: dict[str, Any] | None) -> None:
    if sealed is None:
        return
    receipt = sealed["receipt"]
    output.text("receipt")
    sandbox = receipt["sandbox"]
    output.facts(
        {
            "  digest": sealed["receipt_digest"],
            "  kind": receipt["kind"],
            "  duration": f"{receipt['duration_ms']} ms",
            "  sandbox": f"{sandbox['strength']} {' '.join(sandbox['layers'])}",
            "  truncated": ", ".join(receipt["truncated"]),
            "  affected": ", ".join(entity["name"] for entity in receipt["affected_entities"]),
        }
    )
    output.text(_indented(visible_json(receipt["structured_output"])))


def _print_causes(output: Output, causes: list[dict[str, Any]]) -> None:
    output.text("because")
    for link in causes:
        if link["stream"] is None:
            output.text(visible(f"  {link['what']} {link['actor']}".rstrip()))
        else:
            output.text(visible(f"  {link['seq'] or '-'}  {link['what']} by {link['actor']}, {link['at']}"))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))

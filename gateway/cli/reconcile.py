"""`reconcile`: what has an unknown outcome, what is known of it, and the verdict of whoever found out.

It never looks at the other side itself, and never sends an effect again.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.moment import iso, iso_or_none, span
from gateway.cli.name import command_name
from gateway.cli.option import AsJson, Data
from gateway.cli.output import Output, standard_output
from gateway.cli.place import enter, enter_running, require_owner
from gateway.cli.visible import coded, visible, visible_json
from interlock.errors import GiveUpError, InterlockError, NotFoundError

if TYPE_CHECKING:
    from gateway.embedded.directory import DataDirectory
    from governance.ledger import LedgerView

LISTED_MAX = 1_000
BEHIND_MAX = 21


class _Verdict(StrEnum):
    """What was found out."""

    executed = "executed"
    not_executed = "not_executed"


_Id = Annotated[str, typer.Argument(metavar="ID", help="The invocation.")]
_Found = Annotated[
    _Verdict, typer.Option("--verdict", help="Whether the effect happened, as the other side tells it.")
]
_Reason = Annotated[str, typer.Option("--reason", metavar="R", help="How that was found out.")]


def list_unresolved(data: Data = None, as_json: AsJson = False) -> None:
    """Invocations whose outcome is unknown, with what each holds up."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading
    from interlock.event import StreamKind
    from interlock.phase import Phase

    phase = Phase.RECONCILIATION_REQUIRED.value
    with open_reading(directory) as reading, reading.ledger.read() as view:
        heads = view.heads_of(StreamKind.INVOCATION.value, phase=phase, limit=LISTED_MAX)
        found = [_document(directory, view, head.id) for head in heads]
    if as_json:
        output.json({"unresolved": found})
        return
    for document in found:
        _print(output, document)
        output.text("")
    output.text(f"{len(found)} have an unknown outcome")


def show_unresolved(invocation_id: _Id, data: Data = None, as_json: AsJson = False) -> None:
    """What is known of one unknown outcome: call, claim, and who waits behind it."""
    output = standard_output(as_json)
    directory = enter(data)
    from gateway.reading import open_reading

    with open_reading(directory) as reading, reading.ledger.read() as view:
        document = _document(directory, view, invocation_id)
    if as_json:
        output.json(document)
        return
    _print(output, document)
    output.text("arguments")
    output.text("\n".join(f"  {line}" for line in visible_json(document["arguments"]).split("\n")))


def resolve(
    invocation_id: _Id, verdict: _Found, reason: _Reason, data: Data = None, as_json: AsJson = False
) -> None:
    """Record what became of it; final. Frees its stage."""
    output = standard_output(as_json)
    directory = enter_running(data)
    require_owner(directory)
    from gateway.claimant import life_probe
    from gateway.reading import open_for_writing
    from gateway.wiring import publish_hints, wake_relay
    from governance.line import Line
    from governance.principal import LOCAL_OPERATOR
    from governance.reconcile import Resolved, Verdict
    from governance.reconcile import resolve as record
    from interlock.settings import settings_from

    try:
        line = Line(settings_from(os.environ))
    except ValueError as error:
        raise GiveUpError("CONFIG_INVALID", str(error)) from error
    with open_for_writing(directory) as ledger:
        with ledger.read() as view:
            may_live = life_probe(directory, view)
        done = record(
            ledger,
            line,
            invocation_id,
            Verdict(verdict.value),
            by=LOCAL_OPERATOR,
            reason=reason,
            is_dead=lambda boot: not may_live(boot),
        )
    if not isinstance(done, Resolved):
        raise InterlockError(done.code, visible(done.sentence)[:300])
    publish_hints(directory, done.hints)
    wake_relay(directory)
    freed = [one for hint in done.hints for one in hint.invocation_ids]
    if as_json:
        said = {"invocation_id": invocation_id, "verdict": done.verdict, "already": done.already}
        output.json({**said, "released": freed})
    before = ", as it was before" if done.already else ""
    output.text(f"{invocation_id}  resolved as {done.verdict}{before}")
    for one in freed:
        output.text(f"{one}  goes on")


def _document(directory: DataDirectory, view: LedgerView, invocation_id: str) -> dict[str, Any]:
    from gateway.claimant import life_probe
    from gateway.story import arguments, tell
    from governance.reconcile import claim_facts
    from interlock.canonical import read_stored
    from interlock.contract import Tool
    from interlock.event import invocation_stream

    story = tell(view, invocation_id)
    if story is None:
        raise NotFoundError("invocation", visible(invocation_id)[:100])
    stream, record = invocation_stream(invocation_id), story.record
    head = view.heads([stream])[stream]
    bodies = view.contracts([head.contract_digest])
    contract = Tool.model_validate(read_stored(bodies[head.contract_digest])) if bodies else None
    facts = claim_facts(story.events, contract)
    alive = facts is not None and life_probe(directory, view)(facts.boot)
    behind = view.stage_lines([head.stage_key], limit=BEHIND_MAX).get(head.stage_key, [])
    is_unknown = record.phase == "reconciliation_required"
    wait_us = 0 if facts is None or not alive else max(0, facts.over_us - view.now_us)
    return {
        "invocation_id": invocation_id,
        "phase": record.phase,
        "code": record.reason_code,
        "reason": record.reason,
        "tool": record.tool,
        "session": record.session,
        "stage": record.stage,
        "subject": record.subject,
        "arguments": arguments(story),
        "started_at": iso_or_none(record.started_at_us),
        "claimant_may_live": alive,
        "not_executed_from": iso(view.now_us + wait_us) if is_unknown else None,
        "seconds_left": round(wait_us / 1_000_000, 3),
        "behind": [one.id for one in behind if one.accepted_seq > head.accepted_seq and head.is_open],
        "resolve": f"{command_name()} reconcile resolve {invocation_id} --verdict executed|not_executed "
        "--reason HOW_YOU_KNOW"
        if is_unknown
        else None,
    }


def _print(output: Output, document: dict[str, Any]) -> None:
    claimant = "gone" if not document["claimant_may_live"] else "may still live"
    if document["seconds_left"]:
        claimant += f"; not_executed can be said in {span(document['seconds_left'])}"
    output.facts(
        {
            "invocation": document["invocation_id"],
            "phase": document["phase"],
            "why": coded(document["code"], document["reason"]),
            "tool": document["tool"],
            "place": f"session {document['session']}, stage {document['stage']}",
            "subject": document["subject"],
            "started": document["started_at"],
            "claimant": claimant,
            "behind it": ", ".join(document["behind"]),
            "to do": document["resolve"] and f"find out whether it happened, then {document['resolve']}",
        }
    )

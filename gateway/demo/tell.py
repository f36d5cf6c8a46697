"""Tells what happened in the demonstration: a timeline with reasons, receipts, and what checks of it say."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.demo.scene import Outcome, Played
from interlock.clock import moment
from interlock.event import StoredEvent

SHOWN_MAX = 88
"""Characters of a receipt's summary that are told; what is cut ends in an ellipsis."""


def tell(outcome: Outcome) -> None:
    """Print it all."""
    for line in lines(outcome):
        print(line)  # noqa: T201 - the telling


def lines(outcome: Outcome) -> Iterator[str]:
    """Everything there is to tell, line by line."""
    yield "An agent works on a repository; a bot with a key of its own answers what the mode does not allow."
    yield ""
    for number, played in enumerate(outcome.played, start=1):
        yield from _act(number, played)
    yield ""
    yield f"Timeline ({len(outcome.events)} events of the session)"
    yield from (_event(event) for event in outcome.events)
    yield ""
    verdict = "ok" if outcome.verified else "FAULTS"
    yield f"verify:  {verdict}, {outcome.events_verified} events, chain and meaning"
    yield from (f"         {fault}" for fault in outcome.faults)
    yield f"rebuild: {'equal' if outcome.equal else 'DIFFERENT'}, state {outcome.digest[:16]}"


def _act(number: int, played: Played) -> Iterator[str]:
    record, mark = played.record, "as expected" if played.is_good else "NOT AS EXPECTED"
    end = record.status if record.exit_code is None else f"{record.status}, exit {record.exit_code}"
    yield f"{number}. {played.act.title}: {record.tool} ({record.tier}) → {end} [{mark}]"
    if record.approvers:
        yield f"   granted by {', '.join(record.approvers)}"
    if record.reason_code is not None:
        said = (record.reason or "").removeprefix(f"{record.reason_code}: ")
        yield f"   {record.reason_code}: {said}"
    if record.receipt_digest is not None:
        yield f"   receipt {record.receipt_digest[:16]}: {_first_line(record.output_summary)}"


def _first_line(summary: str | None) -> str:
    text = (summary or "").splitlines()
    first = text[0] if text else ""
    return first if len(first) <= SHOWN_MAX and len(text) <= 1 else f"{first[: SHOWN_MAX - 1]}…"


def _event(event: StoredEvent) -> str:
    at = moment(event.at_us).strftime("%H:%M:%S.%f")[:-3]
    why = f"by {event.actor}, after {event.cause}"
    return f"  {event.seq:>4}  {at}  {event.type:<24} {event.stream_id[-12:]}  {why}"

"""What the ledger tells of one invocation: decisions, answers, receipt, and the chain of its causes.

Reads one consistent view; judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.reading import fold_record
from governance.ledger import LedgerView
from governance.sensitive import masked_arguments
from interlock.canonical import JsonObject
from interlock.event import StoredEvent, Stream, StreamKind, evidence_stream, invocation_stream
from interlock.state import ToolInvocationRecord

CAUSES_MAX = 64
_DECISIONS = frozenset(
    ("ApprovalRequested", "ApprovalGranted", "DecisionDeferred", "ToolExecutionRejected", "PermitReturned")
)


@dataclass(frozen=True, slots=True)
class Story:
    """One invocation, as its two streams tell it."""

    record: ToolInvocationRecord
    events: tuple[StoredEvent, ...]
    evidence: tuple[StoredEvent, ...]
    causes: tuple[Link, ...]
    """From the last event back to where it came from."""


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the chain: what happened, and what it says it follows from."""

    what: str
    """Type of the event, or the kind of what stands outside the log (`submission`, `operator`, …)."""
    cause: str
    """The event's own words; "" at the end of the chain."""
    seq: int = 0
    """0 outside the log."""
    stream: str = ""
    at_us: int = 0
    actor: str = ""


def tell(view: LedgerView, invocation_id: str) -> Story | None:
    """The story of one invocation; None where the ledger has none of this id."""
    stream, beside = invocation_stream(invocation_id), evidence_stream(invocation_id)
    found = view.events([stream, beside])
    events = found.get(stream, [])
    record = fold_record(events)
    if record is None:
        return None
    return Story(record, tuple(events), tuple(found.get(beside, [])), tuple(trace(view, events[-1])))


# --- causes --------------------------------------------------------------------------------------


def trace(view: LedgerView, event: StoredEvent) -> list[Link]:
    """From this event back to what stands outside the log; ends where a cause is missing, or comes again."""
    links: list[Link] = []
    seen: set[tuple[Stream, int]] = set()
    at: StoredEvent | None = event
    while at is not None and _place(at) not in seen and len(links) < CAUSES_MAX:
        seen.add(_place(at))
        links.append(Link(at.type, at.cause, at.seq, str(at.stream), at.at_us, at.actor))
        before = _cause_of(view, at)
        if before is None or _place(before) in seen:
            kind, _, name = at.cause.partition(":")
            links.append(Link(kind, "", actor=name))
            at = None
        else:
            at = before
    return links


def _place(event: StoredEvent) -> tuple[Stream, int]:
    """Where it stands for sure: its number in the log may still have to come."""
    return event.stream, event.version


def _cause_of(view: LedgerView, event: StoredEvent) -> StoredEvent | None:
    """The event that another names as its cause; None for what comes from outside, or is not there."""
    kind, _, name = event.cause.partition(":")
    if kind == "event" and name.isdecimal():
        return next((found for found in view.range(int(name) - 1, 1) if found.seq == int(name)), None)
    if kind == "invocation":
        identifier, _, version = name.partition("@")
        return _at_version(view, invocation_stream(identifier), version)
    own = Stream(StreamKind.INVOCATION.value, event.stream_id)
    if event.type == "ApprovalVoted":
        return _question_before(view, event)
    if kind == "vote":
        return _naming(view, own, "ApprovalVoted", ("vote", "decision_id"), name)
    if kind == "claim":
        return _naming(view, own, "ToolExecutionStarted", ("nonce",), name)
    return None


def _question_before(view: LedgerView, vote: StoredEvent) -> StoredEvent | None:
    """An answer comes from outside and names only itself; what it answers is the question before it."""
    asked = [
        event
        for event in view.events([vote.stream]).get(vote.stream, [])
        if event.type == "ApprovalRequested" and event.version < vote.version
    ]
    return asked[-1] if asked else None


def _at_version(view: LedgerView, stream: Stream, version: str) -> StoredEvent | None:
    events = view.events([stream]).get(stream, [])
    return next((event for event in events if str(event.version) == version), None)


def _naming(
    view: LedgerView, stream: Stream, event_type: str, path: Sequence[str], name: str
) -> StoredEvent | None:
    """The last event of a type that holds this name at this place."""
    for event in reversed(view.events([stream]).get(stream, [])):
        if event.type == event_type:
            value: Any = event.body()
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            if value == name:
                return event
    return None


# --- what is shown -------------------------------------------------------------------------------


def shown_body(event: StoredEvent) -> JsonObject:
    """The payload as people see it: sealed values masked."""
    body: JsonObject = event.body()
    arguments, sensitive = body.get("arguments"), body.get("sensitive")
    if (
        event.type == "ToolInvocationRequested"
        and isinstance(arguments, dict)
        and isinstance(sensitive, list)
    ):
        body["arguments"] = masked_arguments(arguments, [str(pointer) for pointer in sensitive])
    return body


def decisions(story: Story) -> list[JsonObject]:
    """Every judgement over it, in order, with its reasons and each step's verdict."""
    return [_decision(event) for event in story.events if event.type in _DECISIONS]


def _decision(event: StoredEvent) -> JsonObject:
    body: Any = event.body()
    reasons = body.get("reasons") or ([body["reason"]] if "reason" in body else [])
    if event.type == "ApprovalRequested":
        reasons = body["snapshot"]["reasons"]
    return {
        "seq": event.seq,
        "at_us": event.at_us,
        "type": event.type,
        "by": body.get("by") or event.actor,
        "policy": body.get("policy"),
        "reasons": list(reasons),
        "verdicts": body.get("verdicts", []),
    }


def approvals(story: Story) -> JsonObject:
    """The question as it was frozen, every answer, and the answers that did not count."""
    asked = [event.body() for event in story.events if event.type == "ApprovalRequested"]
    refused = [event.body() for event in story.evidence if event.type == "VoteRefused"]
    return {
        "request": asked[-1] if asked else None,
        "votes": [event.body() for event in story.events if event.type == "ApprovalVoted"],
        "refused": refused,  # type: ignore[dict-item] # bodies are JSON
        "granted_by": story.record.granted_by,
        "approvers": list(story.record.approvers),
    }


def receipt(story: Story) -> JsonObject | None:
    """The last sealed receipt, None where no execution was reported."""
    for event in reversed(story.events):
        sealed = event.body().get("sealed")
        if isinstance(sealed, dict):
            return sealed
    return None


def arguments(story: Story) -> JsonObject | None:
    """The canonical arguments, sensitive values masked; None where they were no acceptable JSON."""
    shown = shown_body(story.events[0]).get("arguments")
    return shown if isinstance(shown, dict) else None

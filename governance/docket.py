"""The docket: one invocation read back from its events into what governance needs to judge it again.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from governance.ledger import Head, LedgerView
from interlock.event import (
    ApprovalGranted,
    ApprovalRequested,
    ApprovalVoted,
    StoredEvent,
    ToolInvocationRequested,
    invocation_stream,
    read_payload,
)


@dataclass(frozen=True, slots=True)
class Docket:
    """What stands in one invocation's stream."""

    head: Head
    requested: ToolInvocationRequested
    request: ApprovalRequested | None = None
    """The question that stands, if any was asked."""
    votes: tuple[ApprovalVoted, ...] = ()
    """The answers to exactly that question."""
    granted: ApprovalGranted | None = None
    """The last grant, by policy or quorum."""


def read_docket(head: Head, events: Iterable[StoredEvent]) -> Docket:
    """Read one invocation's events, which are all of its stream."""
    requested: ToolInvocationRequested | None = None
    request: ApprovalRequested | None = None
    votes: list[ApprovalVoted] = []
    granted: ApprovalGranted | None = None
    for event in events:
        if event.type not in _READ:
            continue
        payload = read_payload(event)
        if isinstance(payload, ToolInvocationRequested):
            requested = payload
        elif isinstance(payload, ApprovalRequested):
            request, votes = payload, []
        elif isinstance(payload, ApprovalVoted):
            votes.append(payload)
        elif isinstance(payload, ApprovalGranted):
            granted = payload
    assert requested is not None, "a stream begins with its request"
    return Docket(head, requested, request, tuple(votes), granted)


_READ = frozenset(("ToolInvocationRequested", "ApprovalRequested", "ApprovalVoted", "ApprovalGranted"))


def load_dockets(view: LedgerView, invocation_ids: Iterable[str]) -> dict[str, Docket]:
    """The dockets of those ids that exist."""
    streams = [invocation_stream(identifier) for identifier in invocation_ids]
    heads = view.heads(streams)
    events = view.events(heads)
    return {head.id: read_docket(head, events[stream]) for stream, head in heads.items()}

"""A broker in memory behind which a test answers proposals, and a source in memory that tells of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from interlock.adapters.celery_wire import Envelope, decode_task
from interlock.answer import Answer
from interlock.channel import Heard, InMemoryChannel
from interlock.event import StoredEvent
from interlock.parse import parse_proposal
from interlock.proposal import PROPOSE_QUEUE, Proposal
from interlock.state import ToolInvocationRecord

Judge = Callable[[Proposal], Answer | None]


def envelope(item: bytes) -> Envelope:
    """One item as it stands on a queue."""
    read = decode_task(item)
    assert isinstance(read, Envelope), read
    return read


def proposal(item: bytes) -> Proposal:
    """The proposal of one item."""
    read = envelope(item)
    said = parse_proposal(read.kwargs_json, task_id=read.task_id, reply_to=read.reply_to)
    assert isinstance(said, Proposal), said
    return said


def accepting(said: Proposal) -> Answer:
    """The answer of a governor that takes everything."""
    return Answer(invocation_id=said.id, status="accepted", phase="queued", seq=1)


def governed(judge: Judge = accepting, **more: Any) -> InMemoryChannel:
    """A channel behind which somebody judges each item as it comes, and takes it from the queue."""

    def respond(item: bytes) -> Sequence[Heard]:
        said = proposal(item)
        answer = judge(said)
        if answer is None:
            return ()
        channel.take(PROPOSE_QUEUE)
        assert said.reply_to is not None
        return [Heard(said.reply_to, answer.to_bytes())]

    channel = InMemoryChannel(respond, **more)
    return channel


def record_of(invocation_id: str, phase: str = "done", **more: Any) -> ToolInvocationRecord:
    """A record with this phase."""
    fields: dict[str, Any] = {
        "position": 1,
        "version": 1,
        "status": "COMPLETED" if phase == "done" else "REQUESTED",
        "tool": "echo",
        "tool_version": "1",
        "tier": "T0",
        "pool": "pure",
        "tenant": "default",
        "client": "local",
        "subject": None,
        "session": "default",
        "stage": "default",
        "route": None,
        "cause": "",
        "arguments_hash": "",
        "action_digest": "",
        "requested_at_us": 1,
    }
    return ToolInvocationRecord(invocation_id=invocation_id, phase=phase, **(fields | more))


@dataclass
class InMemoryOutcomes:
    """A source that tells what a test puts into it, and counts how often and for how many it is asked."""

    known: dict[str, ToolInvocationRecord] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    error: Exception | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    """Every question waits until it is set."""

    def __post_init__(self) -> None:
        self.gate.set()

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        self.gate.wait()
        return self.known.get(invocation_id)

    def resting(self, invocation_ids: Sequence[str], /) -> dict[str, ToolInvocationRecord]:
        self.gate.wait()
        self.asked.append(len(invocation_ids))
        if self.error is not None:
            raise self.error
        found = {one: self.known[one] for one in invocation_ids if one in self.known}
        return {
            one: record
            for one, record in found.items()
            if record.phase in ("done", "reconciliation_required")
        }

    def events(self, after: int, limit: int, /) -> list[StoredEvent]:
        event = StoredEvent(1, "session", "s", 1, "SessionOpened", 1, 1, "", "", "", "s", True, b"{}", "")
        return [event._replace(seq=seq) for seq in range(after + 1, min(after + limit, 5) + 1)]


class OneByOne:
    """The same source for who knows only the older question."""

    def __init__(self, outcomes: InMemoryOutcomes) -> None:
        self.record, self.events = outcomes.record, outcomes.events

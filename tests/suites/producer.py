"""A producer of the tests: pushes batches of messages as Celery's own producers write them, and follows the
log until every answer and every outcome is there."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from interlock.adapters.redis_client import connect
from interlock.event import StoredEvent
from interlock.identifier import new_id
from tests.support.live import Live
from tests.support.wait import until

TOGETHER = 200
UNANSWERED_MAX = 1_000
PATIENCE_SECONDS = 90.0
QUEUE = "interlock.propose"
ENDS = frozenset(("ToolExecutionCompleted", "ToolExecutionFailed", "ToolExecutionRejected"))


@dataclass(frozen=True)
class Call:
    """One call: the raw text of its keyword arguments is exactly what goes into the message."""

    kwargs: bytes
    id: str = field(default_factory=new_id)


def call(tool: str, arguments: bytes, **fields: Any) -> Call:
    """A call whose arguments are these bytes, in a stage of its own."""
    identifier = new_id()
    said = {"id": identifier, "tool": tool, "session": "suites", "stage": identifier, **fields}
    return Call(json.dumps(said)[:-1].encode() + b', "arguments": ' + arguments + b"}", identifier)


@dataclass
class Told:
    """What became of one call."""

    answer: Mapping[str, Any]
    events: list[StoredEvent] = field(default_factory=list)

    @property
    def end(self) -> str:
        """The type of the event that ended it; "" for what the ledger has not."""
        return self.events[-1].type if self.events else ""

    @property
    def code(self) -> str:
        """Why it was refused or failed; "" where it completed."""
        if not self.events:
            return str(self.answer["code"])
        body: Any = self.events[-1].body()
        reason = body.get("reason")
        return str(reason["code"]) if isinstance(reason, dict) else str(body.get("code") or "")

    @property
    def requested(self) -> Any:
        """The request as the ledger holds it."""
        return self.events[0].body()

    @property
    def request_bytes(self) -> bytes:
        """Its bytes."""
        return self.events[0].payload

    @property
    def receipt(self) -> Any:
        """The receipt of one that completed."""
        body: Any = self.events[-1].body()
        return body["sealed"]["receipt"]


def celery_item(told: Call, reply_to: str) -> bytes:
    """The list item that Celery's transport makes of one message: protocol 2, its body in base64."""
    embed = b'{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'
    body = base64.b64encode(b"[[], " + told.kwargs + b", " + embed + b"]").decode()
    headers: dict[str, Any] = {
        "lang": "py",
        "task": QUEUE,
        "id": told.id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": told.id,
        "parent_id": None,
        "argsrepr": "()",
        "kwargsrepr": "{}",
        "origin": "gen1@suites",
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    properties = {
        "correlation_id": told.id,
        "reply_to": reply_to,
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": QUEUE},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": told.id,
    }
    item = {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
        "properties": properties,
    }
    return json.dumps(item).encode()


class Producer:
    """Sends through the queue of one running system."""

    def __init__(self, live: Live, client: Redis) -> None:
        self.live = live
        self._client = client
        self._reply_to = f"interlock.reply.suites-{new_id()}"

    def end_seq(self) -> int:
        """Where the log ends now."""
        with self.live.ledger.read() as view:
            return view.last_seq()

    def carry(self, calls: Sequence[Call]) -> dict[str, Told]:
        """Send all, and wait until each is answered and each that the ledger has came to its end."""
        after = self.end_seq()
        told: dict[str, Told] = {}
        for start in range(0, len(calls), TOGETHER):
            together = calls[start : start + TOGETHER]
            self.push([celery_item(one, self._reply_to) for one in together])
            self._gather(told, start + len(together) - UNANSWERED_MAX)
        self._gather(told, len(calls))
        assert told.keys() == {one.id for one in calls}
        self.follow(told, after)
        return told

    def push(self, items: Sequence[bytes]) -> None:
        """Raw items, in order, in one command."""
        self._client.lpush(QUEUE, *items)

    def _gather(self, told: dict[str, Told], count: int) -> None:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while len(told) < count:
            first: Any = self._client.brpop([self._reply_to], timeout=1)
            rest: Any = self._client.rpop(self._reply_to, TOGETHER) if first else None
            for data in [first[1], *(rest or ())] if first else ():
                answer = json.loads(data)
                told[answer["invocation_id"]] = Told(answer)
            assert time.monotonic() < give_up_at, f"{len(told)} of {count} answered"

    def follow(self, told: dict[str, Told], after: int) -> None:
        """Read the log on from a place, until nothing that it holds of these is open."""
        waiting = {name for name, one in told.items() if one.answer["phase"]}

        def read_on() -> bool:
            nonlocal after
            for event in self.events(after):
                after = event.seq
                if event.kind == "invocation" and event.stream_id in told:
                    told[event.stream_id].events.append(event)
                    if event.type in ENDS:
                        waiting.discard(event.stream_id)
            return not waiting

        until(read_on, PATIENCE_SECONDS, "every outcome is in the log")

    def events(self, after: int) -> Iterator[StoredEvent]:
        """Every event after this place up to now."""
        while True:
            with self.live.ledger.read() as view:
                page = view.range(after, 2_000)
            if not page:
                return
            yield from page
            after = page[-1].seq


@contextmanager
def producer(live: Live) -> Iterator[Producer]:
    """A producer with a connection of its own."""
    client = connect(live.directory.broker_client_url, blocking=True)
    try:
        yield Producer(live, client)
    finally:
        client.close()


def contract(name: str, parameters: Any, **more: Any) -> dict[str, Any]:
    """A contract without code: the deterministic mock answers for it, so that it does no harm to say so."""
    effects = {"read_only": True, "idempotent": True, "deterministic": True}
    return {"name": name, "parameters": parameters, "effects": effects, **more}


def register(live: Live, catalogues: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[str]]:
    """Register catalogues by one command; catalogue → codes of what was refused."""
    lines = [json.dumps({"catalogue": name, "tools": list(tools)}) for name, tools in catalogues.items()]
    done = live.command(
        "tools",
        "add",
        "-",
        "--bundle",
        "--tier",
        "T0",
        "--json",
        stdin="\n".join(lines).encode(),
        seconds=120,
    )
    assert done.stdout, done.stderr.decode()
    said = json.loads(done.stdout)
    names = list(catalogues)
    refused: dict[str, list[str]] = {}
    for found in said["refused"]:
        refused.setdefault(names[found["line"] - 1], []).append(found["code"])
    assert said["added"] == sum(len(tools) for name, tools in catalogues.items() if name not in refused), said
    return refused

"""A computation that ends its process: counted and given up by itself, and its envelope gets through."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from pathlib import Path

from gateway.reading import open_reading
from interlock.adapters.redis_client import connect
from interlock.event import StoredEvent
from interlock.proposal import PROPOSE_QUEUE, REPLY_PREFIX
from tests.support.calling import Call, Fate, Traffic
from tests.support.crashing import ONE, hurt_system, settle
from tests.support.running import RunningSystem

SABOTAGE = str(Path(__file__).with_name("sabotage.py"))
INNOCENTS = 255
QUIET_SECONDS = 90.0


def events_by_call(system: RunningSystem) -> dict[str, list[StoredEvent]]:
    with open_reading(system.directory) as reading, reading.ledger.read() as view:
        found: dict[str, list[StoredEvent]] = {}
        for event in view.range(0, 100_000):
            if event.kind == "invocation":
                found.setdefault(event.stream_id, []).append(event)
    return found


def envelope(poison_at: int) -> list[Call]:
    """Calls that are accepted together, and so share a hint; the session is open already."""
    values = [f"innocent-{n}" for n in range(INNOCENTS)]
    values.insert(poison_at, "poison")
    return [Call("echo", {"value": value}, "one", f"poison-{place}") for place, value in enumerate(values)]


def propose_at_once(system: RunningSystem, traffic: Traffic, calls: list[Call]) -> None:
    with closing(connect(system.directory.broker_client_url)) as client:
        client.lpush(PROPOSE_QUEUE, *(call.item(REPLY_PREFIX + call.id) for call in calls))
    for call in calls:
        traffic.note(call)
        call.sent, call.fate = 1, Fate.OK


def test_what_ends_its_process_is_given_up_alone_and_its_envelope_gets_through(rng: random.Random) -> None:
    calls = envelope(rng.randrange(INNOCENTS))
    program = (SABOTAGE, "poison", "up")
    with hurt_system(rng, replicas=ONE, program=program, producers=0, INTERLOCK_RELEASE_AGAIN_MS="200") as (
        system,
        traffic,
    ):
        propose_at_once(system, traffic, calls)
        assert settle(system, traffic, QUIET_SECONDS) == []
        events = events_by_call(system)
    ends = Counter(events[call.id][-1].type for call in calls)
    assert ends == {"ToolExecutionCompleted": INNOCENTS, "ToolExecutionFailed": 1}
    [poison] = (events[call.id] for call in calls if call.arguments["value"] == "poison")
    assert poison[-1].body()["failure"]["code"] == "ATTEMPTS_EXHAUSTED"
    types = [event.type for event in poison]
    # Nothing was ever claimed of it before it was known to be better alone; then every attempt counts.
    assert types.index("PermitReturned") < types.index("ToolExecutionStarted")
    claims = [event.body() for event in poison if event.type == "ToolExecutionStarted"]
    assert [(claim["attempt"], claim["batch"]) for claim in claims] == [
        (place + 1, 1) for place in range(len(claims))
    ]
    assert len(claims) == claims_max(poison)


def claims_max(events: list[StoredEvent]) -> int:
    [granted, *_] = (event.body() for event in reversed(events) if event.type == "ApprovalGranted")
    attempts: int = granted["permit"]["terms"]["attempts"]
    return attempts

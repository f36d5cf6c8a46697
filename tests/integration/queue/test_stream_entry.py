"""What stands in the public stream is what its published schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
from redis import Redis

from interlock.adapters.redis_stream import RedisEventStream
from interlock.canonical import sha256_hex
from interlock.event import StoredEvent
from interlock.stream import EMPTY, STREAM, entry_of
from tests.support.valkey import ValkeyServer

SCHEMA = Path(__file__).parents[3] / "docs" / "wire" / "entry.json"


def event(seq: int, name: str) -> StoredEvent:
    digest = sha256_hex(str(seq).encode())
    return StoredEvent(seq, "session", name, 1, "SessionOpened", 1, 5, "", "", "", name, True, b"{}", digest)


def test_entries_are_valid(server: ValkeyServer, broker: Redis) -> None:
    stream = RedisEventStream(server.client(), server.client(blocking=True))
    entries = [entry_of(event(1, "s"), "first"), entry_of(event(2, "ü" * 300), "first")]
    stream.publish(entries, after=EMPTY)
    validator = jsonschema_rs.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")), offline=True)
    found: Any = broker.xrange(STREAM)
    assert len(found) == 2
    for _, fields in found:
        validator.validate({key.decode(): value.decode() for key, value in fields.items()})

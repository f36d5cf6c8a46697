"""The hash chain over the log: each event's header and payload digest, linked to the event before. Pure.

It covers the payload's digest, never the payload, so a payload may be archived and the chain still stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from interlock.canonical import canonical, plainly_written, sha256_hex
from interlock.event import NewEvent, StoredEvent, Stream

CHAIN_FORMAT = "interlock.chain.v1"


def genesis(incarnation: str) -> str:
    """What the first event of this incarnation is linked to; 64 hexadecimal digits."""
    return sha256_hex(canonical([CHAIN_FORMAT, incarnation]))


def link(previous: str, event: StoredEvent, payload_digest: str) -> str:
    """The hash of an event whose predecessor's hash is `previous`; its own `hash` and `payload` are not read.

    SHA-256 over the 32 bytes of `previous` and the canonical JSON array of
    [format of the chain, seq, kind, stream id, version, type, format, at_us, cause, actor, tenant, session,
    moves_state, hex SHA-256 of the payload].
    """
    return _linked(bytes.fromhex(previous), (*event[:11], bool(event.moves_state)), payload_digest).hex()


def _linked(previous: bytes, header: tuple[Any, ...], payload_digest: str) -> bytes:
    said = [CHAIN_FORMAT, *header, payload_digest]
    return hashlib.sha256(previous + (plainly_written(said) or canonical(said))).digest()


def place(
    stream: Stream,
    version: int,
    events: Sequence[NewEvent],
    *,
    after_seq: int,
    previous: str,
    at_us: int,
    tenant: str,
    session: str,
) -> list[tuple[StoredEvent, str]]:
    """New events of one stream at their place in the log, each with its payload's digest.

    `version` and `after_seq` are the last ones taken, `previous` is the hash of the event before.
    """
    placed: list[tuple[StoredEvent, str]] = []
    last = bytes.fromhex(previous)
    for step, new in enumerate(events, 1):
        digest = sha256_hex(new.payload)
        header = (
            after_seq + step, stream.kind, stream.id, version + step, new.type, new.format, at_us,
            new.cause, new.actor, tenant, session, new.moves_state,
        )  # fmt: skip
        last = _linked(last, header, digest)
        placed.append((StoredEvent(*header, new.payload, last.hex()), digest))
    return placed

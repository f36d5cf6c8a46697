"""The chain's bytes, written down once more by hand: whoever has a row and this page can recompute it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from governance.chain import genesis, link, place
from interlock.event import NewEvent, StoredEvent, Stream

EVENT = StoredEvent(
    7, "invocation", "i-1", 2, "ApprovalGranted", 1, 1_700_000_000_000_000, "event:6", "governor", "default",
    "s-1", True, b'{"by":"policy"}', "",
)  # fmt: skip
PREVIOUS = "ab" * 32


def by_hand(previous: str, *header: Any) -> str:
    text = json.dumps(["interlock.chain.v1", *header], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(bytes.fromhex(previous) + text.encode()).hexdigest()


def test_a_link_is_made_of_the_hash_before_the_header_and_the_payload_digest() -> None:
    digest = hashlib.sha256(EVENT.payload).hexdigest()
    header = (
        7, "invocation", "i-1", 2, "ApprovalGranted", 1, 1_700_000_000_000_000, "event:6", "governor",
        "default", "s-1", True, digest,
    )  # fmt: skip
    assert link(PREVIOUS, EVENT, digest) == by_hand(PREVIOUS, *header)


def test_the_first_link_hangs_on_the_incarnation() -> None:
    assert genesis("inc-1") == hashlib.sha256(b'["interlock.chain.v1","inc-1"]').hexdigest()


def test_a_payload_may_be_archived_and_its_link_still_stands() -> None:
    digest = hashlib.sha256(EVENT.payload).hexdigest()
    assert link(PREVIOUS, EVENT._replace(payload=b""), digest) == link(PREVIOUS, EVENT, digest)


@pytest.mark.parametrize("field", [name for name in StoredEvent._fields if name not in ("payload", "hash")])
def test_every_field_of_the_header_is_covered(field: str) -> None:
    value: Any = getattr(EVENT, field)
    other: Any = not value if isinstance(value, bool) else value + (1 if isinstance(value, int) else "x")
    changed = EVENT._replace(**{field: other})
    assert link(PREVIOUS, changed, "d" * 64) != link(PREVIOUS, EVENT, "d" * 64)


def test_new_events_follow_each_other() -> None:
    new = [NewEvent("A", b"1", "c", "a"), NewEvent("B", b"2", "c", "a", moves_state=False)]
    placed = place(
        Stream("invocation", "i-1"), 3, new, after_seq=9, previous=PREVIOUS, at_us=5, tenant="t", session="s"
    )
    (first, first_digest), (second, second_digest) = placed
    assert [(event.seq, event.version, event.type) for event, _ in placed] == [(10, 4, "A"), (11, 5, "B")]
    assert first.hash == link(PREVIOUS, first, first_digest)
    assert second.hash == link(first.hash, second, second_digest)
    assert (first_digest, second.moves_state) == (hashlib.sha256(b"1").hexdigest(), False)

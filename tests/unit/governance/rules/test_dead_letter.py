"""What is kept of an item that nobody could take in."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from governance.dead_letter import DEAD_LETTERS, FIRST_BYTES, DeadLetter, record_dead_letters
from governance.memory_ledger import InMemoryLedger
from interlock.canonical import sha256_hex
from interlock.clock import ManualClock
from interlock.decision import Reason

RAW = b'{"password": "s3cret"}' + b"x" * FIRST_BYTES


def kept(code: str) -> dict[str, Any]:
    ledger = InMemoryLedger(ManualClock())
    record_dead_letters(ledger, [DeadLetter(RAW, "interlock.propose", Reason(code=code, sentence="why"))])
    with ledger.read() as view:
        [event] = view.events([DEAD_LETTERS])[DEAD_LETTERS]
    body: dict[str, Any] = event.body()
    return body


def test_of_what_is_no_envelope_the_beginning_is_kept() -> None:
    assert b64decode(kept("NOT_AN_ENVELOPE")["first_base64"]) == RAW[:FIRST_BYTES]


def test_of_what_ended_its_readers_only_digest_and_size_are_kept() -> None:
    body = kept("POISON")
    assert body["first_base64"] == ""
    assert (body["sha256"], body["size_bytes"]) == (sha256_hex(RAW), len(RAW))

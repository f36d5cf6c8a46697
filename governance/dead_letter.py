"""Dead letters: queue items that nobody could take in, kept as evidence: reason, digest and size.

Of what is no envelope the beginning is kept as well; what ended its readers may hold a proposal's secrets.
Never decodes one.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from governance.ledger import Append, Ledger
from interlock.canonical import sha256_hex
from interlock.decision import Reason
from interlock.event import DeadLettered, evidence_stream, new_event

DEAD_LETTERS = evidence_stream("dead-letters")
FIRST_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One item that cannot be read, and why."""

    raw: bytes
    queue: str
    reason: Reason


def record_dead_letters(ledger: Ledger, letters: Sequence[DeadLetter]) -> None:
    """Keep each as an event. Raises LedgerUnavailableError, after which none is kept."""
    if not letters:
        return
    events = [
        new_event(_payload(letter), cause=f"queue:{letter.queue}", actor="governance") for letter in letters
    ]
    with ledger.write([str(DEAD_LETTERS)]) as transaction:
        transaction.append([Append(DEAD_LETTERS, -1, events)])


def _payload(letter: DeadLetter) -> DeadLettered:
    return DeadLettered(
        reason=letter.reason,
        sha256=sha256_hex(letter.raw),
        size_bytes=len(letter.raw),
        first_base64="" if letter.reason.code == "POISON" else _beginning(letter.raw),
        queue=letter.queue,
    )


def _beginning(raw: bytes) -> str:
    return b64encode(raw[:FIRST_BYTES]).decode()

"""Outcomes before their receipts are sealed: what is to be sealed, and the report once it is.

Decides nothing and signs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from governance.execution import Outcome, Reported, Written
from interlock.canonical import Fragment, plainly_written
from interlock.receipt import Receipt, SealedReceipt
from interlock.seal import Seal
from interlock.word import Word
from workers.claim import Prepared


class Sealed(NamedTuple):
    """The digest of a receipt under the pool's seal."""

    digest: str
    seal: Seal


@dataclass(frozen=True, slots=True)
class Draft:
    """An outcome before its receipt is sealed."""

    prepared: Prepared
    receipt: Receipt | None
    event: Callable[[SealedReceipt | None], Outcome]
    evidence: tuple[Word, ...] = ()
    wait_us: int = 0

    def receipt_bytes(self) -> bytes | None:
        """What is to be sealed."""
        return None if self.receipt is None else self.receipt.to_bytes()

    def reported(self, sealed: Sealed | None) -> Reported:
        """The report, with its receipt as it was sealed."""
        held = None
        if self.receipt is not None and sealed is not None:
            held = SealedReceipt(receipt=self.receipt, receipt_digest=sealed.digest, seal=sealed.seal)
        return _reported(self.prepared, self.event(held), self.evidence, self.wait_us)


@dataclass(frozen=True, slots=True)
class PlainDraft:
    """A completion of the plainest kind before it is sealed: its receipt is written already."""

    prepared: Prepared
    receipt: bytes

    def receipt_bytes(self) -> bytes:
        """What is to be sealed."""
        return self.receipt

    def reported(self, sealed: Sealed | None) -> Reported:
        """The report, whose event is written around the receipt's own bytes."""
        assert sealed is not None, "what completed has a receipt"
        held = {
            "receipt": Fragment(self.receipt),
            "receipt_digest": sealed.digest,
            "seal": Fragment(sealed.seal.to_bytes()),
        }
        nonce = self.prepared.nonce
        payload = plainly_written({"nonce": nonce, "sealed": held})
        assert payload is not None, "ids, digests and what is canonical already"
        return _reported(self.prepared, Written(nonce, payload))


def _reported(
    prepared: Prepared, told: Outcome | Written, evidence: tuple[Word, ...] = (), wait_us: int = 0
) -> Reported:
    return Reported(prepared.invocation_id, told, prepared.work.head.stage_key, evidence, wait_us)

"""Anchors against the chain: what was signed outside the ledger must still be in it, unchanged.

Reads anchors, never writes one. An anchor that no trusted key signed proves nothing, and is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from governance.anchor import Anchor, read_anchors
from governance.verification.fault import FaultCode, Faults
from interlock.seal import SealVerifier


class AnchorCheck:
    """Holds the anchors of all places and notes the chain's hashes at their numbers; judges at the end."""

    def __init__(self, incarnation: str, faults: Faults) -> None:
        self._incarnation = incarnation
        self._faults = faults
        self._anchors: list[tuple[str, Anchor]] = []
        self._hashes: dict[int, str] = {}
        self.agreed = 0
        """The highest number up to which every anchor agrees."""

    def load(self, paths: Sequence[Path]) -> None:
        """Read every place; what is no anchor at all is named at once."""
        for path in paths:
            try:
                for line in read_anchors(path):
                    self._take(f"{path}:{line.number}", line.anchor)
            except OSError as error:
                self._faults.add(None, FaultCode.ANCHOR_UNREADABLE, f"{path}: {error.strerror}")

    def feed(self, seq: int, hash_: str) -> None:
        """Note an event's hash where an anchor speaks of it."""
        if seq in self._hashes:
            self._hashes[seq] = hash_

    def end(self, last: int, verifier: SealVerifier) -> None:
        """Name the first event that the anchors no longer vouch for, and what is gone."""
        trusted = [
            (where, anchor) for where, anchor in self._anchors if self._is_ours(where, anchor, verifier)
        ]
        ahead = [(where, anchor) for where, anchor in trusted if anchor.head.seq > last]
        for where, anchor in sorted(trusted, key=lambda each: each[1].head.seq):
            found = self._hashes[anchor.head.seq]
            if found and found != anchor.head.hash:
                said = f"from here to {anchor.head.seq} the chain is not the one that was anchored ({where})"
                self._faults.add(self.agreed + 1, FaultCode.ANCHOR_MISMATCH, said)
                break
            self.agreed = anchor.head.seq if found else self.agreed
        if ahead:
            where, anchor = max(ahead, key=lambda each: each[1].head.seq)
            said = f"event {anchor.head.seq} was anchored, and the ledger ends at {last} ({where})"
            self._faults.add(last + 1, FaultCode.ANCHOR_AHEAD, said)

    def _take(self, where: str, anchor: Anchor | None) -> None:
        if anchor is None:
            self._faults.add(None, FaultCode.ANCHOR_UNREADABLE, f"{where} is no anchor")
            return
        self._anchors.append((where, anchor))
        self._hashes[anchor.head.seq] = ""

    def _is_ours(self, where: str, anchor: Anchor, verifier: SealVerifier) -> bool:
        head = anchor.head
        if not verifier.verify(anchor.head_digest, anchor.seal):
            self._faults.add(head.seq, FaultCode.ANCHOR_SEAL, f"{where} is not signed by a known key")
            return False
        if head.incarnation != self._incarnation:
            said = f"{where} is of ledger {head.incarnation}"
            self._faults.add(head.seq, FaultCode.ANCHOR_FOREIGN, said)
            return False
        return True

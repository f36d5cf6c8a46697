"""Anchors against the chain: what was signed outside the ledger must still be in it, unchanged.

Reads anchors, never writes one. An anchor that no trusted key signed proves nothing, and is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from governance.anchor import Anchor, read_anchors
from governance.verification.fault import FaultCode, Faults
from interlock.seal import SealVerifier

OWN_AFTER_US = 60_000_000
"""How long an installation works before it has anchored its ledger at least once, many times over."""
_GAP_US_MAX = 10_000_000


class OwnCheck:
    """Whether an installation that has worked for long enough still has the anchors that it made itself."""

    def __init__(self) -> None:
        self._before_us: int | None = None
        self._worked_us = 0

    def feed(self, at_us: int) -> None:
        """Take the time of the next event; while nothing happens it may not have been running."""
        if self._before_us is not None:
            self._worked_us += min(max(0, at_us - self._before_us), _GAP_US_MAX)
        self._before_us = at_us

    def end(self, path: Path, faults: Faults) -> None:
        """Name the file that ought to be there. That one was cut short, only a copy elsewhere can tell."""
        if self._worked_us > OWN_AFTER_US and not _holds_any(path):
            worked = self._worked_us // 1_000_000
            said = f"{path} holds no anchor, and the ledger shows {worked} seconds of work"
            faults.add(None, FaultCode.ANCHOR_MISSING, said)


def _holds_any(path: Path) -> bool:
    try:
        return any(line.anchor is not None for line in read_anchors(path))
    except OSError:
        return False


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

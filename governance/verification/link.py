"""The chain, row by row: every number has its row, and every hash follows from the row and the one before.

A bad row is named and passed; what follows is judged on its own.
"""

from __future__ import annotations

from governance.chain import genesis, link
from governance.verification.fault import FaultCode, Faults
from governance.verification.record import EventRecord
from interlock.canonical import sha256_hex
from interlock.errors import NotJsonError
from interlock.event import StoredEvent


class ChainWalk:
    """Fed with every row in the order of its number."""

    def __init__(self, incarnation: str, faults: Faults) -> None:
        self._faults = faults
        self._follows: frozenset[str] = frozenset((genesis(incarnation),))
        self.events = 0
        self.last = 0
        """The highest number seen."""
        self.head = genesis(incarnation)
        """The hash of the last row."""

    def feed(self, record: EventRecord) -> None:
        """Judge one row."""
        self.events += 1
        if record.place < 1:
            self._faults.add(record.place, FaultCode.ROW_INSERTED, "no event has such a number")
            return
        if record.place != self.last + 1:
            self._miss(self.last + 1, record.place - 1)
        self.last = record.place
        if record.event is None:
            self._faults.add(record.place, FaultCode.ROW_UNREADABLE, "the row holds no event")
            self._follows = frozenset()
            return
        self._judge(record.event, record.payload_digest)

    def end(self, issued_seq: int) -> None:
        """Judge what is no longer there."""
        if issued_seq > self.last:
            gone = f"events up to {issued_seq} were written and are gone"
            self._faults.add(self.last + 1, FaultCode.TAIL_CUT, gone)

    def _miss(self, first: int, last: int) -> None:
        which = f"event {first} is" if first == last else f"events {first} to {last} are"
        self._faults.add(first, FaultCode.ROW_MISSING, f"{which} missing")
        # Without the row before, this one's hash can be compared with nothing.
        self._follows = frozenset()

    def _judge(self, event: StoredEvent, stored_digest: str) -> None:
        digest = sha256_hex(event.payload)
        if digest != stored_digest:
            self._faults.add(event.seq, FaultCode.PAYLOAD_CHANGED, "the payload is not the one of its digest")
        recomputed = {_link(previous, event, digest) for previous in self._follows}
        if recomputed and event.hash not in recomputed:
            before = f"event {event.seq - 1}" if event.seq > 1 else "the beginning of this ledger"
            self._faults.add(event.seq, FaultCode.ROW_CHANGED, f"it does not follow from {before}")
            # Either its content was changed or its hash: the next row may follow from both.
            self._follows = frozenset((event.hash, *recomputed))
        else:
            self._follows = frozenset((event.hash,))
        self.head = event.hash


def _link(previous: str, event: StoredEvent, digest: str) -> str:
    try:
        return link(previous, event, digest)
    except (NotJsonError, ValueError):
        return ""

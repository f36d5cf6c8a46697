"""What can be wrong with a ledger, and the list that the checks write it into. Bounded, and says so."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

FAULTS_MAX = 1_000


class FaultCode(StrEnum):
    """The kinds of faults; stable names."""

    ROW_UNREADABLE = "ROW_UNREADABLE"
    """A row that holds no event."""
    ROW_CHANGED = "ROW_CHANGED"
    """A row whose hash does not follow from its content and the event before."""
    ROW_MISSING = "ROW_MISSING"
    """A number that was given out and has no row."""
    ROW_INSERTED = "ROW_INSERTED"
    """A row at a number that is never given out."""
    TAIL_CUT = "TAIL_CUT"
    """The last numbers that were given out have no rows."""
    ROW_UNNUMBERED = "ROW_UNNUMBERED"
    """A row that has had no number for longer than numbering takes: no chain covers it."""
    PAYLOAD_CHANGED = "PAYLOAD_CHANGED"
    """A payload whose digest is not the one beside it."""
    INCARNATION = "INCARNATION"
    """The ledger does not begin as itself."""
    ANCHOR_UNREADABLE = "ANCHOR_UNREADABLE"
    ANCHOR_SEAL = "ANCHOR_SEAL"
    """An anchor that no trusted key signed."""
    ANCHOR_FOREIGN = "ANCHOR_FOREIGN"
    """An anchor of another ledger."""
    ANCHOR_AHEAD = "ANCHOR_AHEAD"
    """An anchor of an event that the ledger no longer has: it was cut or put back."""
    ANCHOR_MISMATCH = "ANCHOR_MISMATCH"
    """An anchor with another hash: the chain was made anew."""
    ANCHOR_MISSING = "ANCHOR_MISSING"
    """A ledger old enough to have been anchored, and none of its own anchors."""
    KEY_UNREADABLE = "KEY_UNREADABLE"
    KEY_MISMATCH = "KEY_MISMATCH"
    """A key in the ledger that is not one of those known outside it."""
    VERSION_GAP = "VERSION_GAP"
    """A stream whose versions are not 1, 2, 3, …"""
    TIME_BACK = "TIME_BACK"
    """An event that is earlier than the one before in its stream."""
    STREAM_HEADLESS = "STREAM_HEADLESS"
    """An event whose stream has no head."""
    ROW_HIDDEN = "ROW_HIDDEN"
    """Rows that reading by stream does not show."""
    EVENT_UNREADABLE = "EVENT_UNREADABLE"
    """A payload that is not what its type says."""
    EVENT_UNKNOWN = "EVENT_UNKNOWN"
    """A type that moves state and that this program does not know."""
    MOVE_ILLEGAL = "MOVE_ILLEGAL"
    SESSION_MISSING = "SESSION_MISSING"
    SESSION_DIFFERS = "SESSION_DIFFERS"
    """One id in two sessions, or a row and its payload that name two."""
    ARGUMENTS_CHANGED = "ARGUMENTS_CHANGED"
    ACTION_CHANGED = "ACTION_CHANGED"
    """A request that is not the action its digest names."""
    PERMIT_MISMATCH = "PERMIT_MISMATCH"
    START_UNGRANTED = "START_UNGRANTED"
    """An execution without a grant of its tier before it."""
    GRANT_UNFOUNDED = "GRANT_UNFOUNDED"
    """A grant that neither its session's mode nor enough answers carry."""
    CONTRACT_DIFFERS = "CONTRACT_DIFFERS"
    """A request that says something else of its tool than the contract it names."""
    PERMIT_EXPIRED = "PERMIT_EXPIRED"
    """An execution that began outside the validity of its permit."""
    RECEIPT_CHANGED = "RECEIPT_CHANGED"
    RECEIPT_SEAL = "RECEIPT_SEAL"
    """A receipt that no pool signed."""
    RECEIPT_FOREIGN = "RECEIPT_FOREIGN"
    """A receipt of another execution."""
    HEAD_DIFFERS = "HEAD_DIFFERS"
    """A head that is not what its events fold to."""
    DUE_MISSING = "DUE_MISSING"
    """An invocation that waits for something and has no due row."""
    DUE_STRAY = "DUE_STRAY"
    """A due row of nothing that waits, or for something else than it waits for."""
    CONTRACT_CHANGED = "CONTRACT_CHANGED"
    """A contract whose bytes are not those of its digest."""
    CONTRACT_MISSING = "CONTRACT_MISSING"
    """A registered contract whose bytes are gone."""
    CONTRACT_STRAY = "CONTRACT_STRAY"
    """A contract that nobody registered."""
    DENIAL_MISSING = "DENIAL_MISSING"
    """An answer of no that no longer stands for its action."""
    DENIAL_STRAY = "DENIAL_STRAY"
    """A denial that nobody gave."""
    KEY_UNBOUND = "KEY_UNBOUND"
    """An idempotency key that is not bound to the invocation that it belongs to."""
    KEY_STRAY = "KEY_STRAY"
    """An idempotency key that is bound to what did not ask for it."""
    EPOCH_DIFFERS = "EPOCH_DIFFERS"
    """A control epoch that is not what its events raised it to."""


class Fault(NamedTuple):
    """One thing that is wrong; `seq` is the event it is about, None where it is about no event."""

    seq: int | None
    code: FaultCode
    detail: str


class Faults:
    """Collects faults up to a bound and counts the rest."""

    def __init__(self, most: int = FAULTS_MAX) -> None:
        self._most = most
        self._kept: list[Fault] = []
        self._dropped = 0

    def add(self, seq: int | None, code: FaultCode, detail: str) -> None:
        """Note one fault."""
        if len(self._kept) < self._most:
            self._kept.append(Fault(seq, code, detail))
        else:
            self._dropped += 1

    @property
    def count(self) -> int:
        """All faults, the dropped ones included."""
        return len(self._kept) + self._dropped

    def in_order(self) -> list[Fault]:
        """The kept ones by event; those about none come last."""
        return sorted(self._kept, key=lambda fault: (fault.seq is None, fault.seq or 0, fault.code))

"""What stands beside the events: each head is what its events fold to, each wait has its due row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from governance.ledger import Head
from governance.verification.fact import UNREADABLE
from governance.verification.fault import FaultCode, Faults
from governance.verification.head import LIVENESS, record_standing_of
from governance.verification.record import StreamRecord
from interlock.event import StoredEvent
from interlock.phase import Phase


class OrderCheck:
    """Fed with the events of one stream: their versions are dense, and their time never goes back."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._count = 0
        self.is_dense = True
        self.first: StoredEvent | None = None
        self.last: StoredEvent | None = None

    def feed(self, event: StoredEvent) -> None:
        """Judge the next event by the one before."""
        self._count += 1
        if event.version != self._count and self.is_dense:
            said = f"version {event.version} of {event.stream} stands where {self._count} belongs"
            self._faults.add(event.seq, FaultCode.VERSION_GAP, said)
            self.is_dense = False
        if self.last is not None and event.at_us < self.last.at_us:
            self._faults.add(
                event.seq, FaultCode.TIME_BACK, "it is earlier than the one before in its stream"
            )
        self.first, self.last = self.first or event, event

    def end(self, head: Head) -> bool:
        """Judge whether the head is as far as the events; whether these are dense."""
        version, seq = (0, None) if self.last is None else (self.last.version, self.last.seq)
        if head.version != version or self.last is None:
            said = f"the head of {head.stream} is at version {head.version}, its events at {version}"
            self._faults.add(seq, FaultCode.HEAD_DIFFERS, said)
        return self.is_dense


def check_order(record: StreamRecord, faults: Faults) -> bool:
    """Whether a stream's versions are dense; also names a time that goes back, and a head that differs."""
    order = OrderCheck(faults)
    for event in record.events:
        order.feed(event)
    return order.end(record.head)


def check_standing(record: StreamRecord, standing: Head, faults: Faults) -> None:
    """Compare a head with what its events add up to, column by column."""
    for column, said, true in _differing(record.head, standing):
        if column == "claimed_us" and _clock_went_back(record, said):
            continue
        detail = f"the head of {record.head.stream} says {column} {said!r}, its events say {true!r}"
        faults.add(_seq_of(record), FaultCode.HEAD_DIFFERS, detail)


def check_record(record: StreamRecord, faults: Faults) -> None:
    """Compare the head of what is no invocation with what its events say."""
    try:
        standing = record_standing_of(record.events)
    except UNREADABLE as error:
        said = f"{record.head.stream} cannot be read: {type(error).__name__}"
        faults.add(_seq_of(record), FaultCode.EVENT_UNREADABLE, said)
        return
    check_standing(record, standing, faults)
    if record.head.ready or record.head.published_us:
        said = f"the head of {record.head.stream} stands in a line"
        faults.add(_seq_of(record), FaultCode.HEAD_DIFFERS, said)
    if record.due is not None:
        said = f"{record.due.what} falls due for {record.head.stream}"
        faults.add(_seq_of(record), FaultCode.DUE_STRAY, said)


def check_line(record: StreamRecord, standing: Head, faults: Faults) -> None:
    """Only what still waits, as the first open one of its stage, may be ready."""
    if not record.head.ready:
        return
    if standing.phase not in _MAY_BE_READY:
        said = f"{record.head.stream} is {standing.phase} and its head says that it is ready"
        faults.add(_seq_of(record), FaultCode.HEAD_DIFFERS, said)
    elif record.before is not None:
        said = f"{record.head.stream} is ready though {record.before} of its stage is open before it"
        faults.add(_seq_of(record), FaultCode.HEAD_DIFFERS, said)


def check_due(record: StreamRecord, standing: Head, faults: Faults) -> None:
    """What waits owns one due row, of the kind that its phase waits for; what is final owns none."""
    due, allowed = record.due, _DUES.get(standing.phase, frozenset())
    if due is None and allowed:
        said = f"{record.head.stream} is {standing.phase} and nothing falls due for it"
        faults.add(_seq_of(record), FaultCode.DUE_MISSING, said)
    if due is not None and due.what not in allowed:
        state = "final" if not allowed else standing.phase
        detail = f"{record.head.stream} is {state} and {due.what} falls due for it"
        faults.add(_seq_of(record), FaultCode.DUE_STRAY, detail)


_MAY_BE_READY = frozenset((Phase.DECIDING.value, Phase.QUEUED.value, Phase.RETRY_WAIT.value))
# Accepted as the first of its stage, it is ready before it is granted; nobody claims it before.

_DUES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        Phase.DECIDING.value: frozenset(("decide",)),
        Phase.AWAITING_APPROVAL.value: frozenset(("approval_expiry", "review")),
        Phase.QUEUED.value: frozenset(("release",)),
        Phase.RUNNING.value: frozenset(("lease",)),
        Phase.RETRY_WAIT.value: frozenset(("retry",)),
        Phase.RECONCILIATION_REQUIRED.value: frozenset(("reconcile",)),
    }
)


def _differing(head: Head, standing: Head) -> Iterator[tuple[str, Any, Any]]:
    found, wanted = _columns_of(head), _columns_of(standing)
    if found != wanted:
        for column, said, true in zip(_COMPARED, found, wanted, strict=True):
            if said != true:
                yield column, said, true


_COMPARED = tuple(name for name in Head._fields if name not in LIVENESS)
_columns_of = attrgetter(*_COMPARED)


def _clock_went_back(record: StreamRecord, claimed_us: int) -> bool:
    """An event is never earlier than the one before; the claim says what the clock said then."""
    claims = [place for place, event in enumerate(record.events) if event.type == "ToolExecutionStarted"]
    if not claims or claims[-1] == 0:
        return False
    claim, before = record.events[claims[-1]], record.events[claims[-1] - 1]
    return claim.at_us == before.at_us and 0 < claimed_us < claim.at_us


def _seq_of(record: StreamRecord) -> int | None:
    return record.events[-1].seq if record.events else None

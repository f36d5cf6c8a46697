"""Proves a ledger, or says by sequence number what is wrong with it. Trusts nothing but raw rows and keys.

First the log row by row (chain, anchors, keys), then stream by stream (meaning, heads, due rows), in pages:
memory is flat. Never runs anything and never repairs anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from governance.keys import KeyPurpose
from governance.ledger import head_with
from governance.verification.beside import RowCheck
from governance.verification.control import EpochCheck
from governance.verification.fact import Facts
from governance.verification.fault import FAULTS_MAX, Fault, FaultCode, Faults
from governance.verification.grant import GrantCheck
from governance.verification.head import with_contract
from governance.verification.key import KeyBook, RingOf
from governance.verification.link import ChainWalk
from governance.verification.meaning import InvocationCheck
from governance.verification.outside import AnchorCheck, OwnCheck
from governance.verification.record import EventRecord, LedgerRecords, StreamRecord
from governance.verification.standing import (
    OrderCheck,
    check_due,
    check_line,
    check_order,
    check_record,
    check_standing,
)
from interlock.canonical import JsonObject
from interlock.event import StoredEvent, Stream, StreamKind
from interlock.seal import Purpose

EVENTS_PAGE = 1_000
STREAMS_PAGE = 200


class Report(NamedTuple):
    """What `verify` found."""

    ok: bool
    events: int
    """Rows that were read."""
    seq: int
    """The highest number among them."""
    head: str
    """Hash of the last row; an auditor may compare it with one kept elsewhere."""
    anchored: int
    """Up to which number anchors agree; what lies behind is vouched for by the ledger alone."""
    faults: list[Fault]
    """By event, at most 1,000."""
    more: int
    """Faults beyond those."""

    def to_json(self) -> JsonObject:
        """The report as one JSON object."""
        faults: list[JsonObject] = [
            {"seq": fault.seq, "code": fault.code.value, "detail": fault.detail} for fault in self.faults
        ]
        return {**self._asdict(), "faults": [*faults]}


def verify(
    records: LedgerRecords,
    anchors: Sequence[Path],
    keys: Mapping[KeyPurpose, Collection[tuple[str, str]]],
    ring_of: RingOf,
    *,
    own: Path | None = None,
) -> Report:
    """Verify all that a ledger holds.

    `anchors` are the files of signed heads, the ones kept elsewhere included; `keys` the (kid, public hex)
    known outside the ledger, by purpose; `ring_of` makes a key ring of kid → public hex; `own` is the file of
    anchors that the installation keeps itself, which a young one does not have yet.
    Raises LedgerUnavailableError and LedgerClosedError where the rows cannot be read at all.
    """
    faults = Faults()
    book = KeyBook(keys, ring_of, records.incarnation, faults)
    places = anchors if own is None or not own.exists() else [own, *anchors]
    log = _read_log(records, book, places, faults)
    if own is not None:
        log.own.end(own, faults)
    rows = RowCheck(records, log.latest_us, faults)
    shown = _read_streams(records, _Judges(book, ring_of, rows), log.walk.last, faults)
    if shown != log.walk.events and not faults.count:
        said = f"the log holds {log.walk.events} rows, its streams show {shown}"
        faults.add(None, FaultCode.ROW_HIDDEN, said)
    _read_dues(records, faults)
    rows.check_rows()
    kept = faults.in_order()
    walk, more = log.walk, faults.count - len(kept)
    return Report(not kept, walk.events, walk.last, walk.head, log.anchors.agreed, kept, more)


class _Log(NamedTuple):
    walk: ChainWalk
    anchors: AnchorCheck
    own: OwnCheck
    latest_us: int = 0


def _read_log(records: LedgerRecords, book: KeyBook, anchors: Sequence[Path], faults: Faults) -> _Log:
    """The first pass, over every row by its number; what is appended while it reads is read too."""
    log = _Log(ChainWalk(records.incarnation, faults), AnchorCheck(records.incarnation, faults), OwnCheck())
    log.anchors.load(anchors)
    # Asked before the rows, so that a ledger that is written to meanwhile never seems cut.
    issued_seq = records.issued_seq()
    epoch = EpochCheck(records.epoch(), faults)
    latest_us = 0
    for page in _pages_of_events(records):
        for record in page:
            log.walk.feed(record)
            if record.event is not None:
                log.anchors.feed(record.place, record.event.hash)
                book.feed(record.event)
                epoch.feed(record.event)
                log.own.feed(record.event.at_us)
                latest_us = max(latest_us, record.event.at_us)
        _check_heads_exist(records, page, faults)
    log.walk.end(issued_seq)
    for event in records.unsequenced(FAULTS_MAX):
        said = f"{event.stream} at version {event.version}: is no relay running?"
        faults.add(None, FaultCode.ROW_UNNUMBERED, said)
    epoch.end(records.epoch())
    log.anchors.end(log.walk.last, book.verifier(KeyPurpose.ANCHOR, Purpose.ANCHOR))
    return log._replace(latest_us=latest_us)


def _check_heads_exist(records: LedgerRecords, page: Sequence[EventRecord], faults: Faults) -> None:
    firsts: dict[Stream, int] = {}
    for record in page:
        if record.event is not None:
            firsts.setdefault(record.event.stream, record.place)
    for stream in records.headless(firsts.keys()):
        faults.add(firsts[stream], FaultCode.STREAM_HEADLESS, f"{stream} has events and no head")


class _Judges(NamedTuple):
    book: KeyBook
    ring_of: RingOf
    rows: RowCheck


def _read_streams(records: LedgerRecords, judges: _Judges, last: int, faults: Faults) -> int:
    """The second pass; how many rows of the first one it was shown."""
    facts = Facts(records)
    check = InvocationCheck(
        judges.book.verifier(KeyPurpose.GOVERNANCE, Purpose.PERMIT),
        judges.book.verifier(KeyPurpose.POOL, Purpose.RECEIPT),
        GrantCheck(facts, judges.ring_of, faults),
        faults,
    )
    shown = 0
    for page in _pages_of_streams(records):
        facts.load(page)
        for record in page:
            if record.head.kind == StreamKind.EVIDENCE:
                shown += _read_evidence(records, record, last, faults)
                continue
            shown += sum(event.seq <= last for event in record.events)
            if check_order(record, faults):
                _check_head(record, check, facts, faults)
        judges.rows.check_page(page)
    return shown


def _read_evidence(records: LedgerRecords, record: StreamRecord, last: int, faults: Faults) -> int:
    """Judge a stream that may be as long as the log; how many rows of the first pass it was shown."""
    order, shown = OrderCheck(faults), 0
    for event in _events_of_stream(records, record.head.stream):
        if event.version > record.head.version and event.seq > last:
            break  # appended since its head was read
        shown += event.seq <= last
        order.feed(event)
    if order.end(record.head) and order.first is not None and order.last is not None:
        # What such a head says depends on nothing in between.
        check_record(record._replace(events=[order.first, order.last]), faults)
    return shown


def _check_head(record: StreamRecord, check: InvocationCheck, facts: Facts, faults: Faults) -> None:
    """Compare one head with its events, where they can be read."""
    if record.head.kind != StreamKind.INVOCATION:
        if record.events:
            check_record(record, faults)
        return
    standing = check.check(record.events)
    if standing is None:
        return
    contract = facts.contract(standing.contract_digest)
    if contract is None and standing.contract_digest:
        # That it is gone is named where it was registered; what it said of this head cannot be known.
        guards, batchable = record.head.guards_twins, record.head.batchable
        standing = head_with(standing, guards_twins=guards, batchable=batchable)
    else:
        standing = with_contract(standing, contract)
    check_standing(record, standing, faults)
    check_line(record, standing, faults)
    check_due(record, standing, faults)


def _read_dues(records: LedgerRecords, faults: Faults) -> None:
    after: Stream | None = None
    while page := records.dues(after, EVENTS_PAGE):
        streams = [Stream(due.kind, due.id) for due in page]
        for stream in sorted(records.headless(streams)):
            faults.add(None, FaultCode.DUE_STRAY, f"something falls due for {stream}, which has no head")
        if streams[-1] == after:
            break  # As below.
        after = streams[-1]


def _pages_of_events(records: LedgerRecords) -> Iterator[list[EventRecord]]:
    after: int | None = None
    while page := records.events(after, EVENTS_PAGE):
        yield page
        after = page[-1].place


def _events_of_stream(records: LedgerRecords, stream: Stream) -> Iterator[StoredEvent]:
    after: int | None = None
    while page := records.events_of_stream(stream, after, EVENTS_PAGE):
        yield from page
        after = page[-1].version


def _pages_of_streams(records: LedgerRecords) -> Iterator[list[StreamRecord]]:
    after: Stream | None = None
    while page := records.streams(after, STREAMS_PAGE):
        yield page
        if page[-1].head.stream == after:
            break  # A name that is no text sorts after itself, and was named already.
        after = page[-1].head.stream

"""The rows that stand beside the events and decide: contracts, denials, idempotency keys; both ways round.

What an event promises must have its row, and each row an event that says so. Reads pages, keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from governance.append import KEY_LIFE_US
from governance.ledger import KeyName, KeyOwner
from governance.verification.fact import UNREADABLE, readable_contract
from governance.verification.fault import FaultCode, Faults
from governance.verification.record import LedgerRecords, StreamRecord
from interlock.canonical import canonical, sha256_hex
from interlock.event import StoredEvent, Stream, StreamKind, invocation_stream

ROWS_PAGE = 500

_Row = TypeVar("_Row", tuple[str, bytes], tuple[str, str], tuple[KeyName, KeyOwner])
_Place = TypeVar("_Place", str, KeyName)


class _Bound(NamedTuple):
    """An accepted request under a key."""

    event: StoredEvent
    name: KeyName
    owner: KeyOwner
    final_us: int | None
    """When it became final, None while it is open."""

    def is_over(self, later_us: int) -> bool:
        """Whether the key was free for another by then."""
        return self.final_us is not None and later_us - self.final_us >= KEY_LIFE_US


class RowCheck:
    """Compares rows with events."""

    def __init__(self, records: LedgerRecords, latest_us: int, faults: Faults) -> None:
        """`latest_us` is the time of the newest event: no key is judged to be older than that makes it."""
        self._records = records
        self._latest_us = latest_us
        self._faults = faults

    def check_page(self, page: Sequence[StreamRecord]) -> None:
        """Whether the events of these streams have the rows they promise."""
        self._contracts_of(page)
        self._denials_of(page)
        self._keys_of(page)

    def check_rows(self) -> None:
        """Whether every row has an event that says so."""
        for contracts in _pages(self._records.contracts, _text_place):
            self._check_contracts(contracts)
        for denials in _pages(self._records.denials, _text_place):
            self._check_denials(denials)
        for owners in _pages(self._records.owners, _key_place):
            self._check_owners(owners)

    # --- from events to rows -----------------------------------------------------------------------------

    def _contracts_of(self, page: Sequence[StreamRecord]) -> None:
        tools = [record for record in page if record.head.kind == StreamKind.TOOL]
        said = {event.seq: (event, body) for record in tools for event, body in _read(record.events)}
        bodies = self._records.contracts_of({str(body["contract_digest"]) for _, body in said.values()})
        for event, body in said.values():
            digest, contract = str(body["contract_digest"]), canonical(body["contract"])
            if sha256_hex(contract) != digest:
                self._add(event, FaultCode.CONTRACT_CHANGED, f"the contract in the event is not {digest}")
            elif digest not in bodies:
                self._add(event, FaultCode.CONTRACT_MISSING, f"nothing is kept under {digest}")
            elif bodies[digest] != contract:
                self._add(event, FaultCode.CONTRACT_CHANGED, f"what is kept under {digest} is another")

    def _denials_of(self, page: Sequence[StreamRecord]) -> None:
        denied = {
            digest: event
            for record in page
            if record.head.kind == StreamKind.INVOCATION
            for digest, event in _denials(record.events)
        }
        rows = self._records.denials_of(denied.keys()) if denied else {}
        for digest in denied.keys() - rows.keys():
            said = "no row keeps its action from being asked for again"
            self._add(denied[digest], FaultCode.DENIAL_MISSING, said)

    def _keys_of(self, page: Sequence[StreamRecord]) -> None:
        bound = [one for record in page if (one := _bound(record.events)) is not None]
        rows = self._records.owners_of({one.name for one in bound}) if bound else {}
        others = {row.invocation_id for one in bound if (row := rows.get(one.name)) not in (None, one.owner)}
        later = self._first_events(others)
        for one in bound:
            row = rows.get(one.name)
            if row == one.owner:
                continue
            heir = None if row is None else later.get(row.invocation_id)
            if not one.is_over(self._latest_us if row is None else 0 if heir is None else heir.at_us):
                found = "nothing" if row is None else row.invocation_id
                said = f"its idempotency key {one.name.key!r} is bound to {found}"
                self._add(one.event, FaultCode.KEY_UNBOUND, said)

    def _first_events(self, invocation_ids: set[str]) -> dict[str, StoredEvent]:
        streams = {invocation_stream(identifier) for identifier in invocation_ids}
        found = self._records.events_of(streams) if streams else {}
        return {stream.id: events[0] for stream, events in found.items()}

    # --- from rows to events -----------------------------------------------------------------------------

    def _check_contracts(self, rows: Sequence[tuple[str, bytes]]) -> None:
        read = {digest: readable_contract(digest, body) for digest, body in rows}
        for digest in (digest for digest, contract in read.items() if contract is None):
            said = f"what is kept under {digest} does not have this digest"
            self._faults.add(None, FaultCode.CONTRACT_CHANGED, said)
        streams = {
            digest: Stream(StreamKind.TOOL.value, contract.qualified_name)
            for digest, contract in read.items()
            if contract is not None
        }
        events = self._records.events_of(set(streams.values()))
        for digest, stream in streams.items():
            if all(body["contract_digest"] != digest for _, body in _read(events.get(stream, []))):
                said = f"{digest} is kept for {stream.id}, and nobody registered it"
                self._faults.add(None, FaultCode.CONTRACT_STRAY, said)

    def _check_denials(self, rows: Sequence[tuple[str, str]]) -> None:
        events = self._records.events_of({invocation_stream(identifier) for _, identifier in rows})
        for digest, identifier in rows:
            found = events.get(invocation_stream(identifier), [])
            if digest not in dict(_denials(found)):
                said = f"{digest} counts as denied by {identifier}, which says no such thing"
                self._faults.add(None, FaultCode.DENIAL_STRAY, said)

    def _check_owners(self, rows: Sequence[tuple[KeyName, KeyOwner]]) -> None:
        events = self._records.events_of({invocation_stream(owner.invocation_id) for _, owner in rows})
        for name, owner in rows:
            bound = _bound(events.get(invocation_stream(owner.invocation_id), []))
            if bound is None or (bound.name, bound.owner) != (name, owner):
                said = f"key {name.key!r} of {name.client} is bound to {owner.invocation_id}"
                self._faults.add(None, FaultCode.KEY_STRAY, f"{said}, which did not ask so")

    def _add(self, event: StoredEvent, code: FaultCode, detail: str) -> None:
        self._faults.add(event.seq, code, f"{event.stream}: {detail}")


def _read(events: Sequence[StoredEvent]) -> Iterator[tuple[StoredEvent, Mapping[str, Any]]]:
    """What registrations say, where they can be read; where not, that is named by their head's check."""
    for event in events:
        try:
            body = event.body()
            canonical(body["contract"])
            yield event, {**body, "contract_digest": str(body["contract_digest"])}
        except UNREADABLE:
            continue


def _denials(events: Sequence[StoredEvent]) -> Iterator[tuple[str, StoredEvent]]:
    """The action that an invocation asked for, where an approver said no to it."""
    for event in events:
        if event.type == "ApprovalDenied":
            try:
                yield str(events[0].body()["action_digest"]), event
            except UNREADABLE:
                return


def _bound(events: Sequence[StoredEvent]) -> _Bound | None:
    """The binding that an accepted request under a key makes; None where there is none.

    What is refused is so in the append that records it, and binds nothing.
    """
    if not events or b'"key":null' in events[0].payload or events[0].kind != StreamKind.INVOCATION:
        return None
    if len(events) > 1 and events[1].type == "ToolExecutionRejected":
        return None
    try:
        body = events[0].body()
        if body["key"] is None:
            return None
        name = KeyName(body["tenant"], body["client"], body["key"])
        owner = KeyOwner(events[0].stream_id, body["request_digest"])
    except UNREADABLE:
        return None
    is_final = events[-1].type in _FINAL
    return _Bound(events[0], name, owner, events[-1].at_us if is_final else None)


_FINAL = frozenset(
    ("ToolExecutionCompleted", "ToolExecutionFailed", "ToolExecutionRejected", "ReconciliationResolved")
)


def _pages(
    read: Callable[[_Place | None, int], list[_Row]], place: Callable[[_Row], _Place]
) -> Iterator[list[_Row]]:
    after: _Place | None = None
    while page := read(after, ROWS_PAGE):
        yield page
        if place(page[-1]) == after:
            break  # A name that is no text sorts after itself, and was named already.
        after = place(page[-1])


def _text_place(row: tuple[str, bytes] | tuple[str, str]) -> str:
    return row[0]


def _key_place(row: tuple[KeyName, KeyOwner]) -> KeyName:
    return row[0]

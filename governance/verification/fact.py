"""What judging a page of invocations needs of other streams, as their events say it.

Reads a page's worth at a time and keeps a bounded number of contracts; believes no head and no row as such.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from governance.principal import Principal, principal_of, principal_stream
from governance.session import session_stream
from governance.verification.record import LedgerRecords, StreamRecord
from interlock.canonical import read_stored, sha256_hex
from interlock.contract import Tool
from interlock.errors import NotJsonError
from interlock.event import PrincipalRegistered, SessionOpened, StoredEvent, Stream, StreamKind
from interlock.tier import SessionMode

CONTRACTS_MAX = 256
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, NotJsonError, ValidationError)


class Opened(NamedTuple):
    """What opened a session."""

    event: StoredEvent
    mode: SessionMode
    client: str
    implicit: bool

    def stands_at(self, event: StoredEvent) -> bool:
        """Whether it was open when this was appended; what nobody opened is opened by its first call."""
        return self.event.seq < event.seq or (self.implicit and self.event.at_us <= event.at_us)


class Facts:
    """Facts for the page that was loaded last."""

    def __init__(self, records: LedgerRecords) -> None:
        self._records = records
        self._contracts: OrderedDict[str, Tool] = OrderedDict()
        self._events: dict[Stream, list[StoredEvent]] = {}

    def load(self, page: Sequence[StreamRecord]) -> None:
        """Read what the invocations of a page speak of."""
        invocations = [record for record in page if record.head.kind == StreamKind.INVOCATION]
        self._events = self._records.events_of(set(_spoken_of(invocations)))
        wanted = {digest for record in invocations if (digest := _contract_of(record.events))}
        for digest in wanted & self._contracts.keys():
            self._contracts.move_to_end(digest)
        wanted -= self._contracts.keys()
        for digest, body in (self._records.contracts_of(wanted) if wanted else {}).items():
            contract = readable_contract(digest, body)
            if contract is not None:
                self._contracts[digest] = contract
        while len(self._contracts) > CONTRACTS_MAX + len(page):
            self._contracts.popitem(last=False)

    def contract(self, digest: str) -> Tool | None:
        """The contract with this digest; None where the ledger keeps none that has it."""
        return self._contracts.get(digest)

    def session(self, tenant: str, session: str) -> Opened | None:
        """What opened a session; None where nothing did."""
        events = self._events.get(session_stream(tenant, session), [])
        try:
            opened = SessionOpened.model_validate(events[0].body())
            return Opened(events[0], SessionMode(opened.mode), opened.client, opened.implicit)
        except UNREADABLE:
            return None

    def principal(self, name: str, seq: int) -> Principal | None:
        """A principal as it was registered before an event."""
        events = [event for event in self._events.get(principal_stream(name), []) if event.seq < seq]
        try:
            return principal_of(name, PrincipalRegistered.model_validate(events[-1].body()))
        except UNREADABLE:
            return None


def readable_contract(digest: str, body: bytes) -> Tool | None:
    """The contract in these bytes; None where they are not those of the digest."""
    if sha256_hex(body) != digest:
        return None
    try:
        return Tool.model_validate(read_stored(body))
    except UNREADABLE:
        return None


def _spoken_of(records: Iterable[StreamRecord]) -> Iterable[Stream]:
    for record in records:
        for event in record.events:
            if event.version == 1:
                yield session_stream(event.tenant, event.session)
            elif event.type == "ApprovalVoted" and (name := _approver_of(event)):
                yield principal_stream(name)


def _approver_of(event: StoredEvent) -> str:
    try:
        return str(event.body()["vote"]["approver"])
    except UNREADABLE:
        return ""


def _contract_of(events: Sequence[StoredEvent]) -> str:
    try:
        return str(events[0].body()["contract_digest"])
    except UNREADABLE:
        return ""

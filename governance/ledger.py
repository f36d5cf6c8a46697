"""The ledger's port: append at the version that was judged, read it, and what stands beside it.

Every rule above it is written once, against this port. It decides nothing; an adapter never judges an event's
meaning, only its place.

A batch is a set of stream appends in one transaction, each all or none. What spans invocations is serialised
by the transaction's keys (one writer at a time on SQLite, transaction-scoped advisory locks on PostgreSQL).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from interlock.event import NewEvent, StoredEvent, Stream
from interlock.workspace import DEFAULT_TENANT


class StageKey(NamedTuple):
    """The line that one stage of one session stands in."""

    tenant: str
    session: str
    stage: str


class KeyName(NamedTuple):
    """Whose idempotency key."""

    tenant: str
    client: str
    key: str


class KeyOwner(NamedTuple):
    """Which invocation a key is bound to, and what it said."""

    invocation_id: str
    request_digest: str


class Head(NamedTuple):
    """One row a stream: its version, and the columns that deciding, releasing and claiming read.

    The head is a cache of the fold that is written with the events; `verify` compares the two.
    """

    kind: str
    id: str
    version: int = 0
    at_us: int = 0
    """Time of the stream's last event."""
    tenant: str = ""
    session: str = ""
    phase: str = "new"
    data: str = ""
    """JSON of what only streams other than invocations need (a session's mode, a principal's rights)."""
    client: str = ""
    stage: str = ""
    tool: str = ""
    contract_digest: str = ""
    pool: str = ""
    priority: int = 4
    """0 is first, 9 last."""
    accepted_seq: int = 0
    """Sequence number of the request: the order of acceptance."""
    ready: bool = False
    """Granted, and nothing of its stage stands before it."""
    published_us: int = 0
    """When a hint for it was last published; 0 is never since it became ready."""
    attempt: int = 0
    nonce: str = ""
    boot: str = ""
    claimed_us: int = 0
    started: bool = False
    """Whether a claim ever stood."""
    action_digest: str = ""
    request_digest: str = ""
    permit_until_us: int = 0
    epoch: int = 0
    """Control epoch of the permit."""
    deadline_us: int = 0
    """0 is none."""
    may_repeat: bool = False
    guards_twins: bool = False
    external: bool = False
    batchable: bool = False
    alone: bool = False
    """Its next hint carries nothing else."""
    cancel: bool = False

    @property
    def stream(self) -> Stream:
        return Stream(self.kind, self.id)

    @property
    def stage_key(self) -> StageKey:
        return StageKey(self.tenant, self.session, self.stage)

    @property
    def is_open(self) -> bool:
        """Whether the invocation is not final."""
        return self.phase != "done"


_PLACES: Mapping[str, int] = MappingProxyType({name: place for place, name in enumerate(Head._fields)})


def head_with(head: Head, /, **columns: Any) -> Head:
    """The head with other columns; raises KeyError for one that there is none of."""
    values = list(head)
    for name, value in columns.items():
        values[_PLACES[name]] = value
    return Head._make(values)


class Due(NamedTuple):
    """What falls due for a stream, and when by the store's clock. One row a stream."""

    kind: str
    id: str
    what: str
    """`decide`, `approval_expiry`, `review`, `release`, `lease`, `retry`, `reconcile`."""
    at_us: int

    @property
    def stream(self) -> Stream:
        return Stream(self.kind, self.id)


class Append(NamedTuple):
    """New events of one stream, at the version they were judged at, and what stands beside them then."""

    stream: Stream
    expected: int
    """Version the judgement was made on; 0 for a new stream, -1 for evidence (no comparison)."""
    events: Sequence[NewEvent]
    head: Head | None = None
    """The row after the append; the ledger itself sets version, at_us and a new invocation's accepted_seq."""
    due: Due | None = None
    """The stream's due row after the append; None removes it."""
    tenant: str = ""
    session: str = ""


class Boot(NamedTuple):
    """One life of one process that claims: its beat is a counter, never a time."""

    boot_id: str
    role: str
    host: str
    """Host and its kernel boot id; the file lock means something only there."""
    pid: int
    counter: int
    started_us: int
    stopped: bool


class LedgerInfo(NamedTuple):
    """Which ledger this is."""

    incarnation: str
    schema_version: int
    min_reader: int


class LedgerView(Protocol):
    """One consistent reading."""

    @property
    def now_us(self) -> int:
        """The store's clock when it was opened."""
        ...

    def epoch(self) -> int:
        """The control epoch (policy, pauses, kills, modes, contracts, revocations)."""
        ...

    def heads(self, streams: Iterable[Stream]) -> dict[Stream, Head]:
        """The heads that exist."""
        ...

    def heads_of(
        self, kind: str, *, phase: str | None = None, session: str | None = None, limit: int
    ) -> list[Head]:
        """Heads of one kind by order of acceptance (invocations) or id."""
        ...

    def events(self, streams: Iterable[Stream]) -> dict[Stream, list[StoredEvent]]:
        """All events of each stream, by version; a stream without events is absent."""
        ...

    def range(self, after_seq: int, limit: int) -> list[StoredEvent]:
        """Events with seq > after_seq, in order, at most `limit`."""
        ...

    def session_events(
        self, session: str, tenant: str = DEFAULT_TENANT, *, after_seq: int = 0, limit: int = 10_000
    ) -> list[StoredEvent]:
        """Events of every stream that began in this session of a tenant, in order."""
        ...

    def last_seq(self) -> int:
        """The highest sequence number, 0 for an empty ledger."""
        ...

    def key_owners(self, keys: Iterable[KeyName]) -> dict[KeyName, KeyOwner]:
        """The live bindings of these idempotency keys."""
        ...

    def stage_lines(self, stages: Iterable[StageKey], *, limit: int = 2) -> dict[StageKey, list[Head]]:
        """The first open invocations of each stage, in order of acceptance."""
        ...

    def twins(self, action_digests: Iterable[str]) -> dict[str, str]:
        """Action digest → an invocation that may run, runs or is unresolved, of a tool that guards twins."""
        ...

    def denials(self, action_digests: Iterable[str]) -> dict[str, str]:
        """Action digest → the invocation whose denial made it final."""
        ...

    def published_unclaimed(self) -> dict[str, int]:
        """Pool → ids published and not yet claimed."""
        ...

    def next_ready(self, pool: str, limit: int) -> list[Head]:
        """Ready, unpublished heads of a pool: by priority, then order of acceptance."""
        ...

    def due(self, before_us: int, limit: int) -> list[Due]:
        """Due rows at or before a moment, oldest first."""
        ...

    def due_after(self, after_us: int, limit: int) -> list[Due]:
        """Due rows later than a moment, the furthest first."""
        ...

    def due_of(self, streams: Iterable[Stream]) -> dict[Stream, Due]:
        """The due rows of these streams."""
        ...

    def contracts(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Canonical bytes of contracts by digest."""
        ...

    def boots(self) -> list[Boot]:
        """All boots that are not stopped."""
        ...

    def counts(self) -> dict[str, int]:
        """Phase → how many invocations stand there."""
        ...


class LedgerTransaction(LedgerView, Protocol):
    """A reading that may also write; all of it is durable when the context ends without an exception."""

    def append(self, appends: Sequence[Append]) -> set[Stream]:
        """Append each stream's events if its head is at `expected`; returns the streams that lost (nothing of
        theirs was written). Two appends for one stream in one call are a programming error (ValueError)."""
        ...

    def mark_published(self, invocation_ids: Sequence[str], dues: Sequence[Due]) -> None:
        """Note that hints for these are being published now, and when to look again."""
        ...

    def mark_ready(self, invocation_ids: Sequence[str]) -> None:
        """The stage before these is free."""
        ...

    def set_due(self, due: Due) -> None:
        """Move a stream's due row without an event."""
        ...

    def bind_key(self, name: KeyName, owner: KeyOwner) -> None:
        """Bind an idempotency key to its invocation."""
        ...

    def deny(self, action_digest: str, invocation_id: str) -> None:
        """Make a denial final for an action."""
        ...

    def put_contract(self, digest: str, body: bytes) -> None:
        """Keep a contract's bytes; the same digest again changes nothing."""
        ...

    def raise_epoch(self) -> int:
        """Move the control epoch on; returns the new one."""
        ...

    def beat(self, boot: Boot) -> None:
        """Write a boot's row: first beat, next counter, or its stop."""
        ...


class Ledger(Protocol):
    """The append-only log of events, the only authority."""

    @property
    def info(self) -> LedgerInfo:
        """Which ledger this is."""
        ...

    def read(self) -> AbstractContextManager[LedgerView]:
        """A short consistent reading (≤ 100 ms on SQLite)."""
        ...

    def write(
        self, keys: Iterable[str] = (), *, control: bool = False
    ) -> AbstractContextManager[LedgerTransaction]:
        """A transaction that holds these keys (sorted, taken before the first read); `control` holds the
        control epoch exclusively instead of sharing it. Raises LedgerUnavailableError (nothing was decided),
        and CommitUnknownError where the commit's answer was lost."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Durability settings as read back from a live connection."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...

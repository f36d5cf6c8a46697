"""The ledger without a store, for tests: same places, same chain, same refusals, gone with the process.

A transaction works on a copy that replaces the state at its end, so a reading never changes under its reader.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from governance.append import ANY_VERSION, key_is_live, require_appends
from governance.chain import genesis, place
from governance.ledger import Append, Boot, Due, Head, KeyName, KeyOwner, LedgerInfo, StageKey, head_with
from governance.memory_records import InMemoryRecords, MemoryState
from interlock.clock import Clock
from interlock.errors import ConflictError, LedgerClosedError
from interlock.event import StoredEvent, Stream, StreamKind, invocation_stream
from interlock.fault import FaultPoints, NoFaults
from interlock.identifier import new_id
from interlock.workspace import DEFAULT_TENANT

_UNRESOLVED = (*(_WAITING := ("queued", "retry_wait")), "running", "reconciliation_required")


class InMemoryLedger:
    """The ledger's port over plain dictionaries; several threads may share one."""

    def __init__(self, clock: Clock, *, faults: FaultPoints | None = None) -> None:
        self._clock = clock
        self._faults = faults or NoFaults()
        self._state = MemoryState()
        self._turn = threading.Lock()
        self._writer: int | None = None
        self._is_closed = False
        self._info = LedgerInfo(new_id(), 1, 1)

    @property
    def info(self) -> LedgerInfo:
        return self._info

    @contextmanager
    def read(self) -> Iterator[InMemoryView]:
        self._require_open()
        yield InMemoryView(self._state, self._clock.now_us())

    @contextmanager
    def write(
        self,
        keys: Iterable[str] = (),  # noqa: ARG002 - the port's; one writer at a time holds every key
        *,
        control: bool = False,  # noqa: ARG002 - likewise
    ) -> Iterator[InMemoryTransaction]:
        if self._writer == threading.get_ident():
            raise RuntimeError("a write transaction is already open in this thread")
        with self._turn:
            self._require_open()
            self._writer = threading.get_ident()
            try:
                draft = self._state.copy()
                yield InMemoryTransaction(draft, self._clock.now_us(), self._info.incarnation)
                self._faults.reach("ledger.before_commit")
                self._state = draft
            finally:
                self._writer = None
        self._faults.reach("ledger.after_commit")

    def records(self) -> InMemoryRecords:
        """The rows as they are now, for `verify`."""
        return InMemoryRecords(self._state, self._info.incarnation)

    def settings(self) -> Mapping[str, str]:
        return {"durability": "none"}

    def close(self) -> None:
        self._is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise LedgerClosedError("closed")


class InMemoryView:
    """One state that nobody changes any more."""

    def __init__(self, state: MemoryState, now_us: int) -> None:
        self._state = state
        self._now_us = now_us

    @property
    def now_us(self) -> int:
        return self._now_us

    def epoch(self) -> int:
        return self._state.epoch

    def heads(self, streams: Iterable[Stream]) -> dict[Stream, Head]:
        return {stream: self._state.heads[stream] for stream in streams if stream in self._state.heads}

    def heads_of(
        self, kind: str, *, phase: str | None = None, session: str | None = None, limit: int
    ) -> list[Head]:
        def asked(head: Head) -> bool:
            return head.kind == kind and phase in (None, head.phase) and session in (None, head.session)

        return self._heads(asked, lambda head: (head.accepted_seq, head.id), limit)

    def events(self, streams: Iterable[Stream]) -> dict[Stream, list[StoredEvent]]:
        known = self._state.streams
        return {stream: list(known[stream]) for stream in streams if stream in known}

    def range(self, after_seq: int, limit: int) -> list[StoredEvent]:
        start = max(0, after_seq)
        return self._state.log[start : start + limit]

    def session_events(
        self, session: str, tenant: str = DEFAULT_TENANT, *, after_seq: int = 0, limit: int = 10_000
    ) -> list[StoredEvent]:
        names = {stream: (said[0].tenant, said[0].session) for stream, said in self._state.streams.items()}
        later = self._state.log[max(0, after_seq) :]
        return [event for event in later if names[event.stream] == (tenant, session)][:limit]

    def last_seq(self) -> int:
        return len(self._state.log)

    def key_owners(self, keys: Iterable[KeyName]) -> dict[KeyName, KeyOwner]:
        return {key: self._state.keys[key] for key in keys if key in self._state.keys and self._is_live(key)}

    def stage_lines(self, stages: Iterable[StageKey], *, limit: int = 2) -> dict[StageKey, list[Head]]:
        def line(stage: StageKey) -> list[Head]:
            def stands(head: Head) -> bool:
                return _is_invocation(head) and head.is_open and head.stage_key == stage

            return self._heads(stands, lambda head: (head.accepted_seq, ""), limit)

        return {stage: line(stage) for stage in stages}

    def twins(self, action_digests: Iterable[str]) -> dict[str, str]:
        asked = set(action_digests)
        found: dict[str, str] = {}
        for head in self._state.heads.values():
            if head.guards_twins and head.phase in _UNRESOLVED and head.action_digest in asked:
                found[head.action_digest] = min(head.id, found.get(head.action_digest, head.id))
        return found

    def denials(self, action_digests: Iterable[str]) -> dict[str, str]:
        known = self._state.denials
        return {digest: known[digest] for digest in action_digests if digest in known}

    def published_unclaimed(self) -> dict[str, int]:
        heads = self._state.heads.values()
        return dict(Counter(head.pool for head in heads if _is_ready(head) and head.published_us))

    def next_ready(self, pool: str, limit: int) -> list[Head]:
        def waits(head: Head) -> bool:
            return head.pool == pool and _is_ready(head) and not head.published_us

        return self._heads(waits, lambda head: (head.priority, head.accepted_seq), limit)

    def due(self, before_us: int, limit: int) -> list[Due]:
        by_time = sorted(self._state.dues.values(), key=lambda due: (due.at_us, due.kind, due.id))
        return [due for due in by_time if due.at_us <= before_us][:limit]

    def due_after(self, after_us: int, limit: int) -> list[Due]:
        return [due for due in self.due(2**63, 2**63)[::-1] if due.at_us > after_us][:limit]

    def due_of(self, streams: Iterable[Stream]) -> dict[Stream, Due]:
        return {stream: self._state.dues[stream] for stream in streams if stream in self._state.dues}

    def contracts(self, digests: Iterable[str]) -> dict[str, bytes]:
        known = self._state.contracts
        return {digest: known[digest] for digest in digests if digest in known}

    def boots(self) -> list[Boot]:
        return sorted(boot for boot in self._state.boots.values() if not boot.stopped)

    def counts(self) -> dict[str, int]:
        return dict(Counter(head.phase for head in self._state.heads.values() if _is_invocation(head)))

    def _heads(
        self, asked: Callable[[Head], bool], order: Callable[[Head], tuple[object, ...]], limit: int
    ) -> list[Head]:
        return sorted(filter(asked, self._state.heads.values()), key=order)[:limit]

    def _is_live(self, key: KeyName) -> bool:
        head = self._state.heads.get(invocation_stream(self._state.keys[key].invocation_id))
        return head is None or key_is_live(head.phase, head.at_us, self._now_us)


class InMemoryTransaction(InMemoryView):
    """Works on a copy; what it wrote is seen by itself at once and by others at its end."""

    def __init__(self, state: MemoryState, now_us: int, incarnation: str) -> None:
        super().__init__(state, now_us)
        self._incarnation = incarnation

    def append(self, appends: Sequence[Append]) -> set[Stream]:
        require_appends(appends)
        won = [append for append in appends if append.expected in (ANY_VERSION, self._version(append.stream))]
        for append in sorted(won, key=lambda append: append.stream):
            self._append(append)
        return {append.stream for append in appends} - {append.stream for append in won}

    def mark_published(self, invocation_ids: Sequence[str], dues: Sequence[Due]) -> None:
        for invocation_id in invocation_ids:
            self._change(invocation_id, lambda head: head_with(head, published_us=self._now_us))
        for due in dues:
            self.set_due(due)

    def mark_ready(self, invocation_ids: Sequence[str]) -> None:
        def readied(head: Head) -> Head:
            return head if head.ready else head_with(head, ready=True, published_us=0)

        for invocation_id in invocation_ids:
            self._change(invocation_id, readied)

    def set_due(self, due: Due) -> None:
        self._state.dues[Stream(due.kind, due.id)] = due

    def bind_key(self, name: KeyName, owner: KeyOwner) -> None:
        if self.key_owners([name]):
            raise ConflictError(f"key:{name.tenant}/{name.client}/{name.key}", 0, 1)
        self._state.keys[name] = owner

    def deny(self, action_digest: str, invocation_id: str) -> None:
        self._state.denials.setdefault(action_digest, invocation_id)

    def put_contract(self, digest: str, body: bytes) -> None:
        self._state.contracts.setdefault(digest, body)

    def raise_epoch(self) -> int:
        self._state.epoch += 1
        return self._state.epoch

    def beat(self, boot: Boot) -> None:
        self._state.boots[boot.boot_id] = boot

    def _version(self, stream: Stream) -> int:
        head = self._state.heads.get(stream)
        return 0 if head is None else head.version

    def _append(self, append: Append) -> None:
        state, stream = self._state, append.stream
        before = state.heads.get(stream)
        head = append.head or before or Head(*stream, tenant=append.tenant, session=append.session)
        at_us = self._now_us if before is None else max(self._now_us, before.at_us)
        placed = place(
            stream, self._version(stream), append.events,
            after_seq=len(state.log),
            previous=state.log[-1].hash if state.log else genesis(self._incarnation), at_us=at_us,
            tenant=append.tenant or head.tenant, session=append.session or head.session,
        )  # fmt: skip
        events = [event for event, _digest in placed]
        state.log.extend(events)
        state.streams[stream] = state.streams.get(stream, []) + events
        state.heads[stream] = head_with(
            head, kind=stream.kind, id=stream.id, version=events[-1].version, at_us=at_us,
            accepted_seq=_accepted_seq(head, before, events[0].seq),
        )  # fmt: skip
        self._put_due(stream, append.due)

    def _put_due(self, stream: Stream, due: Due | None) -> None:
        if due is None:
            self._state.dues.pop(stream, None)
        else:
            self.set_due(due)

    def _change(self, invocation_id: str, change: Callable[[Head], Head]) -> None:
        stream = invocation_stream(invocation_id)
        if stream in self._state.heads:
            self._state.heads[stream] = change(self._state.heads[stream])


def _accepted_seq(head: Head, before: Head | None, first_seq: int) -> int:
    if before is not None:
        return before.accepted_seq
    return first_seq if head.kind == StreamKind.INVOCATION else head.accepted_seq


def _is_invocation(head: Head) -> bool:
    return head.kind == StreamKind.INVOCATION.value


def _is_ready(head: Head) -> bool:
    return head.ready and head.phase in _WAITING

"""What the ledger without a store keeps, and its rows as `verify` reads them. Never changes anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from governance.ledger import Boot, Due, Head, KeyName, KeyOwner
from governance.verification.record import EventRecord, StreamRecord
from interlock.canonical import sha256_hex
from interlock.event import StoredEvent, Stream, StreamKind

_Key = TypeVar("_Key", str, KeyName)
_Value = TypeVar("_Value")


@dataclass
class MemoryState:
    """Everything a ledger keeps; events lie in the order of their sequence numbers."""

    log: list[StoredEvent] = field(default_factory=list)
    streams: dict[Stream, list[StoredEvent]] = field(default_factory=dict)
    heads: dict[Stream, Head] = field(default_factory=dict)
    dues: dict[Stream, Due] = field(default_factory=dict)
    keys: dict[KeyName, KeyOwner] = field(default_factory=dict)
    denials: dict[str, str] = field(default_factory=dict)
    contracts: dict[str, bytes] = field(default_factory=dict)
    boots: dict[str, Boot] = field(default_factory=dict)
    epoch: int = 1

    def copy(self) -> MemoryState:
        return MemoryState(
            self.log[:], self.streams.copy(), self.heads.copy(), self.dues.copy(), self.keys.copy(),
            self.denials.copy(), self.contracts.copy(), self.boots.copy(), self.epoch,
        )  # fmt: skip


class InMemoryRecords:
    """The rows of one state, as `verify` reads them."""

    def __init__(self, state: MemoryState, incarnation: str) -> None:
        self._state = state
        self._incarnation = incarnation

    @property
    def incarnation(self) -> str:
        return self._incarnation

    def issued_seq(self) -> int:
        return len(self._state.log)

    def events(self, after: int | None, limit: int) -> list[EventRecord]:
        page = self._state.log[after or 0 :][:limit]
        return [EventRecord(event.seq, event, sha256_hex(event.payload)) for event in page]

    def unsequenced(self, limit: int) -> list[StoredEvent]:  # noqa: ARG002 - the port's
        """None: appending gives the number."""
        return []

    def headless(self, streams: Collection[Stream]) -> set[Stream]:
        return set(streams) - self._state.heads.keys()

    def streams(self, after: Stream | None, limit: int) -> list[StreamRecord]:
        state = self._state
        return [
            StreamRecord(
                state.heads[stream],
                [] if stream.kind == StreamKind.EVIDENCE else state.streams.get(stream, []),
                state.dues.get(stream),
                self._before(state.heads[stream]),
            )
            for stream in _page(state.heads, after, limit)
        ]

    def events_of_stream(self, stream: Stream, after_version: int | None, limit: int) -> list[StoredEvent]:
        # By place, whatever somebody made of the versions.
        return self._state.streams.get(stream, [])[after_version or 0 :][:limit]

    def dues(self, after: Stream | None, limit: int) -> list[Due]:
        return [self._state.dues[stream] for stream in _page(self._state.dues, after, limit)]

    def epoch(self) -> int:
        return self._state.epoch

    def events_of(self, streams: Collection[Stream]) -> dict[Stream, list[StoredEvent]]:
        known = self._state.streams
        return {stream: known[stream] for stream in streams if stream in known}

    def contracts_of(self, digests: Collection[str]) -> dict[str, bytes]:
        known = self._state.contracts
        return {digest: known[digest] for digest in digests if digest in known}

    def contracts(self, after: str | None, limit: int) -> list[tuple[str, bytes]]:
        return _rows(self._state.contracts, after, limit)

    def denials_of(self, action_digests: Collection[str]) -> dict[str, str]:
        known = self._state.denials
        return {digest: known[digest] for digest in action_digests if digest in known}

    def denials(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        return _rows(self._state.denials, after, limit)

    def owners_of(self, keys: Collection[KeyName]) -> dict[KeyName, KeyOwner]:
        return {key: self._state.keys[key] for key in keys if key in self._state.keys}

    def owners(self, after: KeyName | None, limit: int) -> list[tuple[KeyName, KeyOwner]]:
        return _rows(self._state.keys, after, limit)

    def _before(self, head: Head) -> str | None:
        if not head.ready:
            return None
        return next(
            (
                other.id
                for other in self._state.heads.values()
                if other.kind == StreamKind.INVOCATION.value
                and other.is_open
                and other.stage_key == head.stage_key
                and other.accepted_seq < head.accepted_seq
            ),
            None,
        )


def _rows(table: Mapping[_Key, _Value], after: _Key | None, limit: int) -> list[tuple[_Key, _Value]]:
    keys = sorted(key for key in table if after is None or key > after)[:limit]
    return [(key, table[key]) for key in keys]


def _page(streams: Iterable[Stream], after: Stream | None, limit: int) -> list[Stream]:
    return sorted(stream for stream in streams if after is None or stream > after)[:limit]

"""The intake's port: takes queue items into a list of its own, and removes them when the ledger has them.

An item is moved, never popped: what a dead intake had taken, another one hands out again, alone, so that an
item which ends its reader is found. It decodes nothing and decides nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition
from typing import NamedTuple, Protocol

from interlock.answer import Answer
from interlock.clock import Clock, SystemClock

DELIVERIES_MAX = 3
"""The delivery at which an item is set aside unread."""
TAKE_SIZE_MAX = 4_194_304
"""Bytes after which a batch takes nothing more."""


class TakenItem(NamedTuple):
    """One queue item as it came."""

    raw: bytes
    queue: str
    """The queue it came on, without what Celery adds for priorities."""
    deliveries: int = 1
    """How often it was handed out, this time included."""

    @property
    def is_poison(self) -> bool:
        """Whether it is to become a dead letter by digest and size, without being decoded."""
        return self.deliveries >= DELIVERIES_MAX


class TakenBatch(NamedTuple):
    """Items under one name, those of one queue oldest first; empty where nothing came."""

    name: str
    items: tuple[TakenItem, ...]
    at_us: int
    """The broker's time when they were taken."""


class Reply(NamedTuple):
    """An answer and whom it goes to."""

    answer: Answer
    reply_to: str | None = None
    """A reply list."""
    task_id: str | None = None
    """The Celery task whose producer may wait for a result."""


class IntakeQueue(Protocol):
    """What a governor takes proposals (or votes) from. One taker, one thread."""

    def take(self, limit: int, block_seconds: float) -> TakenBatch:
        """Up to `limit` items, waiting up to `block_seconds` for the first.

        Every queue that has something has the same share, and what it leaves is shared by those with more;
        where there are more queues than `limit`, the others are first the next time.
        What was taken over comes first, one item at a time. Raises BrokerUnavailableError; what may have been
        taken then comes with the next call.
        """
        ...

    def done(self, batch: TakenBatch, replies: Sequence[Reply] = ()) -> None:
        """Send the answers and remove this batch, by its name only; raises BrokerUnavailableError."""
        ...

    def give_back(self, batch: TakenBatch) -> None:
        """Leave the batch to whoever comes next, as if it had not been handed out."""
        ...

    def takeover(self, is_dead: Callable[[str], bool]) -> list[TakenBatch]:
        """Make what dead boots had taken from the same queues one's own, and hand out the first of it.

        Empty where there is nothing. The others follow one by one, with the next calls of this or of `take`:
        an item that ends its reader is alone.
        Cheap enough to be asked before every batch: it looks for the dead once a second.
        """
        ...

    def answer(self, replies: Sequence[Reply]) -> None:
        """Send answers; one that nobody reads is gone after ten minutes."""
        ...

    def now_us(self) -> int:
        """The broker's time, by which `accept_until_us` is judged."""
        ...


# --- in memory -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kept:
    """A list of some boot's own."""

    boot: str
    family: str
    """The first of the queues that its intake serves."""
    deliveries: int
    items: deque[tuple[str, bytes]]
    """Each with the queue it came on."""
    held: bool = False
    """Taken over, and not handed out again yet."""


@dataclass(slots=True)
class InMemoryBroker:
    """The queues, the intakes' lists and the answers of one broker, shared by its intakes."""

    clock: Clock = field(default_factory=SystemClock)
    queues: dict[str, deque[bytes]] = field(default_factory=dict)
    kept: dict[str, _Kept] = field(default_factory=dict)
    replies: dict[str, list[Answer]] = field(default_factory=dict)
    results: dict[str, Answer] = field(default_factory=dict)
    count: int = 0
    """Lists that were ever made."""
    changed: Condition = field(default_factory=Condition)

    def put(self, queue: str, raw: bytes) -> None:
        """What a producer does."""
        with self.changed:
            self.queues.setdefault(queue, deque()).append(raw)
            self.changed.notify_all()


class InMemoryIntake:
    """An intake over a broker in memory."""

    def __init__(
        self,
        broker: InMemoryBroker,
        *,
        boot: str,
        queues: Sequence[str],
        own_queues: Callable[[], Sequence[str]] = tuple,
        take_size_max: int = TAKE_SIZE_MAX,
    ) -> None:
        self._broker = broker
        self._boot = boot
        self._fixed, self._own_queues = tuple(queues), own_queues
        self._first = 0
        self._take_size_max = take_size_max

    def take(self, limit: int, block_seconds: float) -> TakenBatch:
        give_up_at = time.monotonic() + block_seconds
        with self._broker.changed:
            while True:
                batch = self._again() or self._fresh(limit)
                if batch is not None:
                    return batch
                remaining = give_up_at - time.monotonic()
                if remaining <= 0 or not self._broker.changed.wait(remaining):
                    return TakenBatch("", (), self.now_us())

    def done(self, batch: TakenBatch, replies: Sequence[Reply] = ()) -> None:
        self.answer(replies)
        with self._broker.changed:
            self._broker.kept.pop(batch.name, None)

    def give_back(self, batch: TakenBatch) -> None:
        with self._broker.changed:
            kept = self._broker.kept.get(batch.name)
            if kept is not None:
                kept.held, kept.deliveries = True, kept.deliveries - 1

    def takeover(self, is_dead: Callable[[str], bool]) -> list[TakenBatch]:
        with self._broker.changed:
            for name, kept in list(self._broker.kept.items()):
                if kept.boot != self._boot and kept.family == self._fixed[0] and is_dead(kept.boot):
                    del self._broker.kept[name]
                    self._broker.kept[self._next_name()] = kept
                    kept.boot, kept.held = self._boot, True
            batch = self._again()
            return [] if batch is None else [batch]

    def answer(self, replies: Sequence[Reply]) -> None:
        with self._broker.changed:
            for reply in replies:
                if reply.reply_to is not None:
                    self._broker.replies.setdefault(reply.reply_to, []).append(reply.answer)
                if reply.task_id is not None:
                    self._broker.results[reply.task_id] = reply.answer
            self._broker.changed.notify_all()

    def now_us(self) -> int:
        return self._broker.clock.now_us()

    def _is_held(self, kept: _Kept) -> bool:
        return kept.boot == self._boot and kept.held and kept.family == self._fixed[0]

    def _next_name(self) -> str:
        self._broker.count += 1
        return f"interlock:intake:{self._boot}:{self._broker.count}"

    def _again(self) -> TakenBatch | None:
        for name, kept in self._broker.kept.items():
            if self._is_held(kept):
                item = kept.items.popleft()
                if not kept.items:
                    del self._broker.kept[name]
                return self._hand_out([item], kept.deliveries + 1)
        return None

    def _fresh(self, limit: int) -> TakenBatch | None:
        queues = tuple(dict.fromkeys((*self._fixed, *self._own_queues())))
        places = [(self._first + step) % len(queues) for step in range(len(queues))]
        lines = [
            (queues[place], waiting)
            for place in places
            if (waiting := self._broker.queues.get(queues[place]))
        ]
        items, unserved = shared(lines, limit, self._take_size_max)
        self._first = (self._first + 1) % len(queues) if unserved is None else queues.index(unserved)
        return self._hand_out(items, 1) if items else None

    def _hand_out(self, items: list[tuple[str, bytes]], deliveries: int) -> TakenBatch:
        name = self._next_name()
        self._broker.kept[name] = _Kept(self._boot, self._fixed[0], deliveries, deque(items))
        taken = tuple(TakenItem(raw, queue, deliveries) for queue, raw in items)
        return TakenBatch(name, taken, self.now_us())


Line = tuple[str, deque[bytes]]
"""A queue, and what waits on it."""


def shared(lines: Sequence[Line], limit: int, size_max: int) -> tuple[list[tuple[str, bytes]], str | None]:
    """Take from the old ends, each line its share, up to a number and a size; always at least one.

    Also the queue that is to come first the next time, because there was no place for it.
    """
    items: list[tuple[str, bytes]] = []
    unserved: str | None = None
    left, size, is_first = list(lines), 0, True
    while left and len(items) < limit:
        share = max(1, (limit - len(items)) // len(left))
        size_share = (size_max - size) / len(left)
        for queue, waiting in left:
            drawn = 0
            for count in range(min(share, limit - len(items), len(waiting))):
                item_size = len(waiting[0])
                if items and size + item_size > size_max:
                    return items, unserved or (queue if is_first else None)
                if count and drawn + item_size > size_share:
                    break
                items.append((queue, waiting.popleft()))
                size, drawn = size + item_size, drawn + item_size
            if len(items) >= limit:
                break
        if is_first and len(items) >= limit:
            served = {queue for queue, _ in items}
            unserved = next((queue for queue, _ in left if queue not in served), None)
        left, is_first = [line for line in left if line[1]], False
    return items, unserved

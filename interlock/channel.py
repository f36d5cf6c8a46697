"""The client's port to the broker: items go onto a queue, answers come back on lists of the client's own.

It decides nothing, and knows neither what an item says nor what an answer means.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition
from typing import NamedTuple, Protocol

from interlock.clock import Clock, SystemClock
from interlock.errors import BrokerUnavailableError


class Heard(NamedTuple):
    """One answer, and the list it came on."""

    name: str
    data: bytes


class ProposalChannel(Protocol):
    """A broker as a client uses it; every method raises BrokerUnavailableError."""

    def now_us(self) -> int:
        """The broker's time."""
        ...

    def send(self, queue: str, items: Sequence[bytes]) -> None:
        """Put items on a queue, in order; after an error some of them may be there."""
        ...

    def receive(self, names: Sequence[str], seconds: float) -> list[Heard]:
        """What has come on these lists, oldest first, waiting so long for the first of it."""
        ...

    def is_waiting(self, queue: str, item: bytes) -> bool:
        """Whether exactly this item still stands on the queue."""
        ...

    def withdraw(self, queue: str, items: Sequence[bytes]) -> list[int]:
        """Take back what nobody has taken yet; how many copies of each there were."""
        ...

    def close(self) -> None:
        """Let go of connections; never raises."""
        ...


@dataclass(slots=True)
class InMemoryChannel:
    """A broker in memory. `respond` gives the answers to each item as it is sent: the governor of a test."""

    respond: Callable[[bytes], Sequence[Heard]] = lambda _: ()
    clock: Clock = field(default_factory=SystemClock)
    queues: dict[str, deque[bytes]] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    is_away: bool = False
    changed: Condition = field(default_factory=Condition)

    def now_us(self) -> int:
        self._require()
        return self.clock.now_us()

    def send(self, queue: str, items: Sequence[bytes]) -> None:
        self._require()
        for item in items:
            self.sent.append(item)
            self.queues.setdefault(queue, deque()).append(item)
            self.tell(self.respond(item))

    def tell(self, heard: Sequence[Heard]) -> None:
        """Let answers arrive."""
        with self.changed:
            self.heard.extend(heard)
            self.changed.notify_all()

    def take(self, queue: str) -> bytes:
        """The oldest item of a queue, as an intake takes it."""
        return self.queues[queue].popleft()

    def receive(self, names: Sequence[str], seconds: float) -> list[Heard]:
        self._require()
        with self.changed:
            self.changed.wait_for(lambda: any(heard.name in names for heard in self.heard), seconds)
            found = [heard for heard in self.heard if heard.name in names]
            self.heard = [heard for heard in self.heard if heard.name not in names]
        return found

    def is_waiting(self, queue: str, item: bytes) -> bool:
        self._require()
        return item in self.queues.get(queue, ())

    def withdraw(self, queue: str, items: Sequence[bytes]) -> list[int]:
        self._require()
        waiting = self.queues.setdefault(queue, deque())
        counts = [waiting.count(item) for item in items]
        self.queues[queue] = deque(item for item in waiting if item not in items)
        return counts

    def close(self) -> None:
        return None

    def _require(self) -> None:
        if self.is_away:
            raise BrokerUnavailableError("the broker in memory is away")

"""What one producer is to send, as a line of JSON, and the calls that follow from it. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.bare import QUEUE, TASK
from benchmarks.plan import SESSIONS, Lane, lanes
from benchmarks.produce import Submission
from interlock.proposal import PROPOSE_TASK

GOVERNED, BARE = "governed", "celery"
TOOL = "echo"


@dataclass(frozen=True, slots=True)
class Order:
    """Calls `first`, `first + step`, … below `n` of one measurement."""

    side: str
    """`governed` or `celery`: what the calls ask for."""
    way: str
    """`single` or `batch`: how they are sent."""
    broker_url: str
    n: int
    token: str = ""
    """Tells the sessions of this measurement from those of others."""
    tenants: int = 1
    first: int = 0
    step: int = 1

    def shared(self, producers: int) -> list[Order]:
        """The same calls, dealt out to so many producers."""
        return [replace(self, first=number, step=producers) for number in range(producers)]

    def submissions(self) -> Iterator[Submission]:
        """The calls, one after the other."""
        numbers = range(self.first, self.n, self.step)
        if self.side == BARE:
            return (Submission(TASK, QUEUE, {}) for _ in numbers)
        ways_in = lanes(self.tenants)
        return (self._governed(number, ways_in) for number in numbers)

    def _governed(self, number: int, ways_in: Sequence[Lane]) -> Submission:
        session = number % SESSIONS
        kwargs = {
            "tool": TOOL,
            "arguments": {"value": number},
            "session": f"bench-{self.token}-{session}",
            "stage": f"s{number}",
        }
        return Submission(PROPOSE_TASK, ways_in[session % len(ways_in)].queue, kwargs)

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Order:
        """Read back; TypeError or ValueError for a line that is none."""
        value: dict[str, Any] = json.loads(line)
        return cls(**value)

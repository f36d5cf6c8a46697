"""What stands where, from one short reading: phases, pools, what runs, waits or is unknown, and who lags.

It writes nothing. Import it after root was given up: it is asked of an open reading.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.embedded.directory import DataDirectory
from gateway.reading import Reading
from gateway.store import horizon_of
from governance.ledger import Head, LedgerView
from interlock.errors import BrokerUnavailableError
from interlock.event import StreamKind
from interlock.phase import Phase
from interlock.state import SessionName
from interlock.stream import STREAM
from interlock.tier import Pool

if TYPE_CHECKING:
    from governance.adapters.postgres_ledger.horizon import Horizon

LISTED_MAX = 10
QUEUED_MAX = 200
"""Among so many of the longest accepted the one is looked for that waits longest for a place."""
SESSION_HEADS_MAX = 10_000
RATE_SECONDS = 10.0
"""Rates are those of so long; what was counted before is forgotten."""
PAUSE_PER_COST = 50.0
"""Counting looks at every row: it takes at most a fiftieth of the time, however many there are."""

_INVOCATION = StreamKind.INVOCATION.value
_QUEUED, _RUNNING = Phase.QUEUED.value, Phase.RUNNING.value
_PARKED, _UNKNOWN = Phase.AWAITING_APPROVAL.value, Phase.RECONCILIATION_REQUIRED.value


class PoolGlance(NamedTuple):
    """One pool's line."""

    pool: str
    waiting: int
    """Offered, and not taken yet."""
    oldest_s: float | None
    """For how long the one waits that waits longest for a place; None where nobody does."""


class Parked(NamedTuple):
    """One that waits for an answer."""

    head: Head
    expires_us: int | None


class Rates(NamedTuple):
    """How many a second were accepted and came to their end lately."""

    accepted: float
    finished: float


class RelayGlance(NamedTuple):
    """How the stream stands to the ledger."""

    state: str
    """`published`, `behind`, `LEDGER_FENCED` (the ledger is behind it), `unknown` (no broker answers)."""
    seq: int | None


@dataclass(frozen=True, slots=True)
class Glance:
    """One look."""

    at_us: int
    seq: int
    phases: Mapping[str, int]
    rates: Rates | None
    """None until there was time to tell."""
    pools: Sequence[PoolGlance]
    running: Sequence[Head]
    parked: Sequence[Parked]
    unknown: Sequence[Head]
    projected: int | None
    """The last event that is folded; None where nothing ever was."""
    stopped: int
    """Sessions that cannot be folded."""
    relay: RelayGlance
    numbers: Horizon | None = None
    """How numbering stands; None where events have their numbers at once."""


@dataclass(slots=True)
class Counting:
    """Counts no oftener than it costs, and remembers for the rates."""

    phases: Mapping[str, int] = field(default_factory=dict)
    _counted: deque[tuple[float, int, int]] = field(default_factory=deque)
    _again_at: float = 0.0

    def look(self, view: LedgerView) -> None:
        """Count all invocations, unless that would be too soon."""
        began = time.monotonic()
        if began >= self._again_at:
            self.note(view.counts(), began)
            self._again_at = began + (time.monotonic() - began) * PAUSE_PER_COST

    def note(self, phases: Mapping[str, int], now: float) -> None:
        """What was counted at this moment."""
        self.phases = phases
        self._counted.append((now, sum(phases.values()), phases.get(Phase.DONE.value, 0)))
        while len(self._counted) > 2 and self._counted[1][0] <= now - RATE_SECONDS:
            self._counted.popleft()

    def rates(self) -> Rates | None:
        """Between the first and the last that is remembered."""
        if len(self._counted) < 2:
            return None
        (begin, accepted, done), (end, accepted_now, done_now) = self._counted[0], self._counted[-1]
        seconds = max(end - begin, 0.001)
        return Rates((accepted_now - accepted) / seconds, (done_now - done) / seconds)


def glance(
    reading: Reading, counting: Counting, relay_seq: int | None, name: SessionName | None = None
) -> Glance:
    """Look once, at the whole system or at one session. `relay_seq` was looked for before."""
    checkpoint, stopped = None, 0
    if reading.projection is not None:
        # First: what is folded was in the ledger before.
        checkpoint, stopped = reading.projection.checkpoint(), len(reading.projection.stopped())
    numbers = horizon_of(reading.ledger)
    with reading.ledger.read() as view:
        seq = view.last_seq()
        if name is None:
            counting.look(view)
            by_phase = {phase: _oldest(view, phase) for phase in (_RUNNING, _PARKED, _UNKNOWN)}
            pools = _pools(view)
        else:
            heads = _of_session(view, name)
            counting.note(Counter(head.phase for head in heads), time.monotonic())
            by_phase = {
                phase: [head for head in heads if head.phase == phase][:LISTED_MAX]
                for phase in (_RUNNING, _PARKED, _UNKNOWN)
            }
            ready = [head for head in heads if head.phase == _QUEUED and head.ready]
            pools = _by_pool(ready, Counter(head.pool for head in ready), view.now_us)
        return Glance(
            view.now_us,
            seq,
            {phase.value: counting.phases.get(phase.value, 0) for phase in Phase},
            counting.rates(),
            pools,
            by_phase[_RUNNING],
            _parked(view, by_phase[_PARKED]),
            by_phase[_UNKNOWN],
            None if checkpoint is None else checkpoint.seq,
            stopped,
            _relay(relay_seq, seq),
            numbers,
        )


def stream_seq(directory: DataDirectory) -> int | None:
    """The last event in the stream, 0 for an empty one; None where no broker answers, or it is no stream."""
    from interlock.adapters.redis_client import broker_errors, connect

    client = connect(directory.broker_client_url)
    try:
        with broker_errors():
            last: Any = client.xrevrange(STREAM, count=1)
        return int(last[0][0].partition(b"-")[0]) if last else 0
    except (BrokerUnavailableError, ValueError):
        return None
    finally:
        client.connection_pool.disconnect()


def _relay(relay_seq: int | None, seq: int) -> RelayGlance:
    if relay_seq is None:
        return RelayGlance("unknown", None)
    if relay_seq > seq:
        return RelayGlance("LEDGER_FENCED", relay_seq)
    return RelayGlance("published" if relay_seq == seq else "behind", relay_seq)


def _oldest(view: LedgerView, phase: str) -> list[Head]:
    return view.heads_of(_INVOCATION, phase=phase, limit=LISTED_MAX)


def _of_session(view: LedgerView, name: SessionName) -> list[Head]:
    heads = view.heads_of(_INVOCATION, session=name.session, limit=SESSION_HEADS_MAX)
    return [head for head in heads if head.tenant == name.tenant]


def _parked(view: LedgerView, heads: Sequence[Head]) -> list[Parked]:
    dues = view.due_of([head.stream for head in heads])
    return [Parked(head, dues[head.stream].at_us if head.stream in dues else None) for head in heads]


def _pools(view: LedgerView) -> list[PoolGlance]:
    offered = view.published_unclaimed()
    ready = [head for head in view.heads_of(_INVOCATION, phase=_QUEUED, limit=QUEUED_MAX) if head.ready]
    for pool in {*offered, *Pool}:
        ready += view.next_ready(pool, 1)
    return _by_pool(ready, offered, view.now_us)


def _by_pool(ready: Iterable[Head], offered: Mapping[str, int], now_us: int) -> list[PoolGlance]:
    since: dict[str, int] = {}
    for head in ready:
        since[head.pool] = min(head.at_us, since.get(head.pool, head.at_us))
    names = [*(pool.value for pool in Pool), *sorted({*since, *offered} - {pool.value for pool in Pool})]
    return [
        PoolGlance(
            pool, offered.get(pool, 0), max(0, now_us - since[pool]) / 1_000_000 if pool in since else None
        )
        for pool in names
    ]

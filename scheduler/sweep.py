"""The sweep: wakes whatever fell due and settles the claims of the dead. It runs nothing and grants nothing.

What needs a judgement is handed to the governor by id; a wake-up that gets lost is due again later.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from governance.ledger import Boot, Due, Head, Ledger
from interlock.clock import boottime_ns
from interlock.errors import LedgerUnavailableError, RetryLaterError
from interlock.event import Stream, StreamKind
from interlock.fault import FaultPoints
from interlock.hint import Hint, HintPublisher
from interlock.phase import Phase
from interlock.settings import Settings
from interlock.stopping import Stopping
from scheduler.dispatch import AGAIN_US_MAX, Dispatch
from scheduler.lease_watch import LeaseWatch
from scheduler.lost import REMIND_US, Lost

logger = logging.getLogger(__name__)

DUE_MAX = 500
RUNNING_MAX = 10_000
OWN_BOOT = "sweeper"
"""The one row that sweepers write to see whether a beat can be written; it claims nothing."""

FAR_MAX = 10_000
"""Due rows looked at for a wait that no clock of now can have meant; parked ones lie far ahead rightly."""

_REVIEWED = frozenset(("decide", "review", "approval_expiry", "retry"))


@dataclass(slots=True)
class _SlowBeat:
    """When something that need not be looked at each time was looked at last."""

    looked_ns: int | None = None

    def is_due(self, every_ms: int) -> bool:
        """Whether it is time again, which is noted."""
        now_ns = boottime_ns()
        if self.looked_ns is not None and now_ns - self.looked_ns < every_ms * 1_000_000:
            return False
        self.looked_ns = now_ns
        return True


@dataclass(slots=True)
class _Looks:
    """What one sweeper saw when it looked last."""

    claims: _SlowBeat = field(default_factory=_SlowBeat)
    far: _SlowBeat = field(default_factory=_SlowBeat)
    boots: set[str] = field(default_factory=set)
    """The boots that were there when claims were looked at."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweeper; several at once do no harm."""

    ledger: Ledger
    dispatch: Dispatch
    lost: Lost
    watch: LeaseWatch
    publisher: HintPublisher
    queued_ids: Callable[[], dict[str, int]]
    """Pool → about how many ids its broker queue holds."""
    ask_review: Callable[[Sequence[str]], None]
    """Hand invocation ids to the governor."""
    settings: Settings
    faults: FaultPoints
    looks: _Looks = field(default_factory=_Looks)

    def run(self, stopping: Stopping, pause_seconds: float) -> None:
        """Look again and again until stopped; what is away is waited for."""
        while not stopping.is_set():
            try:
                self.step()
            except RetryLaterError as error:
                logger.warning("%s; waiting", error)
            stopping.wait(pause_seconds)

    def step(self) -> int:
        """Look once at everything that is due; returns how many rows were."""
        try:
            dues, heads, boots = self._read()
        except LedgerUnavailableError:
            self.watch.start_anew()
            raise
        dead = self._dead(boots)
        self._publish(self.lost.settle(self._lost_claims(boots, dead)))
        self._forget([boot for boot in boots if boot.boot_id in dead and self.watch.is_over(boot)])
        if self.looks.far.is_due(self.settings.look_again_ms):
            self._pull_in()
        by_kind: dict[str, list[Due]] = defaultdict(list)
        for due in dues:
            by_kind[due.what].append(due)
        self._release([(due, heads[due.stream]) for due in by_kind["release"] if due.stream in heads])
        self._review([due for due in dues if due.what in _REVIEWED])
        self._look_later([*by_kind["lease"], *by_kind["reconcile"]])
        return len(dues)

    def _dead(self, boots: Sequence[Boot]) -> set[str]:
        dead = self.watch.look(boots, boottime_ns())
        if self.watch.suspects:
            # Whoever could not write cannot have beaten: silence says something only where this gets through.
            self._prove_writable()
        return dead

    def _forget(self, gone: Sequence[Boot]) -> None:
        """Look no more at boots that are gone for good, now that their claims are settled."""
        if gone:
            logger.warning("gone without a word: %s", ", ".join(f"{boot.role} ({boot.pid})" for boot in gone))
            with self.ledger.write() as transaction:
                # One that beats again after all comes back by that, and is not stopped over it.
                for boot in set(gone) & set(transaction.boots()):
                    transaction.beat(boot._replace(stopped=True))

    def _prove_writable(self) -> None:
        try:
            with self.ledger.write() as transaction:
                # A row in earnest: on a full disk an empty transaction gets through, and no beat does.
                now_us = transaction.now_us
                transaction.beat(Boot(OWN_BOOT, "scheduler", "", os.getpid(), now_us, now_us, stopped=True))
        except LedgerUnavailableError:
            self.watch.disprove()
            raise
        self.watch.prove(boottime_ns())

    def _read(self) -> tuple[list[Due], dict[Stream, Head], list[Boot]]:
        with self.ledger.read() as view:
            dues = view.due(view.now_us, DUE_MAX)
            return dues, view.heads([due.stream for due in dues]), view.boots()

    def _lost_claims(self, boots: Sequence[Boot], dead: set[str]) -> list[Head]:
        """Running claims of whoever is not alive: looked for when somebody went, and at every beat beside."""
        seen = {boot.boot_id for boot in boots}
        if not (dead or seen != self.looks.boots or self.looks.claims.is_due(self.settings.beat_ms)):
            return []
        with self.ledger.read() as view:
            running = view.heads_of(StreamKind.INVOCATION.value, phase=Phase.RUNNING.value, limit=RUNNING_MAX)
            # Of the same moment as the claims: whoever came meanwhile has not died.
            alive = {boot.boot_id for boot in view.boots()} - dead
        self.looks.boots = seen
        return [head for head in running if head.boot and head.boot not in alive]

    def _release(self, waiting: Sequence[tuple[Due, Head]]) -> None:
        over = [due for due, head in waiting if head.deadline_us and due.at_us >= head.deadline_us]
        self._review(over)
        gone = {due.id for due in over}
        rest = [(due, head) for due, head in waiting if due.id not in gone]
        if rest:
            self._publish(self.dispatch.again(rest, self.queued_ids()))

    def _publish(self, hints: Sequence[Hint]) -> None:
        if hints:
            self.faults.reach("sweep.before_publish")
            self.publisher.publish(hints)

    def _review(self, dues: Sequence[Due]) -> None:
        if not dues:
            return
        self.ask_review([due.id for due in dues])
        self._move(dues, self.settings.look_again_ms * 1_000)

    def _pull_in(self) -> None:
        """Look now at what waits longer than its kind ever does: a clock that ran ahead wrote it."""
        look_us, lease_us = self.settings.look_again_ms * 1_000, self.settings.lease_ms * 1_000
        waits = {"decide": look_us, "review": look_us, "lease": lease_us}
        waits["release"] = max(look_us, self.settings.release_again_ms * 1_000, AGAIN_US_MAX)
        with self.ledger.read() as view:
            now_us = view.now_us
            rows = view.due_after(now_us + min(waits.values()), FAR_MAX)
        self._move([due for due in rows if due.at_us > now_us + waits.get(due.what, due.at_us)], 0)

    def _look_later(self, dues: Sequence[Due]) -> None:
        self._move([due for due in dues if due.what == "lease"], self.settings.lease_ms * 1_000)
        self._move([due for due in dues if due.what == "reconcile"], REMIND_US)

    def _move(self, dues: Sequence[Due], later_us: int) -> None:
        """Look again later at rows that still are as they were read."""
        if not dues:
            return
        with self.ledger.write([str(due.stream) for due in dues]) as transaction:
            standing = transaction.due_of([due.stream for due in dues])
            for due in dues:
                if standing.get(due.stream) == due:
                    transaction.set_due(due._replace(at_us=transaction.now_us + later_us))

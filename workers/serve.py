"""One hint from its arrival to its outcomes in the ledger, and what a pool process does beside that.

Decides when this process claims nothing: while it stops, while an outcome waits for the ledger, before the
outcomes of the dead are in, and after too many wrong hints.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from governance.execution import Claim, Claimed, Execution
from interlock.clock import boottime_ns
from interlock.decision import Reason
from interlock.errors import CommitUnknownError, InterlockError, LedgerClosedError, LedgerUnavailableError
from interlock.fault import FaultPoints
from interlock.settings import Settings
from interlock.tier import Pool
from workers.claim import Claiming, Prepared, lots
from workers.deliver import Delivery
from workers.recover import Recovery
from workers.report import Reporting
from workers.run import Running, is_computed

MEND_SECONDS = 1.0
HALT_ROUNDS = 5
"""Rounds of mending after which a process that claims nothing any more ends, to be started anew."""
_LOG = logging.getLogger("interlock.serve")


@dataclass(slots=True)
class Doubts:
    """Claims whose commit had no answer: watched for one lease time, given back once seen to stand."""

    lease_ms: int
    boottime: Callable[[], int] = boottime_ns
    _claims: dict[str, tuple[Claim, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, claims: Sequence[Claim]) -> None:
        """Watch these from now on."""
        until_ns = self.boottime() + self.lease_ms * 1_000_000
        with self._lock:
            self._claims |= {claim.nonce: (claim, until_ns) for claim in claims}

    def mend(self, execution: Execution) -> None:
        """Give back what is seen to stand; raises what the ledger raises."""
        with self._lock:
            watched = dict(self._claims)
        if not watched:
            return
        reason = Reason(code="CLAIM_LOST", sentence="the answer to its commit was lost, and nothing ran")
        given_back = execution.release_seen([claim for claim, _ in watched.values()], reason)
        now_ns = self.boottime()
        with self._lock:
            for nonce, (claim, until_ns) in watched.items():
                if claim.invocation_id in given_back or now_ns >= until_ns:
                    self._claims.pop(nonce, None)


class Serving:
    """Serves the hints of one pool. `serve` is called by as many threads as the pool has slots."""

    def __init__(
        self,
        pool: str,
        execution: Execution,
        claiming: Claiming,
        running: Running,
        reporting: Reporting,
        delivery: Delivery,
        recovery: Recovery,
        settings: Settings,
        faults: FaultPoints,
        is_stopping: Callable[[], bool],
        stop_failed: Callable[[], None],
        boottime: Callable[[], int] = boottime_ns,
    ) -> None:
        self._pool = pool
        self._execution = execution
        self._claiming = claiming
        self._running = running
        self._reporting = reporting
        self._delivery = delivery
        self._recovery = recovery
        self._faults = faults
        self._is_stopping = is_stopping
        self._stop_failed = stop_failed
        self._doubts = Doubts(settings.lease_ms, boottime)
        self._recover_every = max(1, round(settings.beat_ms / 1_000 / MEND_SECONDS))
        self._rounds = 0
        self._halted_rounds = 0
        self._is_recovered = False

    def refusal(self) -> str | None:
        """Why hints are dropped now, None while they are served."""
        if self._is_stopping():
            return "stopping"
        if self._claiming.drops.is_halted:
            return "too many wrong hints in a row"
        if not self._is_recovered:
            return "outcomes of the dead are not in the ledger yet"
        return "an outcome waits for the ledger" if self._delivery.is_blocked else None

    def serve(self, invocation_ids: Sequence[str]) -> None:
        """Claim, run and report what of these may run here; a dropped hint comes again from the sweep."""
        if self.refusal() is not None:
            return
        self._faults.reach("claim.after_hint")
        try:
            prepared = self._claiming.prepare(invocation_ids)
        except LedgerUnavailableError as error:
            _LOG.warning("a hint is left to the sweep: %s", error)
            return
        except LedgerClosedError:
            self._fail("the ledger is closed")
            raise
        for lot in lots(prepared, self._pool):
            if self.refusal() is not None:
                return
            if self._pool == Pool.PURE.value and is_computed(lot):
                self._compute(lot)
            else:
                self._serve_lot(lot)

    def _compute(self, lot: Sequence[Prepared]) -> None:
        """Run first, then claim with the outcome: what counts of a computation is what is recorded.

        Whatever happens before that, nothing was claimed and nothing happened: the sweep offers it again.
        """
        ran = self._running.compute(lot)
        if not ran:
            return
        reports = self._reporting.reports(ran)
        try:
            self._claiming.record(list(zip((item for item, _ in ran), reports, strict=True)))
        except (LedgerUnavailableError, CommitUnknownError) as error:
            _LOG.warning("computed, and left to the sweep: %s", error)
        except LedgerClosedError:
            self._fail("the ledger is closed")
            raise

    def _serve_lot(self, lot: Sequence[Prepared]) -> None:
        try:
            claimed = self._claiming.claim(lot)
        except LedgerUnavailableError as error:
            _LOG.warning("nothing was claimed: %s", error)
            return
        except Exception:
            # Whether they stand is not known here any more; if they do, nobody else can give them back.
            self._doubts.add([item.claim() for item in lot])
            raise
        self._doubts.add(claimed.unknown)
        won = [item for item in lot if item.invocation_id in claimed.winners]
        if won:
            self._run(won, claimed)

    def _run(self, won: Sequence[Prepared], claimed: Claimed) -> None:
        start_by_ns, seen_ns = claimed.start_by_boottime_ns, claimed.seen_boottime_ns
        try:
            reports = self._reporting.reports(self._running.run(won, start_by_ns, seen_ns))
            self._delivery.deliver(reports, is_spooled=not all(item.is_batchable for item in won))
        except BaseException:
            # A claim without an outcome would stand for as long as this process beats.
            self._fail("a claim is left without an outcome")
            raise

    def mend(self) -> None:
        """One round of what is not urgent; never raises for a ledger that is away."""
        try:
            self._delivery.mend()
            self._doubts.mend(self._execution)
            if not self._is_recovered or self._rounds % self._recover_every == 0:
                self._recovery.run()
                self._is_recovered = True
            self._rounds += 1
            self._end_halted()
        except LedgerClosedError:
            self._fail("the ledger is closed")
        except InterlockError as error:
            _LOG.warning("the ledger cannot be written: %s", error)

    def _end_halted(self) -> None:
        """A halt is not for good: a new process reads keys and contracts anew, after a while of its own."""
        if not self._claiming.drops.is_halted:
            return
        self._halted_rounds += 1
        if self._halted_rounds == HALT_ROUNDS:
            self._fail("too many wrong hints in a row")

    def mend_until(self, ended: threading.Event) -> None:
        """Rounds until the process ends; for a thread of its own."""
        while not ended.wait(MEND_SECONDS):
            try:
                self.mend()
            except Exception:  # noqa: BLE001 - the root of a thread that must not end before its process
                _LOG.exception("a round of mending failed")

    def _fail(self, why: str) -> None:
        _LOG.error("this pool process ends: %s", why)
        self._stop_failed()

"""Following a queue: take a batch, see it through, and again; what is away is waited for with the batch kept.

Knows nothing of what a batch means.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from governance.again import TRIES_MAX
from governance.intake import IntakeQueue, TakenBatch
from interlock.errors import CommitUnknownError, RetryLaterError
from interlock.gather import Gathering
from interlock.stopping import Stopping

PAUSE_SECONDS = 0.5
GATHERED = 128
"""Half of so many are worth a transaction of their own; under load fewer wait a moment for more."""
BUSY_ITEMS = 10
"""So many in one to two windows of gathering (some 250 to 500 a second) are load."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Follow:
    """One loop over one intake."""

    intake: IntakeQueue
    handle: Callable[[TakenBatch], object]
    """Sees a batch through to its removal; what is to be tried later, or unknown, is handled again."""
    batch_max: int
    poll_seconds: float
    is_dead: Callable[[str], bool]
    """Whether the boot that a list belongs to is gone."""
    _pending: TakenBatch | None = None
    _gathering: Gathering = field(default_factory=lambda: Gathering(batch=GATHERED, busy_events=BUSY_ITEMS))

    def run(self, stopping: Stopping) -> None:
        """Follow until stopped."""
        losses = 0
        while not stopping.is_set():
            try:
                self._step(stopping)
                losses = 0
            except (RetryLaterError, CommitUnknownError) as error:
                # Whoever handles the batch again finds out what of it the ledger has.
                losses += 1
                if error.data.get("at_once") and losses % TRIES_MAX:
                    continue  # it lost to a transaction that is done by now
                logger.warning("%s; waiting", error)
                stopping.wait(PAUSE_SECONDS)

    def _step(self, stopping: Stopping) -> None:
        batch = self._pending or self._next()
        # Kept until it is through: what could not be handled now is not taken again, it is handled again.
        self._pending = batch
        if batch.items:
            self.handle(batch)
        self._pending = None
        # What the dead left comes one by one, and gains nothing by waiting.
        if batch.items and batch.items[0].deliveries == 1:
            pause_seconds = self._gathering.pause_seconds(len(batch.items), time.monotonic())
            if pause_seconds:
                stopping.wait(pause_seconds)

    def _next(self) -> TakenBatch:
        left_by_the_dead = self.intake.takeover(self.is_dead)
        if left_by_the_dead:
            return left_by_the_dead[0]
        return self.intake.take(self.batch_max, self.poll_seconds)

"""Following a queue: take a batch, see it through, and again; what is away is waited for with the batch kept.

Knows nothing of what a batch means.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from governance.intake import IntakeQueue, TakenBatch
from interlock.errors import RetryLaterError
from interlock.stopping import Stopping

PAUSE_SECONDS = 0.5
TAKEOVER_SECONDS = 2.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Follow:
    """One loop over one intake."""

    intake: IntakeQueue
    handle: Callable[[TakenBatch], object]
    """Sees a batch through to its removal; a RetryLaterError has it handled again."""
    batch_max: int
    poll_seconds: float
    is_dead: Callable[[str], bool]
    """Whether the boot that a list belongs to is gone."""
    _pending: TakenBatch | None = None
    _looked_at: float = 0.0

    def run(self, stopping: Stopping) -> None:
        """Follow until stopped."""
        while not stopping.is_set():
            try:
                self._step()
            except RetryLaterError as error:
                logger.warning("%s; waiting", error)
                stopping.wait(PAUSE_SECONDS)

    def _step(self) -> None:
        if self._pending is None:
            self._take_over_sometimes()
            self._pending = self.intake.take(self.batch_max, self.poll_seconds)
        if self._pending.items:
            self.handle(self._pending)
        self._pending = None

    def _take_over_sometimes(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= TAKEOVER_SECONDS or not self._looked_at:
            self._looked_at = now
            self.intake.takeover(self.is_dead)

"""The governor: takes batches from the intake, has them decided in the ledger, publishes, answers.

Nothing leaves its intake list before the ledger has it; whatever happens in between is done again by whoever
holds the list. Decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from governance.dead_letter import DeadLetter, record_dead_letters
from governance.intake import IntakeQueue, Reply, TakenBatch, TakenItem
from governance.ledger import Ledger
from governance.propose import Propose
from interlock.answer import Answer
from interlock.decision import Reason
from interlock.errors import BrokerUnavailableError, LedgerUnavailableError, OursToFixError
from interlock.event import invocation_stream
from interlock.fault import FaultPoints
from interlock.hint import Hint, HintPublisher, Waker
from interlock.proposal import Proposal, ProposalRefused

logger = logging.getLogger(__name__)


Reading = Proposal | ProposalRefused | DeadLetter
Read = Callable[[Sequence[TakenItem]], Sequence[Reading]]
"""Reads queue items, authenticated, one reading each in their order; never raises for an input."""


@dataclass(frozen=True, slots=True)
class Governor:
    """One governor's proposing half; several at once do no harm."""

    intake: IntakeQueue
    read: Read
    propose: Propose
    ledger: Ledger
    publisher: HintPublisher
    waker: Waker
    faults: FaultPoints

    def handle(self, batch: TakenBatch) -> int:
        """See one batch through; returns how many items it had. A RetryLaterError leaves the batch kept."""
        self.faults.reach("propose.after_take")
        readings = self._readings(batch.items)
        self.faults.reach("propose.after_decode")
        answers = self._accept([r for r in readings if isinstance(r, Proposal)], batch.at_us)
        record_dead_letters(self.ledger, [r for r in readings if isinstance(r, DeadLetter)])
        self.waker.wake("relay")
        self.intake.done(batch, _replies(readings, answers))
        self.faults.reach("propose.after_answer")
        return len(batch.items)

    def _readings(self, items: Sequence[TakenItem]) -> list[Reading]:
        read = iter(self.read([item for item in items if not item.is_poison]))
        return [_poison(item) if item.is_poison else next(read) for item in items]

    def _accept(self, proposals: Sequence[Proposal], at_us: int) -> Mapping[int, Answer]:
        """Answers by the identity of their proposal; a failing batch is halved until the culprit is alone."""
        if not proposals:
            return {}
        try:
            accepted = self.propose.accept(proposals, broker_now_us=at_us)
        except (LedgerUnavailableError, OursToFixError):
            # Nothing is known of the commit, or nothing can be read: whoever takes the batch again finds out.
            raise
        except Exception:
            if len(proposals) == 1:
                if self._has(proposals[0]):
                    raise
                logger.exception("a proposal could not be judged: %s", proposals[0].id)
                return {id(proposals[0]): _failed(proposals[0])}
            middle = len(proposals) // 2
            return {**self._accept(proposals[:middle], at_us), **self._accept(proposals[middle:], at_us)}
        self._publish(accepted.hints)
        return {id(proposal): answer for proposal, answer in zip(proposals, accepted.answers, strict=True)}

    def _has(self, proposal: Proposal) -> bool:
        """Whether the ledger has it all the same: then it failed after its commit."""
        stream = invocation_stream(proposal.id)
        with self.ledger.read() as view:
            return bool(view.heads([stream]))

    def _publish(self, hints: Sequence[Hint]) -> None:
        try:
            self.publisher.publish(hints)
        except BrokerUnavailableError as error:
            # They are due again in the ledger, which is what the sweep is for.
            logger.warning("%s; the sweep will publish", error)
        self.faults.reach("propose.after_publish")


def _poison(item: TakenItem) -> DeadLetter:
    reason = Reason(code="POISON", sentence="it ended whoever took it; it is not decoded again")
    return DeadLetter(item.raw, item.queue, reason)


def _replies(readings: Sequence[Reading], answers: Mapping[int, Answer]) -> list[Reply]:
    """A reply to each proposal whose producer asked for one; a dead letter has nobody to answer."""
    return [
        Reply(
            answers[id(reading)]
            if isinstance(reading, Proposal)
            else Answer.refusing(reading.id, reading.reason),
            reading.reply_to,
            reading.task_id if reading.wants_result else None,
        )
        for reading in readings
        if not isinstance(reading, DeadLetter) and (reading.reply_to is not None or reading.wants_result)
    ]


def _failed(proposal: Proposal) -> Answer:
    reason = Reason(code="NOT_JUDGED", sentence="judging it failed; nothing was accepted")
    return Answer.refusing(proposal.id, reason)

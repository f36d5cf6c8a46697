"""The governor's other half: answers to what is parked, cancellations, and what is due to be judged again.

They come as items of `interlock.decide`; each is settled in the ledger before it is let go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from governance.cancel import cancel
from governance.dead_letter import DeadLetter, record_dead_letters
from governance.grant import Grant
from governance.intake import IntakeQueue, Reply, TakenBatch, TakenItem
from governance.ledger import Ledger
from governance.line import Line
from governance.vote import VerifyKey, cast
from interlock.answer import Answer
from interlock.approval import Vote
from interlock.canonical import parse_json
from interlock.decision import Reason
from interlock.errors import BrokerUnavailableError, InterlockError, NotJsonError
from interlock.fault import FaultPoints
from interlock.hint import Hint, HintPublisher, Waker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """One decoded item: what is asked, with which arguments, and where its answer goes."""

    task: str
    arguments: dict[str, Any]
    client: str
    reply_to: str | None = None
    task_id: str | None = None
    refused: Reason | None = None
    """Why it does not come from whom it must; it is answered and does nothing."""


ReadRequest = Callable[[TakenItem], Request | DeadLetter]
"""Reads one queue item; never raises for an input."""


@dataclass(frozen=True, slots=True)
class Council:
    """Settles what comes on `interlock.decide`."""

    intake: IntakeQueue
    read: ReadRequest
    grant: Grant
    ledger: Ledger
    line: Line
    verify: VerifyKey
    publisher: HintPublisher
    waker: Waker
    faults: FaultPoints

    def handle(self, batch: TakenBatch) -> int:
        """Settle one batch; returns how many items it had. Raises RetryLaterError with the batch kept."""
        readings = [self._read(item) for item in batch.items]
        record_dead_letters(self.ledger, [r for r in readings if isinstance(r, DeadLetter)])
        requests = [r for r in readings if isinstance(r, Request)]
        review: set[str] = set()
        replies = [Reply(self._settle(r, review), r.reply_to, r.task_id) for r in requests]
        self._publish(self._reviewed(sorted(review)))
        self.waker.wake("relay")
        self.intake.done(batch, replies)
        return len(batch.items)

    def _reviewed(self, invocation_ids: Sequence[str]) -> list[Hint]:
        """Review all; what fails is halved until the culprit is alone, which stays due and is told."""
        try:
            return self.grant.review(invocation_ids)
        except InterlockError:
            raise
        except Exception:
            if len(invocation_ids) == 1:
                logger.exception("%s could not be judged again", invocation_ids[0])
                return []
        middle = len(invocation_ids) // 2
        return self._reviewed(invocation_ids[:middle]) + self._reviewed(invocation_ids[middle:])

    def _read(self, item: TakenItem) -> Request | DeadLetter:
        if item.is_poison:
            reason = Reason(code="POISON", sentence="it ended whoever took it; it is not decoded again")
            return DeadLetter(item.raw, item.queue, reason)
        return self.read(item)

    def _settle(self, request: Request, review: set[str]) -> Answer:
        if request.refused is not None:
            return _refused(None, request.refused)
        match request.task:
            case "interlock.review":
                review.update(_ids(request.arguments))
                return Answer(status="accepted")
            case "interlock.cancel":
                return self._cancel(request)
            case _:
                return self._vote(request, review)

    def _cancel(self, request: Request) -> Answer:
        identifier = str(request.arguments.get("id", ""))
        outcome = cancel(
            self.ledger, self.line, identifier, by=f"client:{request.client}", client=request.client
        )
        if outcome is None:
            return _refused(identifier, Reason(code="NOT_FOUND", sentence="there is no such invocation"))
        self._publish(outcome.hints)
        return Answer(invocation_id=identifier, status="accepted", phase=outcome.phase)

    def _vote(self, request: Request, review: set[str]) -> Answer:
        try:
            vote = Vote.model_validate({**request.arguments, "via": "queue"})
        except ValidationError as error:
            first = error.errors()[0]
            place = "/".join(str(part) for part in first["loc"])
            return _refused(None, Reason(code="FIELD_INVALID", sentence=f"{place}: {first['msg']}"))
        reason = cast(self.ledger, vote, verify=self.verify)
        self.faults.reach("vote.after_commit")
        if reason is not None:
            return _refused(vote.invocation_id, reason)
        review.add(vote.invocation_id)
        return Answer(invocation_id=vote.invocation_id, status="accepted")

    def _publish(self, hints: Sequence[Hint]) -> None:
        self.faults.reach("grant.after_commit")
        try:
            self.publisher.publish(hints)
        except BrokerUnavailableError as error:
            logger.warning("%s; the sweep will publish", error)
        self.faults.reach("grant.after_publish")


def read_arguments(raw: bytes) -> dict[str, Any] | None:
    """The arguments of a request, None where they are no JSON object."""
    try:
        value = parse_json(raw)
    except NotJsonError:
        return None
    return value if isinstance(value, dict) else None


def _ids(arguments: dict[str, Any]) -> list[str]:
    ids = arguments.get("ids")
    return [identifier for identifier in ids if isinstance(identifier, str)] if isinstance(ids, list) else []


def _refused(identifier: str | None, reason: Reason) -> Answer:
    return Answer.refusing(identifier, reason)

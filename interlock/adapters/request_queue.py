"""Sends votes, cancellations and calls for a review to `interlock.decide`, as Celery messages.

A sender proves nothing: a vote counts by its signature, and a review only makes governance look.
"""

from __future__ import annotations

from collections.abc import Sequence

from redis import Redis

from interlock.adapters.celery_wire import encode_task
from interlock.adapters.redis_client import broker_errors, connect
from interlock.approval import Vote
from interlock.canonical import JsonObject, canonical
from interlock.identifier import new_id
from interlock.proposal import CANCEL_TASK, DECIDE_QUEUE, DECIDE_TASK

REVIEW_TASK = "interlock.review"


class RequestQueue:
    """The sending end of `interlock.decide`."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    @classmethod
    def at(cls, url: str) -> RequestQueue:
        """Over a client of its own."""
        return cls(connect(url))

    def review(self, invocation_ids: Sequence[str]) -> None:
        """Ask governance to look at these now; raises BrokerUnavailableError, after which the sweep will."""
        if invocation_ids:
            self._send(REVIEW_TASK, {"ids": list(invocation_ids)})

    def vote(self, vote: Vote, *, reply_to: str | None = None) -> None:
        """Send a signed answer."""
        self._send(DECIDE_TASK, vote.to_json(), reply_to)

    def cancel(self, invocation_id: str, *, reply_to: str | None = None) -> None:
        """Ask for the end of one invocation."""
        self._send(CANCEL_TASK, {"id": invocation_id}, reply_to)

    def _send(self, task: str, arguments: JsonObject, reply_to: str | None = None) -> None:
        item = encode_task(
            task, canonical(arguments), queue=DECIDE_QUEUE, task_id=new_id(), reply_to=reply_to
        )
        with broker_errors():
            self._client.lpush(DECIDE_QUEUE, item)

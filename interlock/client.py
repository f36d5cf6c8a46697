"""The client: proposes, and says only what is known of it: in the ledger, not accepted, or not known.

A courier carries its proposals. Decides nothing, and reads what became of an invocation from a source it is
given.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

from interlock.adapters.celery_wire import encode_task
from interlock.adapters.queue_channel import QueueChannel
from interlock.answer import Answer
from interlock.approval import ApprovalSnapshot, Vote
from interlock.cancellation import sign_cancellation
from interlock.canonical import JsonObject, canonical, digest_of
from interlock.channel import ProposalChannel
from interlock.code import CODES
from interlock.courier import Courier, Outcome, Portion, Submitted, readable_answer
from interlock.errors import NotFoundError, RetryLaterError, UsageError
from interlock.event import StoredEvent
from interlock.fault import FaultPoints, NoFaults
from interlock.identifier import new_id
from interlock.phase import Phase, Status
from interlock.proposal import (
    CANCEL_TASK,
    DECIDE_QUEUE,
    DECIDE_TASK,
    PROPOSE_QUEUE,
    REPLY_PREFIX,
    client_queue,
    sign_proposal,
)
from interlock.receipt import Failure, Success, ToolResult
from interlock.seal import Signer
from interlock.state import ToolInvocationRecord

TIMEOUT_SECONDS = 10.0
PORTION_MAX = 500
"""How many proposals of a stream are sent together."""
PORTION_BYTES = 4_194_304
"""A portion ends with the one whose raw arguments fill it."""
PORTIONS_UNDERWAY = 2
"""How many portions of a stream are on their way at once: while one is answered, the next is judged."""
RESEND_SECONDS = 1.0
"""After which an unanswered item that no longer stands on the queue is sent again; doubled every time."""
POLL_SECONDS_MAX = 0.05

_RESTING = frozenset((Phase.DONE.value, Phase.RECONCILIATION_REQUIRED.value))


class OutcomeSource(Protocol):
    """Where a client reads what became of invocations."""

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """The folded record, None where there is no such invocation yet."""
        ...

    def events(self, after: int, limit: int, /) -> Sequence[StoredEvent]:
        """Events with seq > after, in order, at most `limit`."""
        ...


class WayIn(NamedTuple):
    """The queue a client proposes on, and the list its answers come on."""

    queue: str
    replies: str


def way_in(client: str | None, signer: Signer | None, queue: str | None) -> WayIn:
    """Where a client of these options speaks and listens; raises UsageError for a signer without a name."""
    if client is None and signer is not None:
        raise UsageError("a signer needs the name of its client")
    token = secrets.token_hex(16)
    if client is None or signer is not None:
        return WayIn(queue or PROPOSE_QUEUE, f"{REPLY_PREFIX}{token}")
    # A list below its own name, so that the broker can let it read these and no others.
    return WayIn(queue or client_queue(client), f"{REPLY_PREFIX}{client}.{token}")


class Client:
    """Speaks to a running system over its broker. Safe for threads, which take turns; never across a fork.

    `broker` is a URL (`redis://…`, `unix:///path`, `redis+socket:///path`) or a channel. With a signer every
    proposal and cancellation is signed as `client`, on everybody's queue. A `client` without one proposes on
    the queue of its own, which shows whom it comes from, and cancels nothing. `queue` names another one.
    """

    def __init__(
        self,
        broker: str | ProposalChannel,
        *,
        source: OutcomeSource | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        resend_seconds: float = RESEND_SECONDS,
        client: str | None = None,
        signer: Signer | None = None,
        queue: str | None = None,
        faults: FaultPoints | None = None,
    ) -> None:
        way = way_in(client, signer, queue)
        self._channel = QueueChannel.at(broker) if isinstance(broker, str) else broker
        self._source = source
        self._timeout_seconds = timeout_seconds
        self._replies = way.replies
        self._may_cancel = client is None or signer is not None
        sign = None
        self._sign_cancellation: Callable[[str], JsonObject] | None = None
        if client is not None and signer is not None:
            sign = partial(sign_proposal, client=client, signer=signer)
            self._sign_cancellation = partial(sign_cancellation, client=client, signer=signer)
        self._courier = Courier(
            self._channel,
            queue=way.queue,
            replies=self._replies,
            timeout_seconds=timeout_seconds,
            resend_seconds=resend_seconds,
            sign=sign,
            faults=faults or NoFaults(),
        )
        self._turn = threading.Lock()
        self._pause = threading.Event()

    # --- proposing ---

    def submit(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        arguments_json: str | None = None,
        session: str | None = None,
        stage: str | None = None,
        subject: str | None = None,
        route: str | None = None,
        mode: str | None = None,
        key: str | None = None,
        priority: int | None = None,
        deadline_ms: int | None = None,
        repeat: int | None = None,
        id: str | None = None,  # noqa: A002 - the field's name on the wire
        cause: str | None = None,
    ) -> Submitted:
        """Propose one invocation; returns when the ledger has it, be it recorded as refused.

        `arguments_json` is raw JSON text in place of `arguments`. Raises NotAcceptedError (the ledger does
        not have it and never will; its code says why) or AcceptanceUnknownError (ask again, by the same id).
        """
        said = {
            "tool": tool,
            "arguments": arguments,
            "arguments_json": arguments_json,
            "session": session,
            "stage": stage,
            "subject": subject,
            "route": route,
            "mode": mode,
            "key": key,
            "priority": priority,
            "deadline_ms": deadline_ms,
            "repeat": repeat,
            "id": id,
            "cause": cause,
        }
        [outcome] = self._carried([said])
        if isinstance(outcome, Submitted):
            return outcome
        raise outcome

    def submit_many(self, proposals: Iterable[Mapping[str, Any]]) -> Iterator[Outcome]:
        """The same for many, given as the keyword arguments of `submit`; one outcome each, in their order.

        Up to 1,000 are on their way at once. What `submit` raises for one is its outcome here.
        """
        for outcomes in self.submit_portions(_portions(iter(proposals))):
            yield from outcomes

    def submit_portions(self, portions: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[list[Outcome]]:
        """The same, cut by the caller: the outcomes of each portion, in their order, empty ones included.

        Two portions are on their way at once; the third is asked for when the first is answered. Who stops
        asking never learns what became of those on their way.
        """
        underway: deque[Portion] = deque()
        try:
            for proposals in portions:
                with self._turn:
                    underway.append(self._courier.begin(proposals))
                if len(underway) == PORTIONS_UNDERWAY:
                    yield self._finished(underway.popleft())
            while underway:
                yield self._finished(underway.popleft())
        finally:
            with self._turn:
                for portion in underway:
                    self._courier.forget(portion)

    def _finished(self, portion: Portion) -> list[Outcome]:
        with self._turn:
            return self._courier.finish(portion)

    def _carried(self, proposals: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        with self._turn:
            return self._courier.carry(proposals)

    # --- what became of it ---

    def wait(self, invocation_id: str, seconds: float) -> ToolInvocationRecord:
        """The record once it is final, or its outcome unknown; RetryLaterError (WAIT_TIMEOUT) before."""
        give_up_at = time.monotonic() + seconds
        interval = 0.002
        while True:
            record = self._reading().record(invocation_id)
            if record is not None and record.phase in _RESTING:
                return record
            left = give_up_at - time.monotonic()
            if left <= 0:
                phase = "unknown" if record is None else record.phase
                raise RetryLaterError("WAIT_TIMEOUT", f"{invocation_id} is {phase}", phase=phase)
            self._pause.wait(min(interval, left))
            interval = min(interval * 2, POLL_SECONDS_MAX)

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """The record as it stands."""
        return self._reading().record(invocation_id)

    def result(self, invocation_id: str) -> ToolResult | None:
        """What came of it, None while nothing has; raises NotFoundError for an id that nobody accepted.

        The output is the receipt's bounded summary.
        """
        record = self._reading().record(invocation_id)
        if record is None:
            raise NotFoundError("invocation", invocation_id)
        return _result(record)

    def events(self, after_seq: int = 0, *, limit: int = 1_000) -> Iterator[StoredEvent]:
        """Every event after this sequence number up to now, in order, read in portions of `limit`."""
        while batch := self._reading().events(after_seq, limit):
            yield from batch
            after_seq = batch[-1].seq

    def _reading(self) -> OutcomeSource:
        if self._source is None:
            raise UsageError("this client was given no source to read from")
        return self._source

    # --- other requests ---

    def cancel(self, invocation_id: str) -> Answer:
        """Ask for the end of one invocation; the governor's answer. Raises RetryLaterError without one.

        Raises UsageError for a client that signs nothing: its word could not be told from another's.
        """
        if not self._may_cancel:
            raise UsageError("a cancellation is signed: this client was given no signer")
        sign = self._sign_cancellation
        return self._request(CANCEL_TASK, {"id": invocation_id} if sign is None else sign(invocation_id))

    def approve(
        self,
        snapshot: ApprovalSnapshot,
        *,
        approver: str,
        signer: Signer,
        deny: bool = False,
        reason: str = "",
        expires_us: int = 0,
    ) -> Answer:
        """Sign and send one answer to a parked invocation; the governor's answer to it.

        A vote that does not count comes back as `refused` with its code. Raises RetryLaterError without an
        answer; the same decision sent again is the same decision.
        """
        decision: Literal["approve", "deny"] = "deny" if deny else "approve"
        vote = Vote(
            invocation_id=snapshot.invocation_id,
            approver=approver,
            decision=decision,
            decision_id=digest_of([approver, snapshot.terms.digest, decision]),
            terms_digest=snapshot.terms.digest,
            expires_us=expires_us,
            reason=reason,
            kid=signer.kid,
        )
        signed = vote.model_copy(update={"signature": signer.sign(vote.signed_bytes()).hex()})
        return self._request(DECIDE_TASK, signed.to_json())

    def _request(self, task: str, fields: JsonObject) -> Answer:
        request_id = new_id()
        own_list = f"{self._replies}.{request_id}"
        item = encode_task(task, canonical(fields), queue=DECIDE_QUEUE, task_id=request_id, reply_to=own_list)
        self._channel.send(DECIDE_QUEUE, [item])
        for _, data in self._channel.receive([own_list], self._timeout_seconds):
            answer = readable_answer(data)
            if answer is not None:
                return answer
        raise RetryLaterError("ACCEPTANCE_UNKNOWN", "the request was sent and not answered in time")

    # --- life ---

    def close(self) -> None:
        """Let go of connections."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _portions(proposals: Iterator[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Cut a stream by number and by what its raw arguments weigh."""
    portion: list[Mapping[str, Any]] = []
    size_bytes = 0
    for said in proposals:
        portion.append(said)
        text = said.get("arguments_json")
        size_bytes += len(text) if isinstance(text, str) else 0
        if len(portion) == PORTION_MAX or size_bytes >= PORTION_BYTES:
            yield portion
            portion, size_bytes = [], 0
    if portion:
        yield portion


def _result(record: ToolInvocationRecord) -> ToolResult | None:
    if record.status == Status.COMPLETED.value:
        return Success(
            invocation_id=record.invocation_id,
            output=record.output_summary,
            exit_code=record.exit_code,
            metadata={"receipt_digest": record.receipt_digest},
        )
    if record.status in (Status.FAILED.value, Status.REJECTED.value):
        code = record.reason_code or "TOOL_FAILED"
        return Failure(
            invocation_id=record.invocation_id,
            reason=code,
            recoverable=code in CODES and CODES[code].retryable,
        )
    return None

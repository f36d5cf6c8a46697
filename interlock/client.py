"""The client: proposes, and says only what is known of it: in the ledger, not accepted, or not known.

An id is sent again until it is answered, so nothing is lost and nothing done twice. Decides nothing, and
reads what became of an invocation from a source it is given.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

from pydantic import ValidationError

from interlock.adapters.celery_wire import ITEM_SIZE_MAX, encode_task
from interlock.adapters.queue_channel import QueueChannel
from interlock.answer import Answer, read_answer
from interlock.approval import ApprovalSnapshot, Vote
from interlock.canonical import JsonObject, canonical, digest_of
from interlock.channel import ProposalChannel
from interlock.code import CODES
from interlock.errors import (
    AcceptanceUnknownError,
    BrokerUnavailableError,
    NotAcceptedError,
    NotFoundError,
    NotJsonError,
    RetryLaterError,
    UsageError,
)
from interlock.event import StoredEvent
from interlock.fault import FaultPoints, NoFaults
from interlock.identifier import is_uuid7, new_id
from interlock.proposal import (
    CANCEL_TASK,
    DECIDE_QUEUE,
    DECIDE_TASK,
    PROPOSE_QUEUE,
    PROPOSE_TASK,
    REPLY_PREFIX,
    sign_proposal,
)
from interlock.receipt import Failure, Success, ToolResult
from interlock.seal import Signer
from interlock.state import Phase, Status, ToolInvocationRecord

TIMEOUT_SECONDS = 10.0
WINDOW = 256
"""How many proposals of a stream of them are on their way at once."""
RESEND_SECONDS = 1.0
"""After which an unanswered item that no longer stands on the queue is sent again; doubled every time."""
LOST_PAUSE_SECONDS = 0.05
POLL_SECONDS_MAX = 0.05

_RESTING = frozenset((Phase.DONE.value, Phase.RECONCILIATION_REQUIRED.value))


class Submitted(NamedTuple):
    """A proposal that the ledger has."""

    invocation_id: str
    """Of the invocation that stands for it: another one's where its idempotency key was bound already."""
    answer: Answer


Outcome = Submitted | NotAcceptedError | AcceptanceUnknownError


class OutcomeSource(Protocol):
    """Where a client reads what became of invocations."""

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        """The folded record, None where there is no such invocation yet."""
        ...

    def events(self, after: int, limit: int, /) -> Sequence[StoredEvent]:
        """Events with seq > after, in order, at most `limit`."""
        ...


@dataclass(slots=True, eq=False)
class _Pending:
    """One proposal on its way."""

    id: str
    fields: JsonObject
    reply_to: str
    item: bytes = b""
    sent: int = 0
    """Copies that may have reached the queue."""
    answer: Answer | None = None
    error: NotAcceptedError | AcceptanceUnknownError | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.error is None


class Client:
    """Speaks to a running system over its broker. Safe for threads, which take turns; never across a fork.

    `broker` is a URL (`redis://…`, `unix:///path`, `redis+socket:///path`) or a channel. With a signer every
    proposal is signed as `client`; else who it comes from follows from the queue.
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
        queue: str = PROPOSE_QUEUE,
        faults: FaultPoints | None = None,
    ) -> None:
        if (client is None) != (signer is None):
            raise UsageError("a signer needs the name of its client, and a name its signer")
        self._channel = QueueChannel.at(broker) if isinstance(broker, str) else broker
        self._source = source
        self._timeout_seconds, self._resend_seconds = timeout_seconds, resend_seconds
        self._client, self._signer = client, signer
        self._queue = queue
        self._faults = faults or NoFaults()
        self._replies = f"{REPLY_PREFIX}{secrets.token_hex(16)}"
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
        [outcome] = self._settle([said])
        if isinstance(outcome, Submitted):
            return outcome
        raise outcome

    def submit_many(self, proposals: Iterable[Mapping[str, Any]]) -> Iterator[Outcome]:
        """The same for many, given as the keyword arguments of `submit`; one outcome each, in their order.

        Up to 256 are on their way at once. What `submit` raises for one is its outcome here.
        """
        rest = iter(proposals)
        while window := list(islice(rest, WINDOW)):
            yield from self._settle(window)

    def _settle(self, proposals: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        with self._turn:
            pending = [self._pending(said, place) for place, said in enumerate(proposals)]
            give_up_at = time.monotonic() + self._timeout_seconds
            sendable = [one for one in pending if one.is_open]
            if sendable and self._send_first(sendable):
                self._await(sendable, give_up_at)
                self._withdraw([one for one in sendable if one.is_open])
            return [_outcome(one) for one in pending]

    def _pending(self, said: Mapping[str, Any], place: int) -> _Pending:
        fields: JsonObject = {name: value for name, value in said.items() if value is not None}
        if "arguments" not in fields and "arguments_json" not in fields:
            fields["arguments"] = {}
        invocation_id = str(fields.setdefault("id", new_id()))
        # The answer to a key that is bound already bears the winner's id: it is known by its list.
        own_list = f"{self._replies}.{place}" if "key" in fields else self._replies
        one = _Pending(invocation_id, fields, own_list)
        if not is_uuid7(invocation_id):
            one.error = NotAcceptedError(invocation_id, "its id is no UUIDv7", "ID_NOT_UUID7")
        return one

    def _send_first(self, pending: Sequence[_Pending]) -> bool:
        """Whether something may be on the queue now."""
        try:
            until_us = self._channel.now_us() + round(self._timeout_seconds * 1_000_000)
        except BrokerUnavailableError as error:
            for one in pending:
                one.error = NotAcceptedError(one.id, f"nothing was sent: {error.message}", error.code)
            return False
        for one in pending:
            self._encode(one, until_us)
        self._faults.reach("client.before_send")
        self._send([one for one in pending if one.is_open])
        self._faults.reach("client.after_send")
        return True

    def _encode(self, one: _Pending, until_us: int) -> None:
        fields = one.fields | {"accept_until_us": until_us}
        try:
            if self._signer is not None and self._client is not None:
                fields = sign_proposal(fields, self._client, self._signer)
            kwargs_json = _kwargs_json(fields)
        except NotJsonError as error:
            one.error = NotAcceptedError(one.id, error.message, error.code)
            return
        one.item = encode_task(
            PROPOSE_TASK, kwargs_json, queue=self._queue, task_id=one.id, reply_to=one.reply_to
        )
        if len(one.item) > ITEM_SIZE_MAX:
            one.error = NotAcceptedError(one.id, f"more than {ITEM_SIZE_MAX} bytes", "JSON_SIZE")

    def _send(self, pending: Sequence[_Pending]) -> None:
        for one in pending:
            one.sent += 1
        try:
            self._channel.send(self._queue, [one.item for one in pending])
        except BrokerUnavailableError:
            self._pause.wait(LOST_PAUSE_SECONDS)  # it may be there all the same

    # --- answers ---

    def _await(self, pending: Sequence[_Pending], give_up_at: float) -> None:
        interval = self._resend_seconds
        again_at = time.monotonic() + interval
        while any(one.is_open for one in pending):
            now = time.monotonic()
            if now >= give_up_at:
                return
            if now >= again_at:
                self._resend([one for one in pending if one.is_open])
                interval *= 2
                again_at = now + interval
            self._hear(pending, min(give_up_at, again_at) - now)

    def _resend(self, pending: Sequence[_Pending]) -> None:
        try:
            lost = [one for one in pending if not self._channel.is_waiting(self._queue, one.item)]
        except BrokerUnavailableError:
            return
        self._send(lost)

    def _hear(self, pending: Sequence[_Pending], seconds: float) -> None:
        names = sorted({one.reply_to for one in pending if one.is_open})
        try:
            heard = self._channel.receive(names, seconds)
        except BrokerUnavailableError:
            self._pause.wait(min(LOST_PAUSE_SECONDS, max(seconds, 0)))
            return
        for name, data in heard:
            answer = _readable(data)
            if answer is not None:
                self._take(pending, name, answer)

    def _take(self, pending: Sequence[_Pending], name: str, answer: Answer) -> None:
        for one in pending:
            mine = one.id == answer.invocation_id or name != self._replies
            if one.is_open and mine and one.reply_to == name:
                one.answer = answer
                return

    def _withdraw(self, pending: Sequence[_Pending]) -> None:
        """At the deadline: only what was taken back whole is known to be not accepted."""
        if not pending:
            return
        try:
            counts = self._channel.withdraw(self._queue, [one.item for one in pending])
        except BrokerUnavailableError:
            counts = [0] * len(pending)
        self._hear(pending, 0)
        for one, count in zip(pending, counts, strict=True):
            if not one.is_open:
                continue
            if count == one.sent:
                one.error = NotAcceptedError(one.id, "nobody took it in time, and it was taken back")
            else:
                one.error = AcceptanceUnknownError(one.id)

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
        """Ask for the end of one invocation; the governor's answer. Raises RetryLaterError without one."""
        return self._request(CANCEL_TASK, {"id": invocation_id})

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
            answer = _readable(data)
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


def _kwargs_json(fields: JsonObject) -> bytes:
    """The keyword arguments as text. Arguments are written canonically; raw text goes as the string it is."""
    rest = {name: value for name, value in fields.items() if name != "arguments"}
    text = json.dumps(rest, allow_nan=False, separators=(",", ":")).encode()
    if "arguments" not in fields:
        return text
    return b'{"arguments":' + canonical(fields["arguments"]) + b"," + text[1:]


def _readable(data: bytes) -> Answer | None:
    """An answer; what is none was put on the list by somebody else."""
    try:
        return read_answer(data)
    except (NotJsonError, ValidationError):
        return None


def _outcome(one: _Pending) -> Outcome:
    if one.error is not None:
        return one.error
    answer = one.answer
    assert answer is not None
    if answer.status != "refused" or answer.is_recorded:
        return Submitted(answer.invocation_id or one.id, answer)
    code = answer.code if answer.code in CODES else "NOT_ACCEPTED"
    return NotAcceptedError(one.id, answer.sentence or answer.code, code)


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

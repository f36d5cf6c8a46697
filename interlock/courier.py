"""Carries proposals to the governor until each is answered, taken back, or known to be unknown.

An id is sent again until it is answered, so nothing is lost and nothing done twice. Never decides what
becomes of a proposal, and never calls one "not accepted" that may be in the ledger.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError

from interlock.adapters.celery_wire import ITEM_SIZE_MAX, encode_task
from interlock.answer import Answer, read_answer
from interlock.canonical import JsonObject, canonical
from interlock.channel import ProposalChannel
from interlock.code import CODES
from interlock.errors import AcceptanceUnknownError, BrokerUnavailableError, NotAcceptedError, NotJsonError
from interlock.fault import FaultPoints
from interlock.identifier import is_uuid7, new_id
from interlock.proposal import PROPOSE_TASK

LOST_PAUSE_SECONDS = 0.05


class Submitted(NamedTuple):
    """A proposal that the ledger has."""

    invocation_id: str
    """Of the invocation that stands for it: another one's where its idempotency key was bound already."""
    answer: Answer


Outcome = Submitted | NotAcceptedError | AcceptanceUnknownError


@dataclass(slots=True, eq=False)
class _Pending:
    """One proposal on its way."""

    id: str
    fields: JsonObject
    own_list: str | None
    """The list on which its answer alone comes; None where it comes on the common one, known by its id."""
    reply_to: str
    item: bytes = b""
    sent: int = 0
    """Copies that may have reached the queue."""
    answer: Answer | None = None
    error: NotAcceptedError | AcceptanceUnknownError | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.error is None


@dataclass(slots=True, eq=False)
class Portion:
    """Proposals that were sent together; `Courier.finish` says what came of them."""

    pending: list[_Pending]
    give_up_at: float
    again_at: float
    interval: float
    open: set[_Pending] = field(default_factory=set)
    """Those of them that may be on the queue and have no answer."""


class Courier:
    """Sends, listens, sends again and takes back; one caller at a time, which its owner sees to.

    Several portions may be on their way: whatever is heard goes to whom it belongs.
    """

    def __init__(
        self,
        channel: ProposalChannel,
        *,
        queue: str,
        replies: str,
        timeout_seconds: float,
        resend_seconds: float,
        sign: Callable[[JsonObject], JsonObject] | None,
        faults: FaultPoints,
    ) -> None:
        """`replies` names the list of answers; `sign` puts a signature under the fields of a proposal."""
        self._channel = channel
        self._queue, self._replies = queue, replies
        self._timeout_seconds, self._resend_seconds = timeout_seconds, resend_seconds
        self._sign = sign
        self._faults = faults
        self._pause = threading.Event()
        self._by_id: dict[str, tuple[_Pending, Portion]] = {}
        self._by_list: dict[str, tuple[_Pending, Portion]] = {}
        self._lists_made = 0

    def carry(self, proposals: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """One outcome each, in order, by the deadline; `proposals` are fields as they stand on the wire."""
        return self.finish(self.begin(proposals))

    def begin(self, proposals: Iterable[Mapping[str, Any]]) -> Portion:
        """Send them and return at once. Every portion that was begun is finished or forgotten."""
        now = time.monotonic()
        portion = Portion(
            [self._pending(said) for said in proposals],
            give_up_at=now + self._timeout_seconds,
            again_at=now + self._resend_seconds,
            interval=self._resend_seconds,
        )
        sendable = [one for one in portion.pending if one.is_open]
        try:
            if sendable:
                self._send_first(portion, sendable)
        except BaseException:
            self.forget(portion)
            raise
        return portion

    def finish(self, portion: Portion) -> list[Outcome]:
        """Wait until each is answered, or its time is over; one outcome each, in their order."""
        self._await(portion)
        self._withdraw(portion)
        self.forget(portion)
        return [_outcome(one) for one in portion.pending]

    def forget(self, portion: Portion) -> None:
        """Listen for it no more: what becomes of it is nobody's concern."""
        for one in portion.open:
            self._strike(one)
        portion.open.clear()

    def _pending(self, said: Mapping[str, Any]) -> _Pending:
        fields: JsonObject = {name: value for name, value in said.items() if value is not None}
        if "arguments" not in fields and "arguments_json" not in fields:
            fields["arguments"] = {}
        if "id" not in fields:
            fields["id"] = new_id()
        invocation_id = str(fields["id"])
        one = _Pending(invocation_id, fields, None, self._replies)
        if not is_uuid7(invocation_id):
            one.error = NotAcceptedError(invocation_id, "its id is no UUIDv7", "ID_NOT_UUID7")
        return one

    def _send_first(self, portion: Portion, sendable: Sequence[_Pending]) -> None:
        try:
            until_us = self._channel.now_us() + round(self._timeout_seconds * 1_000_000)
        except BrokerUnavailableError as error:
            for one in sendable:
                one.error = NotAcceptedError(one.id, f"nothing was sent: {error.message}", error.code)
            return
        for one in sendable:
            self._expect(one, portion)
            self._encode(one, until_us)
            if one.error is not None:
                self._strike(one)
                portion.open.discard(one)
        self._faults.reach("client.before_send")
        self._send([one for one in sendable if one.is_open])
        self._faults.reach("client.after_send")

    def _expect(self, one: _Pending, portion: Portion) -> None:
        """Say where its answer will come, and listen there."""
        portion.open.add(one)
        # The answer to a key that is bound already bears the winner's id, and of an id that is on its way
        # twice the answers look alike: those are known by a list of their own, which nobody had before.
        if "key" in one.fields or one.id in self._by_id:
            self._lists_made += 1
            one.own_list = one.reply_to = f"{self._replies}.{self._lists_made}"
            self._by_list[one.own_list] = (one, portion)
        else:
            self._by_id[one.id] = (one, portion)

    def _strike(self, one: _Pending) -> None:
        if one.own_list is None:
            self._by_id.pop(one.id, None)
        else:
            self._by_list.pop(one.own_list, None)

    def _encode(self, one: _Pending, until_us: int) -> None:
        fields = one.fields | {"accept_until_us": until_us}
        try:
            if self._sign is not None:
                fields = self._sign(fields)
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

    def _await(self, portion: Portion) -> None:
        while portion.open:
            now = time.monotonic()
            if now >= portion.give_up_at:
                return
            if now >= portion.again_at:
                self._resend(portion)
                portion.interval *= 2
                portion.again_at = now + portion.interval
            self._hear(min(portion.give_up_at, portion.again_at) - now)

    def _resend(self, portion: Portion) -> None:
        waiting = [one for one in portion.pending if one in portion.open]
        try:
            lost = [one for one in waiting if not self._channel.is_waiting(self._queue, one.item)]
        except BrokerUnavailableError:
            return
        self._send(lost)

    def _hear(self, seconds: float) -> None:
        names = [*([self._replies] if self._by_id else ()), *self._by_list]
        try:
            heard = self._channel.receive(names, seconds)
        except BrokerUnavailableError:
            self._pause.wait(min(LOST_PAUSE_SECONDS, max(seconds, 0)))
            return
        for name, data in heard:
            answer = readable_answer(data)
            if answer is not None:
                self._take(name, answer)

    def _take(self, name: str, answer: Answer) -> None:
        if name == self._replies:
            found = self._by_id.pop(answer.invocation_id or "", None)
        else:
            found = self._by_list.pop(name, None)
        if found is not None:
            one, portion = found
            one.answer = answer
            portion.open.discard(one)

    def _withdraw(self, portion: Portion) -> None:
        """At the deadline: only what was taken back whole is known to be not accepted."""
        late = [one for one in portion.pending if one in portion.open]
        if not late:
            return
        try:
            counts = self._channel.withdraw(self._queue, [one.item for one in late])
        except BrokerUnavailableError:
            counts = [0] * len(late)
        self._hear(0)
        for one, count in zip(late, counts, strict=True):
            if not one.is_open:
                continue
            if count == one.sent:
                one.error = NotAcceptedError(one.id, "nobody took it in time, and it was taken back")
            else:
                one.error = AcceptanceUnknownError(one.id)


def _kwargs_json(fields: JsonObject) -> bytes:
    """The keyword arguments as text. Arguments are written canonically; raw text goes as the string it is."""
    rest = {name: value for name, value in fields.items() if name != "arguments"}
    text = json.dumps(rest, allow_nan=False, separators=(",", ":")).encode()
    if "arguments" not in fields:
        return text
    return b'{"arguments":' + canonical(fields["arguments"]) + b"," + text[1:]


def readable_answer(data: bytes) -> Answer | None:
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

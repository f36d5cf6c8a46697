"""Carries proposals to the governor until each is answered, taken back, or known to be unknown.

An id is sent again until it is answered, so nothing is lost and nothing done twice. Never decides what
becomes of a proposal, and never calls one "not accepted" that may be in the ledger.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    reply_to: str
    item: bytes = b""
    sent: int = 0
    """Copies that may have reached the queue."""
    answer: Answer | None = None
    error: NotAcceptedError | AcceptanceUnknownError | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.error is None


class Courier:
    """Sends, listens, sends again and takes back; one batch at a time, which its caller sees to."""

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

    def carry(self, proposals: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """One outcome each, in order, by the deadline; `proposals` are fields as they stand on the wire."""
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
            answer = readable_answer(data)
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

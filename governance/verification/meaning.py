"""What the events of one invocation mean together: legal moves, nothing run ungranted, one session.

Folded with the product's own reducer. Judges one stream and knows no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from governance.action import action_of
from governance.ledger import Head
from governance.verification.fault import FaultCode, Faults
from governance.verification.grant import Ballots, GrantCheck
from governance.verification.head import stand
from governance.verification.outcome import Execution, check_receipt
from interlock.canonical import JsonObject, canonical, sha256_hex, thaw
from interlock.errors import NotJsonError
from interlock.event import ApprovalGranted, StoredEvent, ToolInvocationRequested
from interlock.permit import Action, Permit, mismatch
from interlock.reduce import DefaultToolReducer, IllegalMoveError, UnknownEventError, UnreadableEventError
from interlock.seal import SealVerifier
from interlock.state import ToolInvocationRecord

_UNREADABLE = (
    KeyError, TypeError, ValueError, AttributeError, NotJsonError, ValidationError, UnreadableEventError,
)  # fmt: skip


class InvocationCheck:
    """Checks invocations by the keys it is given."""

    def __init__(
        self, permits: SealVerifier, receipts: SealVerifier, grants: GrantCheck, faults: Faults
    ) -> None:
        self._permits = permits
        self._receipts = receipts
        self._grants = grants
        self._faults = faults

    def check(self, events: Sequence[StoredEvent]) -> Head | None:
        """Judge one stream's events by their versions; the head they add up to, None where they do not.

        What only the contract says is not in it yet.
        """
        walk = _Walk(self._permits, self._receipts, self._grants, self._faults)
        for event in events:
            try:
                walk.step(event)
            except IllegalMoveError as error:
                self._faults.add(event.seq, FaultCode.MOVE_ILLEGAL, error.message)
                return None
            except UnknownEventError as error:
                self._faults.add(event.seq, FaultCode.EVENT_UNKNOWN, error.message)
                return None
            except _UNREADABLE as error:
                said = f"{event.type} cannot be read: {type(error).__name__}"
                self._faults.add(event.seq, FaultCode.EVENT_UNREADABLE, said)
                return None
        return walk.head


class _Walk:
    """One stream from its first event on: the record so far, and the grant that stands."""

    def __init__(
        self, permits: SealVerifier, receipts: SealVerifier, grants: GrantCheck, faults: Faults
    ) -> None:
        self._permits = permits
        self._receipts = receipts
        self._grants = grants
        self._faults = faults
        self._reducer = DefaultToolReducer()
        self._requested: ToolInvocationRequested | None = None
        self._action: Action | None = None
        self._granted: Permit | None = None
        self._execution: Execution | None = None
        self._record: ToolInvocationRecord | None = None
        self._ballots = Ballots()
        self._at_us = 0
        self.head: Head | None = None

    def step(self, event: StoredEvent) -> None:
        """Judge the next event."""
        self._record = self._reducer.apply(self._record, event)
        body = event.body()
        self.head = stand(self.head, event, body)
        self._ballots.feed(event, body)
        if event.type == ToolInvocationRequested.__name__:
            self._request(event, body)
        self._same_session(event)
        if event.type == "ApprovalGranted":
            self._grant(event, body)
        elif event.type == "PermitReturned":
            self._granted = None
        elif event.type == "ToolExecutionStarted":
            self._start(event, body)
        check_receipt(event, body, self._execution, self._receipts, self._faults)
        self._at_us = event.at_us

    def _request(self, event: StoredEvent, body: JsonObject) -> None:
        self._requested = requested = ToolInvocationRequested.model_validate(body)
        if not requested.session or not requested.stage:
            said = "an invocation without session or stage"
            self._faults.add(event.seq, FaultCode.SESSION_MISSING, said)
        self._action = action_of(requested)
        if self._action.digest != requested.action_digest:
            self._faults.add(
                event.seq, FaultCode.ACTION_CHANGED, "the request is not the action of its digest"
            )
        if not _is_hash_of_arguments(requested):
            said = "the arguments are not those of their hash"
            self._faults.add(event.seq, FaultCode.ARGUMENTS_CHANGED, said)

    def _same_session(self, event: StoredEvent) -> None:
        requested = self._requested
        if requested is None or (event.tenant, event.session) == (requested.tenant, requested.session):
            return
        said = f"it stands in session {event.session}, its invocation in {requested.session}"
        self._faults.add(event.seq, FaultCode.SESSION_DIFFERS, said)

    def _grant(self, event: StoredEvent, body: Any) -> None:
        permit = Permit.model_validate(body["permit"])
        assert self._action is not None, "the reducer lets nothing before the request"
        wrong = mismatch(permit, self._action, event.stream_id, self._permits)
        self._granted = permit if wrong is None else None
        if wrong is not None:
            self._faults.add(event.seq, FaultCode.PERMIT_MISMATCH, f"{wrong.field}: {wrong.detail}")
        assert self._requested is not None, "likewise"
        granted = ApprovalGranted.model_validate(body)
        self._grants.check(event, granted, self._requested, self._ballots)

    def _start(self, event: StoredEvent, body: Any) -> None:
        self._execution = Execution(body["attempt"], body["permit_digest"])
        if self._granted is None:
            said = "it was started without a grant of its tier before it"
            self._faults.add(event.seq, FaultCode.START_UNGRANTED, said)
        elif body["permit_digest"] != self._granted.digest:
            said = "it was started under another permit than the one that stands"
            self._faults.add(event.seq, FaultCode.PERMIT_MISMATCH, said)
        elif not self._is_valid_at(event, self._granted):
            said = "it was started when its permit was not valid"
            self._faults.add(event.seq, FaultCode.PERMIT_EXPIRED, said)

    def _is_valid_at(self, event: StoredEvent, permit: Permit) -> bool:
        # An event is never earlier than the one before; where the clock went back it says nothing.
        went_back = event.at_us == self._at_us
        return permit.terms.valid_from_us <= event.at_us < permit.terms.valid_until_us or went_back


def _is_hash_of_arguments(requested: ToolInvocationRequested) -> bool:
    """Sealed arguments are hashed by their true values, which only the sealing key shows."""
    if requested.arguments is None or requested.sensitive:
        return True
    return sha256_hex(canonical(thaw(requested.arguments))) == requested.arguments_hash

"""Reads queue items: Celery messages into proposals and requests, with the client they come from.

Who a client is follows from a signature or from the queue it came on, never from what it says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from governance.council import Request, read_arguments
from governance.dead_letter import DeadLetter
from governance.intake import TakenItem
from governance.ledger import Ledger
from governance.principal import LOCAL_CLIENT, Principal, find_principals
from interlock.adapters.celery_wire import Envelope, NotAnEnvelope, decode_task
from interlock.adapters.ed25519 import Ed25519KeyRing
from interlock.cancellation import read_cancellation
from interlock.decision import Reason
from interlock.parse import parse_proposal
from interlock.proposal import (
    CANCEL_TASK,
    DECIDE_TASK,
    PROPOSE_TASK,
    Proposal,
    ProposalRefused,
    client_of_queue,
    verify_proposal_auth,
)

REVIEW_TASK = "interlock.review"
ITEM_BYTES_MAX = 8 * 1_048_576
_REQUESTS = frozenset((REVIEW_TASK, DECIDE_TASK, CANCEL_TASK))
_UNREADABLE_AUTH = Reason(code="SIGNATURE_INVALID", sentence="its auth is no client, kid and signature")


class _Known(NamedTuple):
    """Clients as they stand at one control epoch; who is registered never changes without it."""

    epoch: int
    clients: Mapping[str, Principal]


def _nobody() -> _Known:
    return _Known(-1, {})


@dataclass(slots=True)
class CeleryReception:
    """Reads items of the queues of proposals and of `interlock.decide`."""

    ledger: Ledger
    _known: _Known = field(default_factory=_nobody)
    """Replaced as a whole: several threads read by one reception."""

    def read_proposals(self, items: Sequence[TakenItem]) -> list[Proposal | ProposalRefused | DeadLetter]:
        """Each item's proposal with its client, or why there is none. Never raises for an input.

        Who the clients are is read once for all items. Raises LedgerUnavailableError.
        """
        readings = [(_said(item), client_of_queue(item.queue)) for item in items]
        clients = self._clients({_client(s, owner) for s, owner in readings if isinstance(s, Proposal)})
        return [
            _authenticated(said, owner, clients) if isinstance(said, Proposal) else said
            for said, owner in readings
        ]

    def read_request(self, item: TakenItem) -> Request | DeadLetter:
        """One vote, cancellation or call for a review. Never raises for an input."""
        envelope = _envelope(item)
        if isinstance(envelope, DeadLetter):
            return envelope
        if envelope.task not in _REQUESTS:
            reason = Reason(code="NOT_AN_ENVELOPE", sentence=f"no request is called {envelope.task[:100]!r}")
            return DeadLetter(item.raw, item.queue, reason)
        arguments = read_arguments(envelope.kwargs_json)
        if arguments is None:
            reason = Reason(code="JSON_SYNTAX", sentence="its arguments are no JSON object")
            return DeadLetter(item.raw, item.queue, reason)
        task_id = envelope.task_id if envelope.wants_result else None
        request = Request(envelope.task, arguments, LOCAL_CLIENT, envelope.reply_to, task_id)
        return self._from_its_client(request) if envelope.task == CANCEL_TASK else request

    def _from_its_client(self, request: Request) -> Request:
        """A cancellation with the client it was found to come from, or why it is refused.

        Raises LedgerUnavailableError.
        """
        cancellation = read_cancellation(request.arguments)
        if cancellation is None:
            return replace(request, refused=_UNREADABLE_AUTH)
        # What says nothing of itself comes from whom the queue belongs to, unless that one has a key.
        name = cancellation.client or request.client
        client = self._clients({name}).get(name)
        if client is None:
            sentence = f"no client {name[:100]!r} is registered"
            return replace(request, refused=Reason(code="CLIENT_UNKNOWN", sentence=sentence))
        keys = {client.kid: client.public_key} if client.public_key else {}
        is_free = not cancellation.is_signed and not keys
        if not is_free and not cancellation.is_signed_by(Ed25519KeyRing(keys)):
            sentence = f"a cancellation of client {name[:100]!r} must be signed with its key"
            return replace(request, refused=Reason(code="SIGNATURE_INVALID", sentence=sentence))
        return replace(request, client=client.name)

    def _clients(self, names: Set[str]) -> Mapping[str, Principal]:
        """At least those of these that are registered as clients."""
        if not names:
            return {}
        with self.ledger.read() as view:
            epoch = view.epoch()
            at = self._known
            known = at.clients if at.epoch == epoch else {}
            unknown = names - known.keys()
            if not unknown:
                return known
            found = find_principals(view, unknown)
        clients = {name: principal for name, principal in found.items() if principal.role == "client"}
        everybody = {**known, **clients}
        self._known = _Known(epoch, everybody)
        return everybody


def _said(item: TakenItem) -> Proposal | ProposalRefused | DeadLetter:
    """What the item says; whose it is, is not known yet."""
    envelope = _envelope(item)
    if isinstance(envelope, DeadLetter):
        return envelope
    refused = _refused_envelope(envelope)
    if refused is not None:
        return refused
    return parse_proposal(
        envelope.kwargs_json,
        task_id=envelope.task_id,
        reply_to=envelope.reply_to,
        wants_result=envelope.wants_result,
    )


def _authenticated(
    proposal: Proposal, owner: str | None, clients: Mapping[str, Principal]
) -> Proposal | ProposalRefused:
    client = clients.get(_client(proposal, owner))
    if client is None:
        return _refusal(proposal, Reason(code="CLIENT_UNKNOWN", sentence="no such client is registered"))
    if proposal.auth is not None:
        keys = {client.kid: client.public_key} if client.public_key else {}
        reason = verify_proposal_auth(proposal, Ed25519KeyRing(keys))
        if owner is not None and client.name != owner:
            reason = Reason(code="SIGNATURE_INVALID", sentence="it came on another client's own queue")
        if reason is not None:
            return _refusal(proposal, reason)
    return proposal.authenticated(client.name, client.tenant, signed=proposal.auth is not None)


def _client(proposal: Proposal, owner: str | None) -> str:
    """Whom the proposal says, or its queue shows, it comes from; everybody's queue is the local client's."""
    return proposal.auth.client if proposal.auth is not None else owner or LOCAL_CLIENT


def _envelope(item: TakenItem) -> Envelope | DeadLetter:
    if len(item.raw) > ITEM_BYTES_MAX:
        reason = Reason(code="JSON_SIZE", sentence=f"more than {ITEM_BYTES_MAX} bytes")
        return DeadLetter(item.raw, item.queue, reason)
    decoded = decode_task(item.raw)
    return DeadLetter(item.raw, item.queue, decoded.reason) if isinstance(decoded, NotAnEnvelope) else decoded


def _refused_envelope(envelope: Envelope) -> ProposalRefused | None:
    if envelope.task != PROPOSE_TASK:
        reason = Reason(code="NOT_AN_ENVELOPE", sentence=f"no proposal is called {envelope.task[:100]!r}")
    elif envelope.refused_options:
        options = ", ".join(envelope.refused_options)
        reason = Reason(code="OPTION_UNSUPPORTED", sentence=f"these options have no meaning here: {options}")
    else:
        return None
    return ProposalRefused(
        reason,
        reply_to=envelope.reply_to,
        task_id=envelope.task_id,
        wants_result=envelope.wants_result,
    )


def _refusal(proposal: Proposal, reason: Reason) -> ProposalRefused:
    return ProposalRefused(reason, proposal.id, proposal.reply_to, proposal.task_id, proposal.wants_result)

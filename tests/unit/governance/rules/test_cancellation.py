"""Whose cancellation it is: signed by a client's key, or the queue's own client where that has none."""

from __future__ import annotations

from typing import Any

import pytest

from governance.adapters.celery_reception import CeleryReception
from governance.council import Council, Request
from governance.intake import InMemoryBroker, InMemoryIntake, TakenItem
from governance.principal import register
from interlock.adapters.celery_wire import encode_task
from interlock.adapters.ed25519 import Ed25519Signer, is_signed_by
from interlock.cancellation import sign_cancellation
from interlock.canonical import canonical
from interlock.clock import ManualClock
from interlock.event import PrincipalRegistered
from interlock.fault import NoFaults
from interlock.identifier import new_id
from interlock.memory_stream import ManualWaker
from interlock.proposal import sign_proposal
from tests.support.court import Court
from tests.support.workbench import KeptHints

KEY = Ed25519Signer.generate()
QUEUE = "interlock.decide"


@pytest.fixture
def court() -> Court:
    return Court()


def client(court: Court, name: str, key: Ed25519Signer | None = None, role: str = "client") -> None:
    """Register a client, with a key or without."""
    payload = PrincipalRegistered(
        role=role,
        person=name,
        kid="" if key is None else key.kid,
        public_key="" if key is None else key.public_hex,
    )
    register(court.ledger, name, payload, by="test")


def sent(court: Court, arguments: Any) -> Request:
    """What becomes of one item on the queue of decisions, which is settled; returns how it was read."""
    broker = InMemoryBroker(ManualClock())
    intake = InMemoryIntake(broker, boot="b", queues=(QUEUE,))
    read: list[Request] = []

    def reading(item: TakenItem) -> Request:
        request = CeleryReception(court.ledger).read_request(item)
        assert isinstance(request, Request)
        read.append(request)
        return request

    council = Council(
        intake, reading, court.grant, court.ledger, court.line, is_signed_by, KeptHints(), ManualWaker(),
        NoFaults(),
    )  # fmt: skip
    broker.put(QUEUE, encode_task("interlock.cancel", canonical(arguments), queue=QUEUE, task_id=new_id()))
    council.handle(intake.take(9, 0))
    [request] = read
    return request


def code(request: Request) -> str | None:
    return None if request.refused is None else request.refused.code


def parked(court: Court, by: str) -> str:
    answer = court.say("note", {"text": "x"}, client=by)
    assert answer.invocation_id is not None
    return answer.invocation_id


def test_the_queues_own_client_without_a_key_may_cancel_what_is_its_own(court: Court) -> None:
    client(court, "local")
    own, other = parked(court, "local"), court.say("pay", {"amount": 1}, client="other", session="t")
    assert code(sent(court, {"id": own})) is None
    assert court.head(own).phase == "done"
    sent(court, {"id": other.invocation_id})
    assert not court.head(other.invocation_id).cancel


def test_a_client_with_a_key_cancels_by_its_signature_only(court: Court) -> None:
    client(court, "local", KEY)
    own = parked(court, "local")
    assert code(sent(court, {"id": own})) == "SIGNATURE_INVALID"
    assert not court.head(own).cancel
    assert code(sent(court, sign_cancellation(own, "local", KEY))) is None
    assert court.head(own).phase == "done"


@pytest.mark.parametrize(
    "forged",
    [
        lambda own: sign_cancellation(own, "alice", Ed25519Signer.generate()),
        lambda own: sign_cancellation(new_id(), "alice", KEY) | {"id": own},
        lambda own: sign_proposal({"id": own}, "alice", KEY),
        lambda own: {"id": own, "auth": {"client": "alice", "kid": KEY.kid, "signature": "no hex"}},
        lambda own: {"id": own, "auth": {"client": "alice"}},
        lambda own: {"id": own, "auth": "alice"},
    ],
    ids=["another key", "another call", "a proposal", "no hex", "unsigned", "no object"],
)
def test_a_cancellation_that_its_client_did_not_sign_does_nothing(court: Court, forged: Any) -> None:
    client(court, "alice", KEY)
    own = parked(court, "alice")
    assert code(sent(court, forged(own))) == "SIGNATURE_INVALID"
    assert not court.head(own).cancel
    assert code(sent(court, sign_cancellation(own, "alice", KEY))) is None
    assert court.head(own).phase == "done"


def test_who_is_no_client_cancels_nothing(court: Court) -> None:
    client(court, "bot", KEY, role="bot")
    own = parked(court, "local")
    assert code(sent(court, sign_cancellation(own, "bot", KEY))) == "CLIENT_UNKNOWN"
    assert code(sent(court, sign_cancellation(own, "stranger", KEY))) == "CLIENT_UNKNOWN"
    assert not court.head(own).cancel

"""Whose queues are served, and whom what comes on them belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from governance.adapters.celery_reception import CeleryReception
from governance.client_queue import ClientQueues
from governance.intake import TakenItem
from governance.principal import register
from interlock.adapters.celery_wire import encode_task
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.canonical import JsonObject, canonical
from interlock.event import PrincipalRegistered
from interlock.identifier import new_id
from interlock.proposal import PROPOSE_QUEUE, Proposal, ProposalRefused, client_queue, sign_proposal
from tests.support.court import Court

KEYS = {name: Ed25519Signer.generate() for name in ("acme", "rival")}


@pytest.fixture
def court() -> Court:
    court = Court()
    for name in KEYS:
        registered(court, name)
    return court


def registered(court: Court, name: str, role: str = "client") -> None:
    key = KEYS.get(name)
    payload = PrincipalRegistered(
        role=role,
        person=name,
        tenant=f"{name}-tenant",
        kid="" if key is None else key.kid,
        public_key="" if key is None else key.public_hex,
    )
    register(court.ledger, name, payload, by="test")


def read(court: Court, queue: str, **said: Any) -> Proposal | ProposalRefused:
    identifier = new_id()
    fields = {"tool": "echo", "arguments": {"value": 1}, "id": identifier, **said}
    raw = encode_task("interlock.propose", canonical(fields), queue=queue, task_id=identifier)
    [reading] = CeleryReception(court.ledger).read_proposals([TakenItem(raw, queue)])
    assert isinstance(reading, Proposal | ProposalRefused)
    return reading


def code(reading: Proposal | ProposalRefused) -> str:
    assert isinstance(reading, ProposalRefused), reading
    return reading.reason.code


def test_what_comes_on_a_clients_queue_is_that_clients(court: Court) -> None:
    reading = read(court, client_queue("acme"))
    assert isinstance(reading, Proposal)
    assert (reading.client, reading.tenant, reading.signed) == ("acme", "acme-tenant", False)


@pytest.mark.parametrize("field", ["client", "tenant", "origin"])
def test_a_body_that_names_another_is_refused(court: Court, field: str) -> None:
    assert code(read(court, client_queue("acme"), **{field: "rival"})) == "UNKNOWN_FIELD"


def test_another_clients_signature_makes_it_nobody_elses(court: Court) -> None:
    fields: JsonObject = {"tool": "echo", "arguments": {"value": 1}, "id": new_id()}
    signed = sign_proposal(fields, "rival", KEYS["rival"])
    assert code(read(court, client_queue("acme"), **signed)) == "SIGNATURE_INVALID"
    elsewhere = read(court, PROPOSE_QUEUE, **signed)
    assert isinstance(elsewhere, Proposal)
    assert elsewhere.client == "rival"


def test_its_own_signature_counts_on_its_own_queue(court: Court) -> None:
    fields: JsonObject = {"tool": "echo", "arguments": {"value": 1}, "id": new_id()}
    reading = read(court, client_queue("acme"), **sign_proposal(fields, "acme", KEYS["acme"]))
    assert isinstance(reading, Proposal)
    assert (reading.client, reading.signed) == ("acme", True)


def test_who_is_registered_no_more_is_refused_and_served_no_more(court: Court) -> None:
    queues = ClientQueues(court.ledger, look_seconds=0)
    assert client_queue("acme") in queues()
    registered(court, "acme", role="approver")
    assert client_queue("acme") not in queues()
    assert code(read(court, client_queue("acme"))) == "CLIENT_UNKNOWN"


def test_the_queues_are_the_same_object_until_somebody_comes(court: Court) -> None:
    queues = ClientQueues(court.ledger, look_seconds=0)
    before = queues()
    registered(court, "watcher", role="approver")
    assert queues() is before
    registered(court, "newcomer")
    assert set(queues()) - set(before) == {client_queue("newcomer")}


def test_the_ledger_is_asked_seldom(court: Court) -> None:
    now = [0.0]
    queues = ClientQueues(court.ledger, look_seconds=5, monotonic=lambda: now[0])
    before = queues()
    registered(court, "newcomer")
    assert queues() is before
    now[0] = 5.0
    assert client_queue("newcomer") in queues()


@pytest.mark.parametrize("name", ["a\x06\x163", "", "-a", "a b", "*"])
def test_a_name_that_could_be_another_list_has_no_queue(court: Court, name: str) -> None:
    before = set(ClientQueues(court.ledger)())
    registered(court, name)
    assert set(ClientQueues(court.ledger)()) == before

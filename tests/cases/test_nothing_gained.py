"""What a proposal says of itself gains it nothing: not a mode, a session, a client, nor an approval."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.store import open_ledger
from governance.principal import register
from interlock.adapters.celery_wire import encode_task
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.event import PrincipalRegistered
from interlock.identifier import new_id
from interlock.proposal import sign_proposal
from tests.support.live import FACES, Face, Live

RUN = json.dumps({"argv": ["true"]})


@pytest.fixture(scope="module", autouse=True)
def sessions(live: Live) -> None:
    """A session that may only look, and one of another client that may do nearly all."""
    for name, mode, client in (("small", "observe", "local"), ("large", "operate", "somebody")):
        opened = live.command("sessions", "open", name, "--mode", mode, "--client", client)
        assert opened.returncode == 0, opened.stderr.decode()


def test_a_higher_mode_is_refused_by_name(live: Live, face: Face) -> None:
    verdict = face.submit(live, "shell.run", RUN, session="small", mode="operate")
    assert (verdict.code, verdict.phase) == ("MODE_ESCALATION", "done")


def test_another_clients_session_is_told_not_to_exist(live: Live, face: Face) -> None:
    assert face.submit(live, "shell.run", RUN, session="large").code == "SESSION_UNKNOWN"


@pytest.mark.parametrize("field", ["client", "tenant", "approved", "permit", "tier", "approvers"])
def test_a_made_up_field_is_refused_by_name(live: Live, field: str) -> None:
    verdict = FACES["queue"].submit(live, "echo", "{}", session="small", **{field: "somebody"})
    assert verdict.code == "UNKNOWN_FIELD"
    assert field in verdict.sentence


@pytest.mark.parametrize(
    "extra",
    [
        {"approved": True},
        {"permit": {"terms": {}, "seal": {}}},
        {"ApprovalGranted": {"by": "quorum"}},
    ],
)
def test_an_approval_among_the_arguments_is_an_unknown_argument(
    live: Live, face: Face, extra: dict[str, Any]
) -> None:
    raw = json.dumps({"argv": ["true"], **extra})
    assert face.submit(live, "shell.run", raw, session="small").code == "SCHEMA_INVALID"


def test_an_approval_among_free_arguments_is_only_data(live: Live, face: Face) -> None:
    raw = json.dumps({"value": {"approved": True, "mode": "operate", "client": "somebody"}})
    verdict = face.submit(live, "echo", raw, session="small")
    assert verdict.code == ""
    requested = live.docket(str(verdict.invocation_id)).requested
    assert (requested.client, requested.mode) == ("local", None)


@pytest.mark.parametrize("own_key", [True, False])
def test_only_its_own_key_makes_a_client(live: Live, own_key: bool) -> None:
    mine, other = Ed25519Signer.generate(), Ed25519Signer.generate()
    ledger = open_ledger(live.directory)
    payload = PrincipalRegistered(role="client", person="somebody", kid=mine.kid, public_key=mine.public_hex)
    register(ledger, "somebody", payload, by="test")
    ledger.close()
    said: dict[str, Any] = {
        "id": new_id(),
        "tool": "shell.run",
        "arguments": {"argv": ["true"]},
        "session": "large",
    }
    signed = sign_proposal(said, "somebody", mine if own_key else other)
    reply_to = f"interlock.reply.{new_id()}"
    item = encode_task(
        "interlock.propose",
        json.dumps(signed).encode(),
        queue="interlock.propose",
        task_id=said["id"],
        reply_to=reply_to,
    )
    live.put("interlock.propose", item)
    answer = live.answer(reply_to)
    assert answer["code"] == ("" if own_key else "SIGNATURE_INVALID")

"""Signed proposals: a signature covers everything that is said, who says it, and with which key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from interlock.identifier import new_id
from interlock.parse import parse_proposal
from interlock.proposal import Proposal, sign_proposal, verify_proposal_auth

ID = new_id()


class OneKey:
    """A private key, and the ring that trusts it alone."""

    def __init__(self, kid: str = "client-1") -> None:
        self._key = Ed25519PrivateKey.generate()
        self._kid = kid

    @property
    def kid(self) -> str:
        return self._kid

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def verify(self, kid: str, data: bytes, signature: bytes) -> bool:
        try:
            self._key.public_key().verify(signature, data)
        except InvalidSignature:
            return False
        return kid == self._kid


def fields(**more: Any) -> dict[str, Any]:
    return {"id": ID, "tool": "echo", "arguments": {"n": 60.0}, "subject": "agent"} | more


def read(value: dict[str, Any]) -> Proposal:
    proposal = parse_proposal(json.dumps(value).encode(), task_id=ID)
    assert isinstance(proposal, Proposal), proposal
    return proposal


def test_a_signed_proposal_is_found_good() -> None:
    key = OneKey()
    proposal = read(sign_proposal(fields(), "shop", key))
    assert proposal.auth is not None
    assert (proposal.auth.client, proposal.auth.kid, proposal.signed) == ("shop", "client-1", False)
    assert verify_proposal_auth(proposal, key) is None


def test_another_order_of_keys_and_another_spelling_of_a_number_is_the_same_content() -> None:
    key = OneKey()
    signed = sign_proposal(fields(), "shop", key)
    turned = dict(reversed(signed.items())) | {"arguments": {"n": 60}}
    assert verify_proposal_auth(read(turned), key) is None


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"n": 61}},
        {"tool": "fs.write"},
        {"subject": "another"},
        {"id": new_id()},
        {"mode": "operate"},
        {"reply_to": "interlock.reply.mine"},
        {"session": "s"},
        {"accept_until_us": 1},
    ],
)
def test_any_change_after_signing_is_found(change: dict[str, Any]) -> None:
    key = OneKey()
    reason = verify_proposal_auth(read(sign_proposal(fields(), "shop", key) | change), key)
    assert reason is not None
    assert reason.code == "SIGNATURE_INVALID"


@pytest.mark.parametrize("change", [{"client": "bank"}, {"kid": "client-2"}, {"signature": "0" * 128}])
def test_another_name_or_key_under_the_same_signature_is_found(change: dict[str, str]) -> None:
    key = OneKey()
    signed: dict[str, Any] = sign_proposal(fields(), "shop", key)
    reason = verify_proposal_auth(read(signed | {"auth": signed["auth"] | change}), key)
    assert reason is not None


def test_another_key_of_the_same_name_is_found() -> None:
    assert verify_proposal_auth(read(sign_proposal(fields(), "shop", OneKey())), OneKey()) is not None


def test_an_unsigned_proposal_is_not_good() -> None:
    assert verify_proposal_auth(read(fields()), OneKey()) is not None


def test_arguments_that_are_no_json_cannot_have_been_signed() -> None:
    key = OneKey()
    signed = sign_proposal(fields(), "shop", key)
    proposal = read(signed | {"arguments": {"n": float("nan")}})
    assert proposal.arguments_fault is not None
    assert verify_proposal_auth(proposal, key) is not None


def test_only_an_authenticated_client_stands_in_the_proposal() -> None:
    proposal = read(fields()).authenticated("shop", "acme", signed=True)
    assert (proposal.client, proposal.tenant, proposal.signed) == ("shop", "acme", True)

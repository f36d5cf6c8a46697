"""The published schemas say what the program does: over real messages, and over every refusal by form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.adapters.celery_wire import Envelope, decode_task, encode_task
from interlock.answer import Answer
from interlock.approval import Vote
from interlock.decision import Reason
from interlock.field import FIELDS
from interlock.identifier import new_id
from interlock.parse import parse_proposal
from interlock.proposal import Proposal, sign_proposal

WIRE = Path(__file__).parents[3] / "docs" / "wire"
ID = new_id()


def schema(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((WIRE / f"{name}.json").read_text(encoding="utf-8"))
    return value


def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema(name), offline=True, validate_formats=True)


PROPOSAL = validator("proposal")


class PlainSigner:
    kid = "k"

    def sign(self, data: bytes) -> bytes:
        return data[:64]


@pytest.mark.parametrize("name", ["proposal", "answer", "vote", "entry"])
def test_every_schema_is_one_and_is_closed(name: str) -> None:
    jsonschema_rs.meta.validate(schema(name))
    assert schema(name)["additionalProperties"] is False


def test_the_schemas_list_the_fields_that_the_program_has() -> None:
    assert tuple(schema("proposal")["properties"]) == FIELDS
    assert tuple(schema("answer")["properties"]) == tuple(Answer.model_fields)
    assert tuple(schema("vote")["properties"]) == tuple(Vote.model_fields)


def test_a_message_from_the_wire_is_valid() -> None:
    fields = sign_proposal(
        {"id": ID, "tool": "echo", "arguments": {"a": 1}, "reply_to": "interlock.reply.x"},
        "shop",
        PlainSigner(),
    )
    raw = encode_task("interlock.propose", json.dumps(fields).encode(), queue="q", task_id=ID)
    envelope = decode_task(raw)
    assert isinstance(envelope, Envelope)
    PROPOSAL.validate(json.loads(envelope.kwargs_json))


TEXTS: list[Any] = ["", "x", "a b", "ü", "x" * 256, "x" * 257, "a\nb", "\u202e", "\u00a0", None, 7, [], True]
PLACES: list[Any] = ["default", "a.b-c_d", "../x", ".x", "-x", "x" * 128, "x" * 129, "a b", "ü", "", None, 0]
NUMBERS: list[Any] = [-1, 0, 1, 4.0, 9, 10, 1.5, True, "4", None, 2**53 - 1, 31536000001, 1_000_001]
SAYINGS: dict[str, list[Any]] = {
    "id": [ID, ID.upper(), "7d0b1d3c-51a9-4c1e-9e83-1d5b35b3c6a0", "", None, 7],
    "tool": TEXTS,
    "arguments_json": ["{}", None, 7, {}],
    "session": PLACES,
    "stage": PLACES,
    "subject": TEXTS,
    "route": TEXTS,
    "mode": ["locked", "observe", "edit", "operate", "root", "", None, 1],
    "key": TEXTS,
    "priority": NUMBERS,
    "deadline_ms": NUMBERS,
    "accept_until_us": NUMBERS,
    "repeat": NUMBERS,
    "cause": TEXTS,
    "reply_to": [
        "interlock.reply.x",
        "interlock.reply.",
        "interlock.propose",
        "interlock.reply.a b",
        None,
        1,
    ],
    "auth": [
        {"client": "c", "kid": "k", "signature": "0" * 128},
        {"client": "", "kid": "k", "signature": "0" * 128},
        {"client": None, "kid": "k", "signature": "0" * 128},
        {"client": "c", "kid": "k", "signature": "0" * 127},
        {"client": "c", "kid": "k", "signature": "0" * 128, "admin": True},
        {"client": "c"},
        "c",
        None,
    ],
    "client": ["c"],
    "approved": [True],
}


@pytest.mark.parametrize(("field", "value"), [(name, one) for name, some in SAYINGS.items() for one in some])
def test_the_schema_and_the_program_judge_each_field_alike(field: str, value: Any) -> None:
    said: dict[str, Any] = {"id": ID, "tool": "echo", "arguments": {}, field: value}
    if field == "arguments_json":
        del said["arguments"]
    proposal = parse_proposal(json.dumps(said).encode(), task_id=ID)
    taken = isinstance(proposal, Proposal)
    assert PROPOSAL.is_valid(said) == taken, proposal


@given(
    st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(some) for name, some in SAYINGS.items() if name != "auth"}
    )
)
def test_they_judge_whole_proposals_alike(said: dict[str, Any]) -> None:
    whole = {"arguments": {}} | said
    taken = isinstance(parse_proposal(json.dumps(whole).encode(), task_id=ID), Proposal)
    assert PROPOSAL.is_valid(whole) == taken


@pytest.mark.parametrize(
    "answer",
    [
        Answer(invocation_id=ID, status="accepted", phase="awaiting_approval", seq=7),
        Answer(invocation_id=ID, status="duplicate", phase="done"),
        Answer.refusing(None, Reason(code="JSON_SYNTAX", sentence="no" * 2_000)),
    ],
)
def test_answers_are_valid(answer: Answer) -> None:
    validator("answer").validate(json.loads(answer.to_bytes()))


def test_votes_are_valid() -> None:
    vote = Vote(invocation_id=ID, approver="bot", decision="deny", decision_id="1", terms_digest="0" * 64)
    validator("vote").validate(json.loads(vote.to_bytes()))
    assert not validator("vote").is_valid(vote.to_json() | {"tier": "T4"})

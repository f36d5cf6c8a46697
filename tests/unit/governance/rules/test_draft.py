"""What is recorded of a call that is refused for its arguments."""

from __future__ import annotations

from typing import Any

import pytest

from governance.action import action_of
from governance.draft import draft
from interlock.canonical import canonical, sha256_hex
from interlock.event import ToolInvocationRequested, read_payload
from interlock.identifier import new_id
from interlock.permit import Action
from tests.support.court import Court


@pytest.fixture
def court() -> Court:
    return Court()


def test_of_a_call_that_may_show_a_secret_under_another_key_only_digest_and_size_are_kept(
    court: Court,
) -> None:
    secret = new_id()
    answer = court.say("login", {"user": "u", "pasword": secret})
    requested = court.docket(answer.invocation_id).requested
    assert (answer.code, requested.arguments, requested.sensitive) == ("SCHEMA_INVALID", None, ())
    text = canonical({"pasword": secret, "user": "u"})
    assert requested.raw == {"sha256": sha256_hex(text), "size_bytes": len(text)}
    assert requested.arguments_hash == sha256_hex(text)
    with court.ledger.read() as view:
        assert secret.encode() not in b"".join(event.payload for event in view.range(0, 1_000))


def test_of_another_refused_call_the_arguments_are_kept(court: Court) -> None:
    requested = court.docket(court.say("note", {"txt": "x"}).invocation_id).requested
    assert (requested.arguments, requested.raw) == ({"txt": "x"}, None)


def test_of_a_call_to_an_unknown_tool_only_digest_and_size_are_kept(court: Court) -> None:
    requested = court.docket(court.say("nothing", {"a": "x"}).invocation_id).requested
    assert requested.arguments is None
    assert requested.raw == {"sha256": sha256_hex(b'{"a":"x"}'), "size_bytes": 9}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("echo", {"value": [1, -0.5, {"ü": "\\u0000"}]}),
        ("echo", {"value": "x" * 3_000}),
        ("note", {"text": "held"}),
        ("note", {"txt": "no such field"}),
        ("login", {"user": "u", "password": "secret"}),
        ("nothing", {}),
    ],
)
def test_every_recorded_event_is_the_word_that_a_reader_makes_of_it(
    court: Court, tool: str, arguments: dict[str, Any]
) -> None:
    court.say(tool, arguments)
    with court.ledger.read() as view:
        events = view.range(0, 1_000)
    assert {event.type for event in events} >= {"ToolInvocationRequested"}
    for event in events:
        assert canonical(event.body()) == event.payload
        assert canonical(read_payload(event).to_json()) == event.payload


def test_a_draft_is_the_word_that_its_class_makes(court: Court) -> None:
    proposal = court.proposal("login", {"user": "u", "password": "p"}, key="k", subject="s", priority=2)
    _, known = court.propose.toolbox.find_all(["login"])
    made = draft(proposal, known["login"], court.sealer)
    assert made.requested == ToolInvocationRequested.from_json(made.requested.to_json())
    assert made.written == canonical(made.requested.to_json())
    assert made.requested.request_digest == proposal.request_digest
    assert made.requested.action_digest == Action.from_json(action_of(made.requested).to_json()).digest

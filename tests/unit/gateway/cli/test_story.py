"""The story of one invocation: every decision with its reason, and causes back to where it came from."""

from __future__ import annotations

import json

import pytest

from gateway.story import Story, approvals, arguments, decisions, shown_body, tell
from interlock.tier import SessionMode
from tests.support.court import Court


@pytest.fixture
def court() -> Court:
    court = Court()
    court.approver()
    return court


def story_of(court: Court, invocation_id: str | None) -> Story:
    with court.ledger.read() as view:
        story = tell(view, str(invocation_id))
    assert story is not None
    return story


def test_the_chain_leads_from_the_last_event_to_the_submission(court: Court) -> None:
    answer = court.say("echo", {"value": 1})
    links = story_of(court, answer.invocation_id).causes
    assert [link.what for link in links] == ["ApprovalGranted", "ToolInvocationRequested", "submission"]
    assert links[-1].actor == answer.invocation_id


def test_a_denial_leads_to_the_answer_that_gave_it_and_to_what_was_asked(court: Court) -> None:
    answer = court.say("pay", {"amount": 1})
    vote = court.vote_of(answer.invocation_id, "deny", reason="no")
    assert court.cast(vote) is None
    court.review(answer.invocation_id)
    links = story_of(court, answer.invocation_id).causes
    assert [link.what for link in links] == [
        "ToolExecutionRejected",
        "ApprovalDenied",
        "ApprovalVoted",
        "ApprovalRequested",
        "ToolInvocationRequested",
        "submission",
    ]
    assert links[2].cause == f"vote:{vote.decision_id}"


def test_a_silence_leads_to_the_timer(court: Court) -> None:
    answer = court.say("pay", {"amount": 1})
    court.clock.advance(9 * 3_600)
    court.review(answer.invocation_id)
    links = story_of(court, answer.invocation_id).causes
    assert [(link.what, link.actor) for link in links[-2:]] == [
        ("ApprovalExpired", "governance"),
        ("timer", "approval_expiry"),
    ]


def test_a_cancellation_leads_to_who_asked(court: Court) -> None:
    answer = court.say("pay", {"amount": 1})
    court.cancel(answer.invocation_id)
    links = story_of(court, answer.invocation_id).causes
    assert [(link.what, link.actor) for link in links[-1:]] == [("operator", "test")]


def test_a_cause_that_is_another_invocation_is_followed(court: Court) -> None:
    first = court.say("echo", {"value": 1})
    second = court.say("echo", {"value": 2}, stage="h", cause=f"invocation:{first.invocation_id}@2")
    links = story_of(court, second.invocation_id).causes
    assert links[-1].what == "submission"
    assert links[-1].actor == first.invocation_id


def test_a_cause_that_does_not_exist_ends_the_chain(court: Court) -> None:
    answer = court.say("echo", {"value": 1}, cause="event:999")
    links = story_of(court, answer.invocation_id).causes
    assert [(link.what, link.actor) for link in links[-1:]] == [("event", "999")]


def test_a_cause_that_names_itself_ends_the_chain(court: Court) -> None:
    proposal = court.proposal("echo", {"value": 1})
    own = f"invocation:{proposal.id}@1"
    answer = court.say("echo", {"value": 1}, id=proposal.id, cause=own)
    assert len(story_of(court, answer.invocation_id).causes) == 3


def test_every_decision_has_its_reasons_and_verdicts(court: Court) -> None:
    answer = court.say("note", {"txt": 1})
    [decision] = decisions(story_of(court, answer.invocation_id))
    assert decision["type"] == "ToolExecutionRejected"
    assert decision["reasons"][0]["code"] == "SCHEMA_INVALID"  # type: ignore[index, call-overload] # JSON
    assert decision["verdicts"]


def test_an_answer_that_did_not_count_is_shown_with_its_reason(court: Court) -> None:
    court.approver("local")
    answer = court.say("pay", {"amount": 1})
    assert court.cast(court.vote_of(answer.invocation_id, approver="local")) == "APPROVER_IS_REQUESTER"
    shown = json.dumps(approvals(story_of(court, answer.invocation_id)))
    assert "APPROVER_IS_REQUESTER" in shown


def test_sealed_values_are_shown_masked(court: Court) -> None:
    court.open("s", SessionMode.OBSERVE)
    answer = court.say("login", {"user": "u", "password": "t0ken-1"})
    story = story_of(court, answer.invocation_id)
    assert arguments(story) == {"user": "u", "password": "[masked]"}
    shown = json.dumps([shown_body(event) for event in story.events])
    assert "$sealed" not in shown
    assert "t0ken-1" not in shown


def test_a_stranger_has_no_story(court: Court) -> None:
    with court.ledger.read() as view:
        assert tell(view, "nobody") is None

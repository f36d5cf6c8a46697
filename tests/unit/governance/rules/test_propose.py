"""What becomes of proposals: accepted once, judged by every step, in line."""

from __future__ import annotations

from typing import Any

import pytest

from governance.session import open_session
from governance.toolbox import Toolbox
from interlock.identifier import new_id
from interlock.tier import SessionMode
from tests.support.court import Court


@pytest.fixture
def court() -> Court:
    return Court()


def test_allows_what_the_mode_grants_and_hints_at_it(court: Court) -> None:
    accepted = court.submit(court.proposal("echo", {"value": 1}))
    answer = accepted.answers[0]
    assert (answer.status, answer.phase) == ("accepted", "queued")
    assert [hint.invocation_ids for hint in accepted.hints] == [(answer.invocation_id,)]
    assert court.types(answer.invocation_id) == ["ToolInvocationRequested", "ApprovalGranted"]
    assert court.head(answer.invocation_id).ready


def test_parks_what_the_mode_does_not_grant(court: Court) -> None:
    answer = court.say("note", {"text": "x"})
    assert answer.phase == "awaiting_approval"
    due = court.due(answer.invocation_id)
    assert due is not None
    assert due.what == "approval_expiry"


@pytest.mark.parametrize(
    ("tool", "arguments", "more", "code"),
    [
        ("nothing", {}, {}, "UNKNOWN_TOOL"),
        ("note", {"text": 5}, {}, "SCHEMA_INVALID"),
        ("note", {"txt": "x"}, {}, "SCHEMA_INVALID"),
        ("echo", {"value": 1}, {"mode": "operate"}, "MODE_ESCALATION"),
        ("echo", {"value": 1}, {"mode": "root"}, "FIELD_INVALID"),
    ],
)
def test_refuses_by_name(
    court: Court, tool: str, arguments: dict[str, object], more: dict[str, str], code: str
) -> None:
    answer = court.say(tool, arguments, **more)
    assert (answer.status, answer.phase, answer.code) == ("refused", "done", code)
    assert court.types(answer.invocation_id) == ["ToolInvocationRequested", "ToolExecutionRejected"]
    assert court.due(answer.invocation_id) is None


def test_a_proposal_may_lower_its_mode(court: Court) -> None:
    court.open("s", SessionMode.EDIT)
    assert court.say("note", {"text": "x"}).phase == "queued"
    assert court.say("note", {"text": "y"}, mode="observe", stage="other").phase == "awaiting_approval"


def test_the_same_id_again_gets_the_first_answer(court: Court) -> None:
    proposal = court.proposal("echo", {"value": 1})
    first, again = court.submit(proposal).answers[0], court.submit(proposal).answers[0]
    assert (again.status, again.invocation_id, again.phase) == ("duplicate", first.invocation_id, "queued")
    assert len(court.types(first.invocation_id)) == 2


def test_a_refused_id_again_gets_its_refusal_again(court: Court) -> None:
    proposal = court.proposal("nothing", {})
    first, again = court.submit(proposal).answers[0], court.submit(proposal).answers[0]
    assert again == first
    assert (again.code, again.is_recorded) == ("UNKNOWN_TOOL", True)


def test_the_same_id_twice_in_one_batch_is_one_invocation(court: Court) -> None:
    proposal = court.proposal("echo", {"value": 1})
    answers = court.submit(proposal, proposal).answers
    assert [answer.status for answer in answers] == ["accepted", "duplicate"]


@pytest.mark.parametrize("other", [{"value": 2}, {"value": "1"}])
def test_the_same_id_with_other_arguments_is_a_conflict_that_reveals_nothing(
    court: Court, other: dict[str, object]
) -> None:
    first = court.say("echo", {"value": 1})
    answer = court.say("echo", other, id=first.invocation_id)
    assert (answer.status, answer.code, answer.phase) == ("refused", "ID_CONFLICT", "")


def test_another_clients_id_is_a_conflict(court: Court) -> None:
    first = court.say("echo", {"value": 1})
    assert court.say("echo", {"value": 1}, id=first.invocation_id, client="other").code == "ID_CONFLICT"


def test_an_id_of_another_day_is_refused_unrecorded(court: Court) -> None:
    court.clock.advance(2 * 86_400)
    answer = court.say("echo", {"value": 1})
    assert (answer.code, answer.phase) == ("ID_TIME_OUT_OF_RANGE", "")
    assert court.types(answer.invocation_id) == []


def test_a_proposal_after_its_own_moment_is_refused(court: Court) -> None:
    late = court.say("echo", {"value": 1}, accept_until_us=court.clock.now_us() - 1)
    assert late.code == "ACCEPT_UNTIL_PASSED"


@pytest.mark.parametrize(
    "second",
    [
        {"tool": "echo", "arguments": {"value": 5000}},
        {"tool": "note", "arguments": {"text": "x"}},
        {"tool": "echo", "arguments": {"value": 5}, "subject": "u-18"},
        {"tool": "echo", "arguments": {"value": 5}, "session": "t"},
    ],
)
def test_a_key_used_with_other_content_is_refused(court: Court, second: dict[str, Any]) -> None:
    first = court.say("echo", {"value": 5}, key="K")
    tool, arguments = second.pop("tool"), second.pop("arguments")
    answer = court.say(tool, arguments, key="K", **second)
    assert answer.code == "KEY_REUSED"
    assert court.say("echo", {"value": 5}, key="K").invocation_id == first.invocation_id


def test_a_key_is_bound_by_acceptance_only(court: Court) -> None:
    assert court.say("note", {"text": 5}, key="K").code == "SCHEMA_INVALID"
    assert court.say("note", {"text": "x"}, key="K").status == "accepted"


def test_a_stage_runs_one_at_a_time(court: Court) -> None:
    accepted = court.submit(*(court.proposal("echo", {"value": n}) for n in range(3)))
    assert [hint.invocation_ids for hint in accepted.hints] == [(accepted.answers[0].invocation_id,)]
    assert [court.head(answer.invocation_id).ready for answer in accepted.answers] == [True, False, False]


def test_what_waits_for_an_approval_holds_its_stage(court: Court) -> None:
    parked = court.say("note", {"text": "x"})
    behind = court.say("echo", {"value": 1})
    assert not court.head(behind.invocation_id).ready
    outcome = court.cancel(parked.invocation_id)
    assert outcome is not None
    assert [hint.invocation_ids for hint in outcome.hints] == [(behind.invocation_id,)]


def test_another_clients_session_is_unknown(court: Court) -> None:
    court.open("s", SessionMode.OPERATE, client="owner")
    assert court.say("note", {"text": "x"}).code == "SESSION_UNKNOWN"


def test_a_sensitive_value_is_stored_sealed_and_hashed_by_its_true_value(court: Court) -> None:
    secret = new_id()
    one = court.say("login", {"user": "u", "password": secret}, stage="1")
    two = court.say("login", {"user": "u", "password": secret}, stage="2")
    requested, other = court.docket(one.invocation_id).requested, court.docket(two.invocation_id).requested
    assert requested.sensitive == ("/password",)
    assert requested.arguments_hash == other.arguments_hash
    with court.ledger.read() as view:
        assert secret.encode() not in b"".join(event.payload for event in view.range(0, 1_000))


def test_every_accepted_invocation_has_one_due_row(court: Court) -> None:
    queued, parked = court.say("echo", {"value": 1}), court.say("note", {"text": "x"}, stage="h")
    assert [
        due.what for due in (court.due(queued.invocation_id), court.due(parked.invocation_id)) if due
    ] == [
        "release",
        "approval_expiry",
    ]


def test_a_deadline_counts_from_acceptance(court: Court) -> None:
    answer = court.say("echo", {"value": 1}, deadline_ms=1_000)
    head = court.head(answer.invocation_id)
    assert head.deadline_us == head.at_us + 1_000_000


def test_a_tool_whose_schema_made_room_for_others_is_still_known(court: Court) -> None:
    toolbox = Toolbox(court.ledger, compiled_max=1)
    first = toolbox.find_all(["echo"])[1]["echo"]
    assert first is not None
    assert all(toolbox.find_all(["note", "pay"])[1].values()), "more at once than are kept"
    again = toolbox.find_all(["echo"])[1]["echo"]
    assert again is not None
    assert toolbox.find_all(["note"])[1]["note"] is not None
    pinned = toolbox.pinned(first.digest)
    assert (again.digest, pinned and pinned.contract) == (first.digest, first.contract)


def test_a_refused_proposal_opens_no_session(court: Court) -> None:
    refused = court.proposal("nothing", {}, session="prod")
    foreign = court.proposal("echo", {"value": 1}, session="prod", client="other")
    answers = court.submit(refused, foreign).answers
    assert [answer.status for answer in answers] == ["refused", "accepted"], "the name was not taken"
    assert court.say("nothing", {}, session="later").code == "UNKNOWN_TOOL"
    court.open("later", SessionMode.OPERATE)


@pytest.mark.parametrize("is_implicit", [True, False])
def test_a_taken_session_name_says_how_it_was_opened(court: Court, is_implicit: bool) -> None:
    if is_implicit:
        court.say("echo", {"value": 1}, session="t")
    else:
        court.open("t", SessionMode.OBSERVE)
    reason = open_session(court.ledger, "default", "t", SessionMode.EDIT, client="local", opened_by="test")
    assert reason is not None
    assert reason.code == "SESSION_EXISTS"
    assert "open, mode observe, client local" in reason.sentence
    assert ("opened implicitly" in reason.sentence) is is_implicit

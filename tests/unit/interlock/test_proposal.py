"""Reading proposals: what is taken, what is refused by name, and what a producer cannot gain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock.canonical import sha256_hex
from interlock.field import FIELDS
from interlock.identifier import is_uuid7, new_id
from interlock.parse import parse_proposal
from interlock.proposal import ARGUMENTS_SIZE_MAX, Proposal, ProposalRefused

ID = new_id()
UUID4 = "7d0b1d3c-51a9-4c1e-9e83-1d5b35b3c6a0"


def text(**fields: Any) -> bytes:
    return json.dumps({"id": ID, "tool": "echo", "arguments": {"a": 1}} | fields).encode()


def with_arguments(raw: str) -> bytes:
    return b'{"id":"%s","tool":"payments.refund","arguments":%s}' % (ID.encode(), raw.encode())


def taken(raw: bytes, *, task_id: str = UUID4, reply_to: str | None = None) -> Proposal:
    proposal = parse_proposal(raw, task_id=task_id, reply_to=reply_to)
    assert isinstance(proposal, Proposal), proposal
    return proposal


def refused(raw: bytes, *, task_id: str = UUID4) -> ProposalRefused:
    proposal = parse_proposal(raw, task_id=task_id)
    assert isinstance(proposal, ProposalRefused), proposal
    return proposal


def test_a_proposal_says_what_was_left_out() -> None:
    proposal = taken(text())
    assert (proposal.session, proposal.stage, proposal.priority, proposal.repeat) == (
        "default",
        "default",
        4,
        0,
    )
    assert proposal.defaulted == ("session", "stage")
    assert taken(text(session="s", stage="g")).defaulted == ()


def test_every_field_is_taken_as_it_was_said() -> None:
    proposal = taken(
        text(
            session="s-1",
            stage="g.2",
            subject="agent",
            route="support",
            mode="observe",
            key="k",
            priority=0,
            deadline_ms=5_000,
            accept_until_us=1_800_000_000_000_000,
            repeat=2,
            cause="artifact:1",
            reply_to="interlock.reply.abc",
        )
    )
    assert (proposal.id, proposal.tool, proposal.arguments) == (ID, "echo", {"a": 1})
    assert (proposal.session, proposal.stage, proposal.subject) == ("s-1", "g.2", "agent")
    assert (proposal.route, proposal.mode, proposal.key, proposal.priority) == ("support", "observe", "k", 0)
    assert (proposal.deadline_ms, proposal.accept_until_us) == (5_000, 1_800_000_000_000_000)
    assert (proposal.repeat, proposal.cause, proposal.reply_to) == (2, "artifact:1", "interlock.reply.abc")


def test_null_means_left_out() -> None:
    proposal = taken(text(**dict.fromkeys(set(FIELDS) - {"id", "tool", "arguments"}, None)))
    assert proposal == taken(text())


@pytest.mark.parametrize(
    ("field", "nearest"), [("argumnts", "arguments"), ("sesion", "session"), ("dead_line_ms", "deadline_ms")]
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(field: str, nearest: str) -> None:
    answer = refused(text(**{field: 1}))
    assert answer.reason.code == "UNKNOWN_FIELD"
    assert nearest in answer.reason.sentence
    assert answer.id == ID


@pytest.mark.parametrize("field", ["client", "tenant", "approved", "signed", "permit", "tier"])
def test_a_made_up_right_gains_nothing(field: str) -> None:
    assert refused(text(**{field: "admin"})).reason.code == "UNKNOWN_FIELD"


def test_a_made_up_approval_within_the_arguments_stays_an_argument() -> None:
    proposal = taken(text(arguments={"approved": True, "client": "admin", "mode": "operate"}))
    assert (proposal.client, proposal.tenant, proposal.signed, proposal.mode) == ("", "", False, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tool", ""),
        ("tool", "x" * 257),
        ("tool", 7),
        ("tool", "a\nb"),
        ("subject", "a\u202eb"),
        ("session", "../etc"),
        ("session", ".hidden"),
        ("session", "a/b"),
        ("stage", "x" * 129),
        ("stage", "ü"),
        ("mode", "root"),
        ("priority", -1),
        ("priority", 10),
        ("priority", True),
        ("priority", 1.5),
        ("deadline_ms", 0),
        ("accept_until_us", "soon"),
        ("repeat", -1),
        ("reply_to", "interlock.propose"),
        ("reply_to", "interlock.reply.a b"),
        ("auth", {"client": "c"}),
        ("auth", {"client": "c", "kid": "k", "signature": "00"}),
        ("arguments_json", {"a": 1}),
    ],
)
def test_a_field_that_is_not_valid_is_refused_by_name(field: str, value: Any) -> None:
    answer = refused(text(**{field: value}))
    assert answer.reason.code == "FIELD_INVALID"
    assert field in answer.reason.sentence


@pytest.mark.parametrize("wrong", [UUID4, "x", ID.upper(), 7])
def test_an_id_that_is_no_uuid7_is_refused_and_not_answered_as_one(wrong: Any) -> None:
    answer = refused(text(id=wrong))
    assert (answer.reason.code, answer.id) == ("ID_NOT_UUID7", None)


def test_a_missing_tool_or_missing_arguments_are_named() -> None:
    assert refused(b'{"id":"%s","arguments":{}}' % ID.encode()).reason.sentence == "tool is missing"
    assert refused(b'{"id":"%s","tool":"echo"}' % ID.encode()).reason.code == "FIELD_MISSING"


# --- ids -----------------------------------------------------------------------------------------


def plain(**fields: Any) -> bytes:
    return json.dumps({"tool": "echo", "arguments": {}} | fields).encode()


def test_without_an_id_the_task_id_is_it_where_it_can_be() -> None:
    proposal = taken(plain(), task_id=ID)
    assert (proposal.id, proposal.key) == (ID, None)
    assert "id" in proposal.defaulted


def test_without_an_id_the_same_message_again_has_the_same_key_and_digest() -> None:
    first, again = taken(plain()), taken(plain())
    assert is_uuid7(first.id)
    assert first.id != again.id
    assert first.key == again.key == f"celery:{UUID4}"
    assert first.request_digest == again.request_digest
    assert first.defaulted == ("id", "key", "session", "stage")


def test_a_key_of_the_producers_own_is_kept() -> None:
    assert taken(plain(key="order-7")).key == "order-7"


def test_without_any_id_there_is_no_proposal() -> None:
    assert refused(plain(), task_id="").reason.code == "FIELD_MISSING"


def test_a_signed_proposal_names_its_id_itself() -> None:
    auth = {"client": "c", "kid": "k", "signature": "0" * 128}
    assert refused(plain(auth=auth), task_id=ID).reason.code == "FIELD_MISSING"


# --- replies -------------------------------------------------------------------------------------


def test_celerys_own_reply_address_is_passed_over() -> None:
    assert taken(text(), reply_to=UUID4).reply_to is None
    assert taken(text(), reply_to="interlock.propose").reply_to is None
    assert taken(text(), reply_to="interlock.reply.x").reply_to == "interlock.reply.x"
    assert taken(text(reply_to="interlock.reply.y"), reply_to="interlock.reply.x").reply_to == (
        "interlock.reply.y"
    )


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ['{"ticket_id":60,"body":"x"}', '{"body":"x","ticket_id":60.0}'])
def test_one_number_has_one_form_and_one_digest(raw: str) -> None:
    proposal = taken(with_arguments(raw))
    assert proposal.arguments == {"ticket_id": 60, "body": "x"}
    assert proposal.arguments is not None
    assert type(proposal.arguments["ticket_id"]) is int
    assert (
        proposal.request_digest
        == taken(with_arguments('{"ticket_id":6e1,"body":"x"}')).request_digest
        == taken(
            json.dumps(
                {
                    "tool": "payments.refund",
                    "id": ID,
                    "arguments_json": '{"ticket_id": 60.0, "body": "x"}',
                }
            ).encode()
        ).request_digest
    )


@pytest.mark.parametrize("field", ["tool", "session", "stage", "subject", "route", "key", "cause"])
def test_every_word_said_changes_the_digest(field: str) -> None:
    assert taken(text(**{field: "other"})).request_digest != taken(text()).request_digest


@pytest.mark.parametrize(
    "changed",
    [{"mode": "locked"}, {"priority": 5}, {"deadline_ms": 1}, {"repeat": 1}, {"arguments": {"a": 2}}],
)
def test_every_number_said_changes_the_digest(changed: dict[str, Any]) -> None:
    assert taken(text(**changed)).request_digest != taken(text()).request_digest


def test_how_it_is_carried_does_not_change_the_digest() -> None:
    carried = text(id=new_id(), reply_to="interlock.reply.q", accept_until_us=5)
    assert taken(carried).request_digest == taken(text()).request_digest


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ('{"amount":NaN}', "JSON_NOT_FINITE"),
        ('{"amount":Infinity}', "JSON_NOT_FINITE"),
        ('{"amount":-Infinity}', "JSON_NOT_FINITE"),
        ('{"amount":1e400}', "JSON_NUMBER_RANGE"),
        ('{"amount":9007199254740993}', "JSON_NUMBER_RANGE"),
        ('{"reason":"a\\u0000b"}', "JSON_NUL"),
        ('{"reason":"\\ud800"}', "JSON_UNICODE"),
        ('{"a":1,"a":2}', "JSON_DUPLICATE_KEY"),
        ("[" * 10_000 + "]" * 10_000, "JSON_DEPTH"),
        ('{"a":tru}', "JSON_SYNTAX"),
        ("[1]", "ARGUMENTS_NOT_OBJECT"),
        ('"text"', "ARGUMENTS_NOT_OBJECT"),
        ("null", "ARGUMENTS_NOT_OBJECT"),
    ],
)
def test_bad_arguments_under_a_good_id_can_be_recorded_as_refused(raw: str, code: str) -> None:
    proposal = taken(with_arguments(raw))
    assert proposal.arguments is None
    assert proposal.arguments_fault is not None
    assert proposal.arguments_fault.code == code
    assert proposal.id == ID
    assert (proposal.raw_sha256, proposal.raw_size) == (sha256_hex(raw.encode()), len(raw))


@pytest.mark.parametrize(
    ("raw", "code"),
    [('{"amount":NaN}', "JSON_NOT_FINITE"), ("[" * 10_000, "JSON_DEPTH"), ("", "JSON_SYNTAX")],
)
def test_bad_arguments_sent_as_text_are_found_alike(raw: str, code: str) -> None:
    body = {"id": ID, "tool": "echo", "arguments_json": raw}
    proposal = taken(json.dumps(body).encode())
    assert proposal.arguments_fault is not None
    assert proposal.arguments_fault.code == code
    assert (proposal.raw_sha256, proposal.raw_size) == (sha256_hex(raw.encode()), len(raw))


def test_two_different_bad_arguments_have_two_digests() -> None:
    digests = {taken(with_arguments(raw)).request_digest for raw in ('{"a":NaN}', '{"b":NaN}', '{"a":{}}')}
    assert len(digests) == 3


def test_backslash_u_as_text_is_not_touched() -> None:
    assert taken(with_arguments('{"reason":"a\\\\u0000b"}')).arguments == {"reason": "a\\u0000b"}


def test_the_two_spellings_of_an_accent_stay_different() -> None:
    arguments = taken(with_arguments('{"reason":"e\\u0301 vs \\u00e9"}')).arguments
    assert arguments == {"reason": "e\u0301 vs \u00e9"}


def test_minus_zero_is_zero_and_the_number_compared_is_the_number_sent() -> None:
    arguments = taken(with_arguments('{"a":-0.0,"b":1000.00000000000001}')).arguments
    assert arguments == {"a": 0, "b": 1000}
    assert str(arguments) == "{'a': 0, 'b': 1000}"


def test_arguments_may_be_a_mebibyte_and_no_more() -> None:
    fits = "x" * (ARGUMENTS_SIZE_MAX - len('{"a":""}'))
    assert taken(text(arguments={"a": fits})).arguments_fault is None
    for fields in ({"arguments": {"a": fits + "x"}}, {"arguments_json": json.dumps({"a": fits + "x"})}):
        raw = json.dumps({"id": ID, "tool": "echo"} | fields).encode()
        fault = taken(raw).arguments_fault
        assert fault is not None
        assert fault.code in ("ARGUMENTS_TOO_LARGE", "JSON_SIZE")


def test_arguments_twice_are_refused() -> None:
    assert refused(text(arguments_json="{}")).reason.code == "FIELD_INVALID"


# --- text that is no proposal ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "JSON_SYNTAX"),
        (b"{", "JSON_SYNTAX"),
        (b"[]", "JSON_TYPE"),
        (b"null", "JSON_TYPE"),
        (b"\xff", "JSON_SYNTAX"),
        (b"{} {}", "JSON_SYNTAX"),
        (b'{"id":1', "JSON_SYNTAX"),
        (b'{"tool":"a","tool":"b"}', "JSON_DUPLICATE_KEY"),
        (b'{"id":"\xff"}', "JSON_ENCODING"),
        (b'{"priority":NaN}', "JSON_NOT_FINITE"),
        (b'{"a":1]', "JSON_SYNTAX"),
        (b"[" * 10_000 + b"]" * 10_000, "JSON_SYNTAX"),
    ],
)
def test_text_that_is_no_proposal_is_refused_with_what_is_wrong(raw: bytes, code: str) -> None:
    answer = refused(raw, task_id=ID)
    assert (answer.reason.code, answer.id, answer.task_id) == (code, ID, ID)


def test_bad_json_beside_the_id_is_answered_under_the_id() -> None:
    answer = refused(b'{"subject":NaN,"id":"%s","reply_to":"interlock.reply.r"}' % ID.encode())
    assert (answer.reason.code, answer.id, answer.reply_to) == ("JSON_NOT_FINITE", ID, "interlock.reply.r")
    assert "subject" in answer.reason.sentence


def test_an_id_said_twice_is_no_id() -> None:
    answer = refused(b'{"id":"%s","\\u0069d":"%s"}' % (ID.encode(), new_id().encode()))
    assert (answer.reason.code, answer.id) == ("JSON_DUPLICATE_KEY", None)


def test_a_text_of_the_greatest_size_is_read_in_time_that_grows_with_it() -> None:
    for raw in (
        b'"' * 4_000_000,
        b'{"a":"' + b'\\"' * 2_000_000,
        b"{" * 4_000_000,
        b'{"a":NaN' + b",1" * 100_000,
    ):
        assert refused(raw).reason.code.startswith("JSON_")

"""Lines of a batch: arguments go on as the text they are, and what stands for an answer."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from gateway.cli.batch import PORTION_MAX, Fields, Sending, propose_lines, propose_one, read_line
from gateway.cli.batch import Proposal as Line
from gateway.cli.output import Output, ReaderGoneError
from interlock.answer import Answer
from interlock.errors import NotJsonError
from interlock.parse import parse_proposal
from interlock.proposal import Proposal
from tests.support.court import Court


class Governor:
    """Answers at once, as the governor behind the queue would."""

    def __init__(self, court: Court) -> None:
        self.court = court
        self.sent: list[str] = []

    def propose(self, portions: Iterable[Sequence[Line]]) -> Iterator[list[Answer]]:
        for portion in portions:
            yield [self.answer(fields, text) for fields, text in portion]

    def answer(self, fields: Fields, text: str) -> Answer:
        kwargs = json.dumps({"session": "s", "stage": "g", **fields, "arguments_json": text})
        self.sent.append(text)
        proposal = parse_proposal(kwargs.encode(), task_id=f"t-{len(self.sent)}")
        assert isinstance(proposal, Proposal)
        return self.court.submit(proposal.authenticated("local", "default", signed=False)).answers[0]


@pytest.fixture
def governor() -> Governor:
    return Governor(Court())


def file_of(lines: Sequence[bytes]) -> io.BytesIO:
    return io.BytesIO(b"\n".join(lines))


def run_one(governor: Governor, tool: str, text: str, **more: Any) -> tuple[int, Any]:
    stream = io.StringIO()
    sending = Sending(governor.propose, governor.court.ledger)
    given = {"wait": None, "check": False, **more}
    status = propose_one(sending, {"tool": tool, "subject": "agent"}, text, Output(True, stream), **given)
    return status, json.loads(stream.getvalue())


def test_says_accepted_parked_and_rejected(governor: Governor) -> None:
    assert run_one(governor, "echo", '{"value":1}')[0] == 0
    assert run_one(governor, "pay", '{"amount":1}')[0] == 3
    status, said = run_one(governor, "note", '{"txt":1}')
    assert (status, said["status"], said["code"]) == (4, "REJECTED", "SCHEMA_INVALID")


@pytest.mark.parametrize(
    "text", ['{"value":NaN}', '{"value":1e400}', '{"value":"\\u0000"}', '{"a":1,"a":2}', "[1]", "{"]
)
def test_text_that_is_no_strict_json_reaches_governance_as_it_is(governor: Governor, text: str) -> None:
    status, said = run_one(governor, "echo", text)
    assert status == 4
    assert said["record"]["status"] == "REJECTED"
    assert governor.sent == [text]


def test_a_wait_that_ends_too_early_is_an_error(
    governor: Governor, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run_one(governor, "echo", '{"value":1}', wait=0.0)
    assert (status, said["phase"]) == (1, "queued")
    assert capsys.readouterr().err.startswith("WAIT_TIMEOUT: ")


def test_a_wait_over_what_is_parked_says_parked(governor: Governor) -> None:
    assert run_one(governor, "pay", '{"amount":1}', wait=0.0)[0] == 3


@pytest.mark.parametrize("code", ["NOT_ACCEPTED", "ACCEPTANCE_UNKNOWN", "BROKER_UNAVAILABLE"])
def test_where_governance_said_nothing_there_is_no_verdict(code: str) -> None:
    court = Court()

    def propose(portions: Iterable[Sequence[Line]]) -> Iterator[list[Answer]]:
        for portion in portions:
            yield [Answer(status="refused", code=code, sentence="nobody took it")] * len(portion)

    stream = io.StringIO()
    sending = Sending(propose, court.ledger)
    assert propose_one(sending, {}, "{}", Output(True, stream), wait=1.0, check=False) == 1
    assert json.loads(stream.getvalue())["code"] == code


def test_a_conflicting_id_shows_nothing_of_the_other(governor: Governor) -> None:
    _, first = run_one(governor, "echo", '{"value":1}')
    stream = io.StringIO()
    fields: Fields = {"tool": "echo", "subject": "agent", "id": first["invocation_id"]}
    sending = Sending(governor.propose, governor.court.ledger)
    assert propose_one(sending, fields, '{"value":2}', Output(True, stream), wait=None, check=False) == 4
    said = json.loads(stream.getvalue())
    assert (said["code"], said["record"], said["output"]) == ("ID_CONFLICT", None, None)


# --- batches -------------------------------------------------------------------------------------


def test_one_answer_a_line_in_their_order(governor: Governor) -> None:
    lines = [
        b'{"tool":"echo","arguments":{"value":60.0}}',
        b'{"tool":"note","arguments":{"txt":1},"stage":"b"}',
        b"no json",
        b'{"tool":"pay","arguments_json":"{\\"amount\\":1}","stage":"c"}',
    ]
    stream = io.StringIO()
    sending = Sending(governor.propose, governor.court.ledger)
    common: Fields = {"subject": "agent"}
    status = propose_lines(sending, file_of(lines), common, Output(True, stream), wait=None, check=False)
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["answer"], one["code"]) for one in said] == [
        ("accepted", None),
        ("refused", "SCHEMA_INVALID"),
        ("refused", "JSON_SYNTAX"),
        ("accepted", "TIER_ABOVE_MODE"),
    ]
    assert status == 4
    assert governor.sent[0] == '{"value":60.0}'


def test_sends_nothing_more_when_nobody_reads(governor: Governor) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    lines = [b'{"tool":"echo","arguments":{"value":1}}'] * (2 * PORTION_MAX)
    sending = Sending(governor.propose, governor.court.ledger)
    with pytest.raises(ReaderGoneError):
        propose_lines(sending, file_of(lines), {}, Output(True, Closed()), wait=None, check=False)
    assert len(governor.sent) == PORTION_MAX


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"[]", "JSON_SYNTAX"),
        (b'{"arguments":{}}', "FIELD_MISSING"),
        (b'{"tool":"echo"}', "FIELD_MISSING"),
        (b'{"tool":"echo","arguments":{},"arguments_json":"{}"}', "FIELD_MISSING"),
        (b'{"tool":"echo","arguments":{},"client":"other"}', "UNKNOWN_FIELD"),
        (b'{"tool":"echo","tool":"pay","arguments":{}}', "JSON_DUPLICATE_KEY"),
        (b'{"tool":"echo","arguments_json":5}', "FIELD_INVALID"),
    ],
)
def test_a_line_is_refused_by_name(line: bytes, code: str) -> None:
    with pytest.raises(NotJsonError) as refused:
        read_line(line)
    assert refused.value.code == code


def test_arguments_of_a_line_are_not_read_here() -> None:
    fields, text = read_line(b'{"tool":"echo", "arguments": {"n": 1e400, "n": NaN} }')
    assert (fields, text) == ({"tool": "echo"}, '{"n": 1e400, "n": NaN}')

"""What is certain of a batch's lines, said in one line; and what an interruption breaks."""

from __future__ import annotations

import io
import signal

import pytest

from gateway.cli.outcome import Outcome
from gateway.cli.output import Output
from gateway.cli.tally import Interruption, Tally
from interlock.answer import Answer

TAKEN = Answer(invocation_id="i", status="accepted", phase="queued")
BAD = Answer(status="refused", code="JSON_SYNTAX")
GONE = Answer(invocation_id="i", status="refused", code="BROKER_UNAVAILABLE")
UNKNOWN = Answer(invocation_id="i", status="refused", code="ACCEPTANCE_UNKNOWN")


def tally(*portions: list[Answer]) -> Tally:
    found, number = Tally(Output(True, io.StringIO())), 0
    for answers in portions:
        numbers = list(range(number + 1, number + 1 + len(answers)))
        number = numbers[-1]
        found.read_until(number)
        found.answered(numbers, answers)
        for line, answer in zip(numbers, answers, strict=True):
            found.said(Outcome(answer, line=line))
    return found


def test_where_all_is_certain_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert tally([TAKEN, BAD], [BAD]).end(interrupted=False) == 4
    assert tally([TAKEN, TAKEN]).end(interrupted=False) == 0
    assert capsys.readouterr().err == ""


def test_a_portion_without_a_word_from_governance_means_that_the_system_is_gone() -> None:
    assert not tally([TAKEN, GONE]).is_lost
    assert not tally([BAD, BAD]).is_lost
    assert tally([GONE, BAD]).is_lost
    assert tally([TAKEN], [UNKNOWN, GONE]).is_lost


def test_what_is_not_known_is_named_by_its_first_and_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = tally([TAKEN], [UNKNOWN, UNKNOWN, UNKNOWN, GONE])
    assert found.end(interrupted=False) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "ACCEPTANCE_UNKNOWN: 1 lines have their answer, 1 were not accepted, of 3 it is not"
    )
    assert "(lines 2 to 4); nothing after line 5 was sent" in said
    assert said.count("\n") == 1


def test_an_interruption_is_passed_on_when_all_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        tally([TAKEN, TAKEN]).end(interrupted=True)
    assert capsys.readouterr().err == (
        "interrupted: 2 lines have their answer; nothing after line 2 was sent\n"
    )


def test_the_first_interruption_breaks_only_what_may_be_left() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.came()
    with Interruption() as interruption:
        with interruption.at_once():
            signal.raise_signal(signal.SIGINT)
        assert interruption.came()
    with Interruption():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before

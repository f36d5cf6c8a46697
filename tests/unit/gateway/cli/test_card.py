"""What an approver is shown: all of it, in an order that helps, and what an answer to it means."""

from __future__ import annotations

import json

import pytest

from gateway.cli.card import Card, cards
from governance.docket import load_dockets
from tests.support.court import Court


@pytest.fixture
def court() -> Court:
    court = Court()
    court.approver()
    return court


def cards_of(court: Court, *ids: str | None) -> list[Card]:
    with court.ledger.read() as view:
        return cards(load_dockets(view, [str(one) for one in ids]).values(), view.now_us)


def test_the_greatest_power_comes_first_then_the_least_time(court: Court) -> None:
    early = court.say("note", {"text": "early"}, stage="a")
    court.clock.advance(60)
    late = court.say("note", {"text": "late"}, stage="b")
    strong = court.say("pay", {"amount": 1}, stage="c")
    ids = [
        card.docket.head.id
        for card in cards_of(court, late.invocation_id, strong.invocation_id, early.invocation_id)
    ]
    assert ids == [strong.invocation_id, early.invocation_id, late.invocation_id]


def test_arguments_are_whole_and_hidden_characters_are_named(court: Court) -> None:
    text = "rm -rf /home\u202e txt.etadpu" + " " * 300 + "; rm x\x1b[2K"
    answer = court.say("note", {"text": text})
    [card] = cards_of(court, answer.invocation_id)
    shown = "\n".join(card.lines())
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert "; rm x\\u001b[2K" in shown
    assert "RIGHT-TO-LEFT OVERRIDE" in shown
    assert "300 spaces in a row" in shown
    assert json.loads(json.dumps(card.to_json()))["arguments"] == {"text": text}


def test_the_command_names_what_was_looked_at(court: Court) -> None:
    answer = court.say("pay", {"amount": 1})
    [card] = cards_of(court, answer.invocation_id)
    assert card.lines()[-1].strip() == (f"interlock approve {answer.invocation_id} --terms {card.terms[:16]}")


def test_what_was_answered_already_is_shown(court: Court) -> None:
    answer = court.say("pay", {"amount": 1})
    assert court.cast(court.vote_of(answer.invocation_id)) is None
    [card] = cards_of(court, answer.invocation_id)
    assert any("operator said approve" in line for line in card.lines())

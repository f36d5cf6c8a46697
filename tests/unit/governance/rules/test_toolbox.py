"""The registry believes no contract whose bytes are not those of its digest."""

from __future__ import annotations

import pytest

from governance.memory_ledger import InMemoryLedger
from governance.toolbox import Toolbox
from interlock.tier import SessionMode
from tests.support.court import Court


@pytest.fixture
def court() -> Court:
    court = Court()
    court.open("edit", SessionMode.EDIT)
    return court


def lower_tiers(court: Court) -> None:
    """As whoever owns the file can: the same digests, over other bytes."""
    assert isinstance(court.ledger, InMemoryLedger)
    contracts = court.ledger._state.contracts
    contracts.update({digest: body.replace(b'"T4"', b'"T0"') for digest, body in contracts.items()})


def test_an_edited_contract_is_no_tool_any_more(court: Court) -> None:
    lower_tiers(court)
    assert court.say("pay", {"amount": 1}, session="edit").code == "UNKNOWN_TOOL"


def test_an_edited_contract_blinds_no_other(court: Court) -> None:
    lower_tiers(court)
    _, known = Toolbox(court.ledger).find_all(["pay", "note"])
    assert known["pay"] is None
    assert known["note"] is not None

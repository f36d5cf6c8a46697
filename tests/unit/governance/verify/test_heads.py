"""Every column of every head that follows from events is compared with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from governance.ledger import Head
from governance.memory_ledger import InMemoryLedger
from governance.principal import principal_stream, register
from governance.session import close_session, open_session
from governance.verification.fault import FaultCode
from governance.verification.head import LIVENESS, standing_of
from governance.verify import Report
from interlock.clock import ManualClock
from interlock.event import PrincipalRegistered, invocation_stream
from interlock.tier import SessionMode
from tests.support.installation import ECHO, Installation, named
from tests.unit.governance.verify.conftest import Change

Checked = Callable[..., Report]
COMPARED = [name for name in Head._fields if name not in LIVENESS | {"kind", "id"}]
LAST_OF_RUNNING = 14


@pytest.mark.parametrize("column", COMPARED)
def test_no_column_of_an_invocation_can_be_edited(change: Change, checked: Checked, column: str) -> None:
    kind = type(Head._field_defaults[column])
    value = {str: "'edited'", int: str(2**60), bool: f"1 - {column}"}[kind]
    change(f"UPDATE head SET {column} = {value} WHERE id = 'i-4'")
    assert named(checked()) == {(LAST_OF_RUNNING, FaultCode.HEAD_DIFFERS)}
    assert any(column in fault.detail for fault in checked().faults)


@pytest.mark.parametrize(("invocation", "last"), [("i-1", 8), ("i-4", LAST_OF_RUNNING)])
def test_what_does_not_wait_is_never_ready(
    change: Change, checked: Checked, invocation: str, last: int
) -> None:
    change(f"UPDATE head SET ready = 1 WHERE id = '{invocation}'")
    assert named(checked()) == {(last, FaultCode.HEAD_DIFFERS)}


def test_nobody_jumps_the_line_of_a_stage(
    installation: Installation, change: Change, checked: Checked
) -> None:
    installation.request("i-6", stage="g-3")
    assert checked().ok
    change("UPDATE head SET ready = 1 WHERE id = 'i-6'")
    assert named(checked()) == {(19, FaultCode.HEAD_DIFFERS)}


@pytest.mark.parametrize(
    ("edit", "seq"),
    [
        ("data = replace(data, 'observe', 'operate') WHERE id = 'default/s-1'", 3),
        ("""data = replace(data, '"client":"local"', '"client":"other"') WHERE id = 'default/s-1'""", 3),
        ("data = replace(data, 'false', 'true') WHERE id = 'default/s-1'", 3),
        ("phase = 'closed' WHERE id = 'default/s-1'", 3),
        ("data = 'no json' WHERE id = 'default/s-1'", 3),
        ("tenant = 'other' WHERE id = 'default/s-1'", 3),
        ("contract_digest = 'c' WHERE kind = 'tool'", 2),
        ("tool = 'other' WHERE kind = 'tool'", 2),
        ("phase = 'gone' WHERE kind = 'tool'", 2),
        ("phase = 'new' WHERE kind = 'control'", 1),
        ("ready = 1 WHERE kind = 'tool'", 2),
    ],
)
def test_no_head_of_a_session_or_tool_can_be_edited(
    change: Change, checked: Checked, edit: str, seq: int
) -> None:
    change(f"UPDATE head SET {edit}")
    assert named(checked()) == {(seq, FaultCode.HEAD_DIFFERS)}


@pytest.mark.parametrize(
    ("old", "new"),
    [('"public_key":"00"', '"public_key":"11"'), ('"T1"', '"T4"'), ('"role":"bot"', '"role":"x"')],
)
def test_no_right_or_key_of_a_principal_can_be_edited(
    installation: Installation, change: Change, checked: Checked, old: str, new: str
) -> None:
    payload = PrincipalRegistered(role="bot", person="p", public_key="00", tiers=("T1",), tools=("*",))
    register(installation.ledger, "bot-1", payload, by="operator")
    assert checked().ok
    change(f"UPDATE head SET data = replace(data, '{old}', '{new}') WHERE kind = 'principal'")
    assert named(checked()) == {(19, FaultCode.HEAD_DIFFERS)}


def test_a_due_row_for_another_wait_is_named(change: Change, checked: Checked) -> None:
    change("UPDATE due SET what = 'release' WHERE id = 'i-4'")
    assert named(checked()) == {(LAST_OF_RUNNING, FaultCode.DUE_STRAY)}


def test_sessions_and_principals_that_changed_are_found_whole() -> None:
    clock = ManualClock()
    installation = Installation(InMemoryLedger(clock), clock)
    installation.start()
    ledger = installation.ledger
    open_session(ledger, "default", "s-3", SessionMode.EDIT, client="local", opened_by="operator")
    close_session(ledger, "default", "s-3", closed_by="operator")
    for tiers in (("T1",), ("T2",)):
        payload = PrincipalRegistered(role="bot", person="p", tiers=tiers)
        register(ledger, "bot-1", payload, by="operator")
    with ledger.read() as view:
        assert view.heads([principal_stream("bot-1")])
    assert isinstance(ledger, InMemoryLedger)
    assert named(installation.verify(ledger.records())) == set()


def test_a_head_stands_as_its_events_say(installation: Installation) -> None:
    stream = invocation_stream("i-4")
    with installation.ledger.read() as view:
        head, events = view.heads([stream])[stream], view.events([stream])[stream]
    assert standing_of(events, ECHO) == head
    assert standing_of([]) is None

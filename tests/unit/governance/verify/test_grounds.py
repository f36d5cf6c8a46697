"""What governance decided is found whole; what nobody may decide so, and each row beside it, is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from governance.append import KEY_LIFE_US
from governance.gate import Gate
from governance.grant import _World
from governance.keys import KeyPurpose
from governance.ledger import KeyName, KeyOwner, head_with
from governance.memory_ledger import InMemoryLedger
from governance.memory_records import MemoryState
from governance.principal import find_principal, principal_stream
from governance.session import session_stream
from governance.verification.fault import FaultCode
from governance.verify import Report, verify
from governance.vote import _append
from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer
from interlock.canonical import canonical, read_stored, sha256_hex
from interlock.decision import Verdict
from interlock.tier import SessionMode
from tests.support.court import Court


@pytest.fixture
def court() -> Court:
    court = Court()
    court.approver()
    court.open("op", SessionMode.OPERATE)
    return court


def state_of(court: Court) -> MemoryState:
    """The rows themselves, as whoever owns the file has them in hand."""
    assert isinstance(court.ledger, InMemoryLedger)
    return court.ledger._state


def report_of(court: Court) -> Report:
    assert isinstance(court.ledger, InMemoryLedger)
    keys = {KeyPurpose.GOVERNANCE: [(court.signer.kid, court.signer.public_hex)]}
    return verify(court.ledger.records(), [], keys, Ed25519KeyRing)


def codes_of(court: Court) -> set[FaultCode]:
    return {fault.code for fault in report_of(court).faults}


def edit_head(court: Court, stream: Any, **columns: Any) -> None:
    heads = state_of(court).heads
    heads[stream] = head_with(heads[stream], **columns)


def parked(court: Court, text: str = "x", **more: Any) -> str:
    answer = court.say("note", {"text": text}, **more)
    assert answer.phase == "awaiting_approval"
    assert answer.invocation_id is not None
    return answer.invocation_id


def test_everything_that_governance_decides_is_found_whole(court: Court) -> None:
    bot = Ed25519Signer.generate()
    court.approver("bot", public_key=bot.public_hex)
    first, second = parked(court), parked(court, "y", stage="g-2")
    vote = court.vote_of(first, approver="bot")
    signed = vote.model_copy(update={"signature": bot.sign(vote.signed_bytes()).hex()})
    assert court.cast(signed, trusted=False) is None
    assert court.cast(court.vote_of(second, "deny")) is None
    court.review(first, second)
    court.say("note", {"text": "z"}, session="op", key="K")
    court.say("note", {"text": "z", "more": 1}, session="op", key="refused")
    court.say("nobody knows it", {}, session="op", key="refused")
    court.cancel(parked(court, "w", stage="g-3", key="cancelled"))
    assert report_of(court).faults == []


# --- grants --------------------------------------------------------------------------------------------


def test_a_mode_that_only_the_head_says_grants_nothing(court: Court) -> None:
    court.say("note", {"text": "first"}, stage="g-0")
    stream = session_stream("default", "s")
    data = state_of(court).heads[stream].data
    edit_head(court, stream, data=data.replace("observe", "operate"))
    assert court.say("note", {"text": "x"}).phase == "queued"
    edit_head(court, stream, data=data)
    assert codes_of(court) == {FaultCode.GRANT_UNFOUNDED}


class _GrantsAll:
    """A gate's step as a stolen governor would have it."""

    name = "tier"

    def judge(self, _case: object) -> Verdict:
        return Verdict(step=self.name, outcome="pass")


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        ({"session": "s"}, "mode observe does not grant T2"),
        ({"session": "op", "mode": "observe"}, "mode observe does not grant T2"),
        ({"session": "op", "mode": "operate"}, None),
        ({"session": "op", "client": "other"}, "belongs to local"),
    ],
)
def test_a_policy_grants_what_its_session_and_its_own_mode_carry(
    court: Court, said: dict[str, str], lacks: str | None
) -> None:
    court.propose = replace(court.propose, gate=Gate((_GrantsAll(),), "stolen"))
    court.say("note", {"text": "x"}, **said)
    faults = report_of(court).faults
    assert [fault.code for fault in faults] == ([FaultCode.GRANT_UNFOUNDED] if lacks else [])
    assert all(lacks is not None and lacks in fault.detail for fault in faults)


def test_no_policy_grants_the_highest_tier(court: Court) -> None:
    court.propose = replace(court.propose, gate=Gate((_GrantsAll(),), "stolen"))
    assert court.say("pay", {"amount": 1}, session="op").phase == "queued"
    assert codes_of(court) == {FaultCode.GRANT_UNFOUNDED}


@pytest.mark.parametrize(
    ("approver", "registered", "more"),
    [
        ("operator", {"person": "agent"}, {}),
        ("operator", {"tiers": ("T0",)}, {}),
        ("operator", {"tools": ("other",)}, {}),
        ("operator", {"tenant": "other"}, {}),
        ("operator", {}, {"terms_digest": "0" * 64}),
        ("operator", {}, {"via": "queue"}),
        ("stranger", None, {}),
    ],
)
def test_a_quorum_counts_only_answers_that_count(
    court: Court, approver: str, registered: dict[str, Any] | None, more: dict[str, Any]
) -> None:
    # The vote is cast under heads that say what its rules ask for, and those are put back afterwards.
    waiting = parked(court)
    if registered is not None and approver == "operator":
        court.approver(approver, **registered)
    stream = principal_stream(approver)
    before = state_of(court).heads.get(stream)
    good = state_of(court).streams[principal_stream("operator")][0].payload.decode()
    data = good.replace('"person":"operator"', f'"person":"{(registered or {}).get("person", approver)}"')
    state_of(court).heads[stream] = head_with(
        state_of(court).heads[principal_stream("operator")], id=approver, data=data
    )
    cast_past_rules(court, court.vote_of(waiting, approver=approver, **{"via": "cli"} | more))
    if before is None:
        del state_of(court).heads[stream]
    else:
        state_of(court).heads[stream] = before
    grant_past_quorum(court, waiting)
    assert court.head(waiting).phase == "queued"
    assert codes_of(court) == {FaultCode.GRANT_UNFOUNDED}


def cast_past_rules(court: Court, vote: Any) -> None:
    docket = court.docket(vote.invocation_id)
    with court.ledger.write() as transaction:
        approver = find_principal(transaction, vote.approver)
        assert approver is not None
        assert not transaction.append([_append(docket, vote, approver, transaction.now_us)])


def grant_past_quorum(court: Court, waiting: str) -> None:
    epoch, known = court.grant.toolbox.find_all(["note"])
    docket = court.docket(waiting)
    approvers = tuple(voted.vote.approver for voted in docket.votes)
    with court.ledger.write() as transaction:
        append = court.grant._judge(transaction, docket, _World(epoch, known), approvers=approvers)
        assert not transaction.append([append])


# --- rows beside the events ----------------------------------------------------------------------------


def denied(court: Court) -> str:
    waiting = parked(court)
    court.cast(court.vote_of(waiting, "deny", via="cli"))
    court.review(waiting)
    return waiting


def test_a_denial_that_was_taken_back_is_named(court: Court) -> None:
    denied(court)
    assert codes_of(court) == set()
    state_of(court).denials.clear()
    assert codes_of(court) == {FaultCode.DENIAL_MISSING}


def test_a_denial_that_nobody_gave_is_named(court: Court) -> None:
    first, second = denied(court), parked(court, "other")
    state_of(court).denials[court.head(second).action_digest] = first
    assert codes_of(court) == {FaultCode.DENIAL_STRAY}


def keyed(court: Court, text: str = "x", key: str = "K") -> str:
    identifier = court.say("note", {"text": text}, session="op", key=key).invocation_id
    assert identifier is not None
    return identifier


NAME = KeyName("default", "local", "K")


def test_a_key_that_was_set_free_is_named(court: Court) -> None:
    keyed(court)
    assert codes_of(court) == set()
    state_of(court).keys.clear()
    assert codes_of(court) == {FaultCode.KEY_UNBOUND}


def test_a_key_that_was_set_free_and_used_again_is_named(court: Court) -> None:
    keyed(court)
    state_of(court).keys.clear()
    keyed(court)
    assert codes_of(court) == {FaultCode.KEY_UNBOUND}


def test_a_key_may_be_used_again_when_its_life_is_over(court: Court) -> None:
    first = keyed(court)
    court.cancel(first)
    court.clock.advance(KEY_LIFE_US / 1_000_000)
    keyed(court)
    assert codes_of(court) == set()


@pytest.mark.parametrize(
    "owner", [lambda one: KeyOwner(one, "0" * 64), lambda one: KeyOwner("nobody", "0" * 64)]
)
def test_a_key_bound_to_anything_else_is_named(court: Court, owner: Callable[[str], KeyOwner]) -> None:
    state_of(court).keys[NAME] = owner(keyed(court))
    assert codes_of(court) == {FaultCode.KEY_UNBOUND, FaultCode.KEY_STRAY}


def test_a_key_that_nobody_used_is_named(court: Court) -> None:
    state_of(court).keys[NAME] = KeyOwner(parked(court), "0" * 64)
    assert codes_of(court) == {FaultCode.KEY_STRAY}


def test_an_edited_contract_is_named(court: Court) -> None:
    contracts = state_of(court).contracts
    digest, body = next(item for item in contracts.items() if b'"T2"' in item[1])
    contracts[digest] = body.replace(b'"T2"', b'"T0"')
    assert codes_of(court) == {FaultCode.CONTRACT_CHANGED}


def test_a_deleted_contract_is_named_and_blinds_nothing_else(court: Court) -> None:
    keyed(court)
    state_of(court).contracts.clear()
    state_of(court).keys.clear()
    assert {FaultCode.CONTRACT_MISSING, FaultCode.CONTRACT_DIFFERS, FaultCode.KEY_UNBOUND} == codes_of(court)


def test_a_contract_that_nobody_registered_is_named(court: Court) -> None:
    body = read_stored(next(iter(state_of(court).contracts.values())))
    raw = canonical({**body, "tier": "T4"})
    state_of(court).contracts[sha256_hex(raw)] = raw
    assert codes_of(court) == {FaultCode.CONTRACT_STRAY}


@pytest.mark.parametrize("by", [-1, 1_000])
def test_an_edited_control_epoch_is_named(court: Court, by: int) -> None:
    state_of(court).epoch += by
    assert codes_of(court) == {FaultCode.EPOCH_DIFFERS}

"""A chain that is whole proves nothing yet: what its events mean together is judged too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from governance.append import ANY_VERSION
from governance.ledger import Append, Head
from governance.memory_ledger import InMemoryLedger
from governance.memory_records import InMemoryRecords
from governance.verification.fault import FaultCode, Faults
from governance.verification.record import StreamRecord
from governance.verify import verify
from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer
from interlock.clock import ManualClock
from interlock.decision import Reason
from interlock.event import (
    CancellationRequested,
    KeyAdded,
    NewEvent,
    PermitReturned,
    Stream,
    ToolExecutionStarted,
    evidence_stream,
    invocation_stream,
)
from interlock.receipt import SandboxReport
from tests.support.installation import Installation, Named, a_request, action_of, named

GRANTED = 6
STARTED = 7
ENDED = 8


@pytest.fixture
def installation() -> Installation:
    clock = ManualClock()
    made = Installation(InMemoryLedger(clock), clock)
    made.start()
    return made


def faults_of(installation: Installation) -> Named:
    assert isinstance(installation.ledger, InMemoryLedger)
    return named(installation.verify(installation.ledger.records()))


def test_a_genuine_run_means_what_it_should(installation: Installation) -> None:
    installation.run("i-1")
    assert faults_of(installation) == set()


def test_a_start_without_a_grant_is_no_legal_move(installation: Installation) -> None:
    installation.request("i-1")
    installation.claim("i-1", "p" * 64)
    assert faults_of(installation) == {(6, FaultCode.MOVE_ILLEGAL)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arguments_hash", "a" * 64), ("tool", "shell.run"), ("tier", "T3"), ("session", "s-9"),
        ("stage", "g-9"),
        ("subject", "other"), ("client", "other"), ("tenant", "other"), ("route", "r"),
        ("contract_digest", "d" * 64), ("capability_pool", "shell"), ("repeat", 1),
    ],
)  # fmt: skip
def test_a_permit_for_anything_else_grants_nothing(
    installation: Installation, field: str, value: object
) -> None:
    installation.request("i-1")
    other = a_request().model_copy(update={field: value})
    permit = installation.permit("i-1", action_of(other))
    installation.grant("i-1", permit)
    installation.claim("i-1", permit.digest)
    assert faults_of(installation) == {
        (GRANTED, FaultCode.PERMIT_MISMATCH), (STARTED, FaultCode.START_UNGRANTED),
    }  # fmt: skip


def test_a_permit_of_another_invocation_grants_nothing(installation: Installation) -> None:
    requested = installation.request("i-1")
    permit = installation.permit("i-2", action_of(requested))
    installation.grant("i-1", permit)
    installation.claim("i-1", permit.digest)
    assert (STARTED, FaultCode.START_UNGRANTED) in faults_of(installation)


def test_a_permit_by_another_key_grants_nothing(installation: Installation) -> None:
    known = installation.public_keys
    requested = installation.request("i-1")
    installation.governance = Ed25519Signer.generate()
    permit = installation.permit("i-1", action_of(requested))
    installation.grant("i-1", permit)
    installation.claim("i-1", permit.digest)
    assert isinstance(installation.ledger, InMemoryLedger)
    report = verify(installation.ledger.records(), [], known, Ed25519KeyRing)
    assert named(report) == {(GRANTED, FaultCode.PERMIT_MISMATCH), (STARTED, FaultCode.START_UNGRANTED)}


def test_a_start_names_the_permit_that_stands(installation: Installation) -> None:
    requested = installation.request("i-1")
    installation.grant("i-1", installation.permit("i-1", action_of(requested)))
    installation.claim("i-1", "p" * 64)
    assert faults_of(installation) == {(STARTED, FaultCode.PERMIT_MISMATCH)}


def test_a_permit_given_back_grants_nothing_any_more(installation: Installation) -> None:
    requested = installation.request("i-1")
    permit = installation.permit("i-1", action_of(requested))
    installation.grant("i-1", permit)
    returned = PermitReturned(reason=Reason(code="PERMIT_STALE", sentence="old"), permit_digest=permit.digest)
    installation.move("i-1", returned, "decide", phase="deciding", ready=False)
    assert faults_of(installation) == set()


@pytest.mark.parametrize(("code", "alone"), [("TOOL_UNAVAILABLE", True), ("PERMIT_EXPIRED", False)])
def test_what_no_pool_claimed_is_offered_alone_and_nothing_else_is(
    installation: Installation, code: str, alone: bool
) -> None:
    requested = installation.request("i-1")
    permit = installation.permit("i-1", action_of(requested))
    installation.grant("i-1", permit)
    returned = PermitReturned(reason=Reason(code=code, sentence="so"), permit_digest=permit.digest)
    installation.move("i-1", returned, "decide", phase="deciding", ready=False, alone=alone)
    assert faults_of(installation) == set()
    installation.move("i-1", CancellationRequested(by="operator"), "decide", cancel=True, alone=not alone)
    assert faults_of(installation) == {(8, FaultCode.HEAD_DIFFERS)}


def test_a_start_outside_the_validity_of_its_permit_is_named(installation: Installation) -> None:
    requested = installation.request("i-1")
    permit = installation.permit("i-1", action_of(requested))
    installation.grant("i-1", permit)
    assert isinstance(installation.clock, ManualClock)
    installation.clock.advance(60)
    installation.claim("i-1", permit.digest)
    assert faults_of(installation) == {(STARTED, FaultCode.PERMIT_EXPIRED)}


SealedOf = Callable[[Installation, str], object]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"exit_code": 1}, FaultCode.RECEIPT_CHANGED),
        ({"structured_output": {"said": "other"}}, FaultCode.RECEIPT_CHANGED),
    ],
)
def test_a_receipt_changed_after_it_was_sealed_is_named(
    installation: Installation, changed: dict[str, object], code: FaultCode
) -> None:
    permit_digest = started(installation)
    sealed = installation.sealed("i-1", permit_digest)
    edited = sealed.model_copy(update={"receipt": sealed.receipt.model_copy(update=changed)})
    installation.complete("i-1", edited)
    assert faults_of(installation) == {(ENDED, code)}


def test_a_receipt_by_no_pool_is_named(installation: Installation) -> None:
    known = installation.public_keys
    permit_digest = started(installation)
    installation.pool = Ed25519Signer.generate()
    installation.complete("i-1", installation.sealed("i-1", permit_digest))
    assert isinstance(installation.ledger, InMemoryLedger)
    report = verify(installation.ledger.records(), [], known, Ed25519KeyRing)
    assert named(report) == {(ENDED, FaultCode.RECEIPT_SEAL)}


def test_a_receipt_about_another_execution_is_named(installation: Installation) -> None:
    permit_digest = started(installation)
    installation.complete("i-1", installation.sealed("i-2", permit_digest))
    assert faults_of(installation) == {(ENDED, FaultCode.RECEIPT_FOREIGN)}


def test_a_receipt_under_another_permit_or_attempt_is_named(installation: Installation) -> None:
    started(installation)
    installation.complete("i-1", installation.sealed("i-1", "p" * 64))
    assert faults_of(installation) == {(ENDED, FaultCode.RECEIPT_FOREIGN)}


def started(installation: Installation) -> str:
    requested = installation.request("i-1")
    permit = installation.permit("i-1", action_of(requested))
    installation.grant("i-1", permit)
    installation.claim("i-1", permit.digest)
    return permit.digest


def test_a_request_that_is_not_the_action_of_its_digest_is_named(installation: Installation) -> None:
    installation.request("i-1", action_digest="a" * 64)
    assert faults_of(installation) == {(5, FaultCode.ACTION_CHANGED)}


def test_arguments_that_are_not_those_of_their_hash_are_named(installation: Installation) -> None:
    installation.request("i-1", arguments_hash="a" * 64)
    assert faults_of(installation) == {(5, FaultCode.ARGUMENTS_CHANGED)}


def test_sealed_arguments_are_hashed_by_what_only_their_key_shows(installation: Installation) -> None:
    installation.request("i-1", arguments_hash="a" * 64, sensitive=("/say",))
    assert faults_of(installation) == set()


@pytest.mark.parametrize("field", ["session", "stage"])
def test_an_invocation_without_session_or_stage_is_named(installation: Installation, field: str) -> None:
    installation.request("i-1", **{field: ""})
    assert faults_of(installation) == {(5, FaultCode.SESSION_MISSING)}


def test_one_id_in_two_sessions_is_named(installation: Installation) -> None:
    requested = installation.request("i-1")
    permit = installation.permit("i-1", action_of(requested))
    installation.grant("i-1", permit)
    start = ToolExecutionStarted(
        worker="w-1", boot="b-1", nonce="n-1", attempt=1, pool="pure", permit_digest=permit.digest,
        start_by_ms=10_000, sandbox=SandboxReport(),
    )  # fmt: skip
    event = NewEvent("ToolExecutionStarted", start.to_bytes(), "event:3", "worker")
    with installation.ledger.write() as transaction:
        stream = invocation_stream("i-1")
        transaction.append([Append(stream, 2, [event], None, None, "default", "s-9")])
    assert (STARTED, FaultCode.SESSION_DIFFERS) in faults_of(installation)


def append_raw(installation: Installation, name: str, payload: bytes, moves_state: bool = True) -> None:
    stream = invocation_stream("i-1")
    with installation.ledger.write() as transaction:
        due = transaction.due_of([stream])[stream]
        event = NewEvent(name, payload, "event:2", "governor", moves_state)
        transaction.append([Append(stream, 1, [event], None, due)])


def test_an_unknown_event_that_moves_state_is_named(installation: Installation) -> None:
    installation.request("i-1")
    append_raw(installation, "SomethingNew", b"{}")
    assert faults_of(installation) == {(6, FaultCode.EVENT_UNKNOWN)}


def test_an_unknown_event_that_moves_nothing_is_none(installation: Installation) -> None:
    installation.request("i-1")
    append_raw(installation, "SomethingNew", b"{}", moves_state=False)
    assert faults_of(installation) == set()


@pytest.mark.parametrize("payload", [b"{}", b"[]", b"\xff", b'{"permit":{}}', b'{"permit":1}', b""])
def test_a_payload_that_is_not_what_its_type_says_is_named_and_blinds_nothing_else(
    installation: Installation, payload: bytes
) -> None:
    installation.request("i-1")
    append_raw(installation, "ApprovalGranted", payload)
    installation.request("i-2", action_digest="a" * 64)
    assert faults_of(installation) == {(6, FaultCode.EVENT_UNREADABLE), (7, FaultCode.ACTION_CHANGED)}


def test_evidence_needs_no_version_and_no_grant(installation: Installation) -> None:
    installation.run("i-1")
    stream = evidence_stream("i-1")
    event = NewEvent("SandboxViolation", b"{}", "event:4", "worker", moves_state=False)
    for _ in range(3):
        with installation.ledger.write() as transaction:
            transaction.append([Append(stream, ANY_VERSION, [event], None, None, "default", "s-1")])
    assert faults_of(installation) == set()


def add_key(installation: Installation, signer: Ed25519Signer, kid: str | None = None) -> None:
    stream = Stream("control", "keys")
    added = KeyAdded(
        purpose="governance", kid=kid or signer.kid, public_key=signer.public_hex, valid_from_us=0
    )
    installation.append(stream, added, Head(*stream), None)


def test_a_key_that_only_the_ledger_names_is_believed_by_who_knows_none(installation: Installation) -> None:
    installation.governance = Ed25519Signer.generate()
    add_key(installation, installation.governance)
    installation.run("i-1")
    assert isinstance(installation.ledger, InMemoryLedger)
    assert verify(installation.ledger.records(), [], {}, Ed25519KeyRing).ok


def test_a_key_that_is_not_known_outside_is_named_and_signs_nothing(installation: Installation) -> None:
    known = installation.public_keys
    installation.governance = Ed25519Signer.generate()
    add_key(installation, installation.governance)
    installation.run("i-1")
    assert isinstance(installation.ledger, InMemoryLedger)
    found = named(verify(installation.ledger.records(), [], known, Ed25519KeyRing))
    assert {(5, FaultCode.KEY_MISMATCH), (8, FaultCode.START_UNGRANTED)} <= found


def test_a_key_under_another_name_is_named(installation: Installation) -> None:
    add_key(installation, installation.governance, kid="0" * 16)
    assert isinstance(installation.ledger, InMemoryLedger)
    report = verify(installation.ledger.records(), [], {}, Ed25519KeyRing)
    assert named(report) == {(5, FaultCode.KEY_UNREADABLE)}


def test_a_ledger_that_began_as_another_is_named() -> None:
    clock = ManualClock()
    made = Installation(InMemoryLedger(clock), clock)
    made.start(incarnation="another")
    assert faults_of(made) == {(1, FaultCode.INCARNATION)}


class HidingRecords(InMemoryRecords):
    """Shows the log whole and one stream not at all, as an index that was tampered with would."""

    def streams(self, after: Stream | None, limit: int) -> list[StreamRecord]:
        return [record for record in super().streams(after, limit) if record.head.id != "i-1"]


def test_rows_that_reading_by_stream_does_not_show_are_missed(installation: Installation) -> None:
    installation.run("i-1")
    assert isinstance(installation.ledger, InMemoryLedger)
    shown = installation.ledger.records()
    hiding = HidingRecords(shown._state, shown.incarnation)
    assert named(installation.verify(hiding)) == {(None, FaultCode.ROW_HIDDEN)}


def test_more_faults_than_can_be_listed_are_counted() -> None:
    faults = Faults(most=2)
    for seq in (3, None, 1):
        faults.add(seq, FaultCode.ROW_CHANGED, "changed")
    assert [fault.seq for fault in faults.in_order()] == [3, None]
    assert faults.count == 3

"""The client says of a proposal only what is known: in the ledger, not accepted, or not known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from interlock.adapters.celery_wire import Envelope, decode_task
from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer
from interlock.answer import Answer
from interlock.approval import ApprovalSnapshot, Vote
from interlock.cancellation import read_cancellation
from interlock.channel import Heard, InMemoryChannel
from interlock.client import Client, OutcomeSource
from interlock.clock import SECOND_US, ManualClock
from interlock.courier import Submitted
from interlock.errors import (
    AcceptanceUnknownError,
    BrokerUnavailableError,
    NotAcceptedError,
    NotFoundError,
    RetryLaterError,
    UsageError,
)
from interlock.event import StoredEvent
from interlock.identifier import new_id
from interlock.parse import parse_proposal
from interlock.permit import PermitTerms
from interlock.proposal import DECIDE_QUEUE, PROPOSE_QUEUE, Proposal, verify_proposal_auth
from interlock.receipt import Failure, Success
from interlock.state import ToolInvocationRecord

Judge = Callable[[Proposal], Answer | None]


class PlainSigner:
    """Signs by saying what it was given; good enough to see what is signed."""

    kid = "k"

    def sign(self, data: bytes) -> bytes:
        return data[:64]

    def verify(self, kid: str, data: bytes, signature: bytes) -> bool:
        return kid == self.kid and signature == data[:64]


def envelope(item: bytes) -> Envelope:
    read = decode_task(item)
    assert isinstance(read, Envelope), read
    return read


def proposal(item: bytes) -> Proposal:
    read = envelope(item)
    said = parse_proposal(read.kwargs_json, task_id=read.task_id, reply_to=read.reply_to)
    assert isinstance(said, Proposal), said
    return said


def accepting(said: Proposal) -> Answer:
    return Answer(invocation_id=said.id, status="accepted", phase="queued", seq=1)


def governed(judge: Judge = accepting, *, keeps: bool = False, **more: Any) -> InMemoryChannel:
    """A channel behind which somebody judges each item as it comes, and takes it unless told to keep it."""

    def respond(item: bytes) -> Sequence[Heard]:
        said = proposal(item)
        answer = judge(said)
        if answer is None:
            return ()
        if not keeps:
            channel.take(next(name for name, waiting in channel.queues.items() if waiting))
        assert said.reply_to is not None
        return [Heard(said.reply_to, answer.to_bytes())]

    channel = InMemoryChannel(respond, **more)
    return channel


def impatient(channel: InMemoryChannel) -> Client:
    return Client(channel, timeout_seconds=0.02)


# --- accepted ------------------------------------------------------------------------------------


def test_an_accepted_proposal_comes_back_with_the_governors_answer() -> None:
    channel = governed()
    submitted = Client(channel).submit("echo", {"a": 1})
    assert submitted.answer.status == "accepted"
    assert submitted.invocation_id == proposal(channel.sent[0]).id
    assert len(channel.sent) == 1


def test_everything_that_is_said_stands_on_the_wire() -> None:
    channel = governed()
    chosen = new_id()
    Client(channel).submit(
        "echo",
        arguments_json='{"n": 60.0}',
        session="s",
        stage="g",
        subject="agent",
        route="r",
        mode="observe",
        key="k",
        priority=0,
        deadline_ms=5,
        repeat=1,
        id=chosen,
        cause="event:1",
    )
    said = proposal(channel.sent[0])
    assert (said.id, said.arguments, said.session, said.stage) == (chosen, {"n": 60}, "s", "g")
    assert (said.subject, said.route, said.mode, said.key) == ("agent", "r", "observe", "k")
    assert (said.priority, said.deadline_ms, said.repeat, said.cause) == (0, 5, 1, "event:1")


def test_what_is_not_said_is_left_out() -> None:
    channel = governed()
    Client(channel).submit("echo")
    fields = json.loads(envelope(channel.sent[0]).kwargs_json)
    assert set(fields) == {"id", "tool", "arguments", "accept_until_us"}
    assert proposal(channel.sent[0]).defaulted == ("session", "stage")


def test_the_moment_until_which_it_may_be_accepted_is_the_brokers() -> None:
    clock = ManualClock(now_us=7 * SECOND_US)
    channel = governed(clock=clock)
    Client(channel, timeout_seconds=2.5).submit("echo")
    assert proposal(channel.sent[0]).accept_until_us == round(9.5 * SECOND_US)


def test_raw_arguments_reach_the_governor_as_they_are() -> None:
    channel = governed()
    Client(channel).submit("echo", arguments_json='{"amount": NaN}')
    fault = proposal(channel.sent[0]).arguments_fault
    assert fault is not None
    assert fault.code == "JSON_NOT_FINITE"


def test_the_same_id_again_is_no_error() -> None:
    channel = governed(lambda said: Answer(invocation_id=said.id, status="duplicate", phase="done"))
    assert Client(channel).submit("echo").answer.status == "duplicate"


def test_a_key_that_is_bound_leads_to_the_invocation_it_is_bound_to() -> None:
    winner = new_id()
    channel = governed(lambda said: Answer(invocation_id=winner, status="duplicate", phase="running"))
    assert Client(channel).submit("echo", key="k").invocation_id == winner


def test_what_is_recorded_as_refused_is_in_the_ledger() -> None:
    channel = governed(
        lambda said: Answer(invocation_id=said.id, status="refused", phase="done", code="SCHEMA_INVALID")
    )
    assert Client(channel).submit("echo").answer.code == "SCHEMA_INVALID"


# --- not accepted --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ACCEPT_UNTIL_PASSED", "ACCEPT_UNTIL_PASSED"),
        ("KEY_REUSED", "KEY_REUSED"),
        ("A_NEWER_CODE", "NOT_ACCEPTED"),
    ],
)
def test_a_refusal_that_nothing_records_is_not_accepted(code: str, told: str) -> None:
    channel = governed(
        lambda said: Answer(invocation_id=said.id, status="refused", code=code, sentence="so it is")
    )
    with pytest.raises(NotAcceptedError, match="so it is") as caught:
        Client(channel).submit("echo")
    assert caught.value.code == told


def test_what_nobody_took_in_time_is_taken_back() -> None:
    channel = governed(lambda said: None)
    with pytest.raises(NotAcceptedError) as caught:
        impatient(channel).submit("echo")
    assert caught.value.code == "NOT_ACCEPTED"
    assert not channel.queues[PROPOSE_QUEUE]


def test_without_a_broker_nothing_was_sent() -> None:
    channel = governed(is_away=True)
    with pytest.raises(NotAcceptedError) as caught:
        Client(channel).submit("echo")
    assert caught.value.code == "BROKER_UNAVAILABLE"
    assert channel.sent == []


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"arguments": {"a": float("nan")}}, "JSON_NOT_FINITE"),
        ({"arguments": {"a": 2**60}}, "JSON_NUMBER_RANGE"),
        ({"arguments": {"a": object()}}, "JSON_TYPE"),
        ({"arguments": {"a": "x" * 4_200_000}}, "JSON_SIZE"),
        ({"id": "7d0b1d3c-51a9-4c1e-9e83-1d5b35b3c6a0"}, "ID_NOT_UUID7"),
    ],
)
def test_what_could_never_be_accepted_is_not_sent(given: dict[str, Any], code: str) -> None:
    channel = governed()
    with pytest.raises(NotAcceptedError) as caught:
        Client(channel).submit("echo", **given)
    assert caught.value.code == code
    assert channel.sent == []


# --- not known -----------------------------------------------------------------------------------


def test_what_somebody_took_and_did_not_answer_is_not_known() -> None:
    def taken(said: Proposal) -> None:
        channel.take(PROPOSE_QUEUE)

    channel = governed(taken)
    chosen = new_id()
    with pytest.raises(AcceptanceUnknownError) as caught:
        impatient(channel).submit("echo", id=chosen)
    assert caught.value.invocation_id == chosen


def test_what_may_have_been_sent_before_the_broker_went_is_not_known() -> None:
    def lose(item: bytes) -> Sequence[Heard]:
        channel.is_away = True
        raise BrokerUnavailableError("the reply was lost")

    channel = InMemoryChannel(lose)
    with pytest.raises(AcceptanceUnknownError):
        impatient(channel).submit("echo")


def test_an_answer_that_comes_with_the_deadline_still_counts() -> None:
    class AtTheLastMoment(InMemoryChannel):
        def withdraw(self, queue: str, items: Sequence[bytes]) -> list[int]:
            said = proposal(items[0])
            assert said.reply_to is not None
            self.tell([Heard(said.reply_to, accepting(said).to_bytes())])
            return [0]

    assert impatient(AtTheLastMoment()).submit("echo").answer.status == "accepted"


# --- sent again ----------------------------------------------------------------------------------


def test_an_item_that_got_lost_is_sent_again_as_it_was() -> None:
    seen: list[str] = []

    def second_time(said: Proposal) -> Answer | None:
        seen.append(said.id)
        if len(seen) == 1:
            channel.take(PROPOSE_QUEUE)
            return None
        return accepting(said)

    channel = governed(second_time)
    assert Client(channel, resend_seconds=0.01).submit("echo").answer.status == "accepted"
    assert len(set(channel.sent)) == 1
    assert len(set(seen)) == 1


def test_an_item_that_still_waits_is_not_sent_again() -> None:
    channel = governed(lambda said: None)
    with pytest.raises(NotAcceptedError):
        Client(channel, timeout_seconds=0.02, resend_seconds=0.001).submit("echo")
    assert len(channel.sent) == 1


# --- many ----------------------------------------------------------------------------------------


def test_many_come_back_in_their_order_each_with_its_own_outcome() -> None:
    def judge(said: Proposal) -> Answer | None:
        if said.tool == "refused":
            return Answer(invocation_id=said.id, status="refused", code="UNKNOWN_FIELD")
        return None if said.tool == "silent" else accepting(said)

    channel = governed(judge, keeps=True)
    proposals = [{"tool": tool} for tool in ("echo", "refused", "silent", "echo")]
    proposals.insert(2, {"tool": "echo", "arguments": {"a": float("inf")}})  # type: ignore[dict-item]  # what is no JSON is the point
    outcomes = list(impatient(channel).submit_many(iter(proposals)))
    assert [type(outcome) for outcome in outcomes] == [
        Submitted,
        NotAcceptedError,
        NotAcceptedError,
        NotAcceptedError,
        Submitted,
    ]
    assert not isinstance(outcomes[2], Submitted)
    assert outcomes[2].code == "JSON_NOT_FINITE"


def test_more_than_a_window_are_sent_window_by_window() -> None:
    channel = governed()
    outcomes = list(Client(channel).submit_many({"tool": "echo", "key": f"k{n}"} for n in range(600)))
    assert len(outcomes) == len(channel.sent) == 600
    assert all(isinstance(outcome, Submitted) for outcome in outcomes)


def test_one_id_twice_in_a_window_gets_two_answers() -> None:
    chosen = new_id()
    outcomes = list(Client(governed()).submit_many([{"tool": "echo", "id": chosen}] * 2))
    assert all(isinstance(outcome, Submitted) for outcome in outcomes)


def test_while_one_portion_is_answered_the_next_is_on_its_way() -> None:
    channel = governed()
    outcomes = Client(channel).submit_portions([{"tool": "echo"}] * 3 for _ in range(4))
    assert len(next(outcomes)) == 3
    assert len(channel.sent) == 6
    assert [len(portion) for portion in outcomes] == [3, 3, 3]


def test_between_portions_the_client_may_say_something_else() -> None:
    client = Client(governed())
    outcomes = client.submit_portions([{"tool": "echo"}] * 2 for _ in range(3))
    for portion in outcomes:
        assert all(isinstance(outcome, Submitted) for outcome in portion)
        assert client.submit("echo").answer.status == "accepted"


def test_an_answer_that_comes_late_is_never_another_proposals() -> None:
    lists: list[str] = []

    def respond(item: bytes) -> Sequence[Heard]:
        said = proposal(item)
        assert said.reply_to is not None
        lists.append(said.reply_to)
        answer = Answer(invocation_id=said.id, status="accepted", phase="queued")
        # Everything that was ever asked is answered once more: the same message came twice.
        return [Heard(name, answer.to_bytes()) for name in lists]

    client = Client(InMemoryChannel(respond))
    ids = [client.submit("echo", key=f"k{n}").invocation_id for n in range(5)]
    assert len(set(lists)) == len(set(ids)) == 5


def test_who_stops_asking_leaves_nothing_listened_for() -> None:
    channel = governed(keeps=True)
    client = Client(channel)
    outcomes = client.submit_portions([{"tool": "echo"}, {"tool": "echo", "key": "k"}] for _ in range(4))
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]  # it is a generator
    assert client.submit("echo").answer.status == "accepted"


# --- strangers -----------------------------------------------------------------------------------


def test_answers_that_are_none_or_another_ones_are_passed_over() -> None:
    def judge(said: Proposal) -> Answer:
        assert said.reply_to is not None
        stranger = Answer(invocation_id=new_id(), status="refused", code="UNKNOWN_TOOL")
        for data in (b"", b"{", b"[]", b'{"status":"accepted","v":2}', stranger.to_bytes()):
            channel.tell([Heard(said.reply_to, data)])
        return accepting(said)

    channel = governed(judge)
    assert Client(channel).submit("echo").answer.status == "accepted"


def test_two_clients_never_listen_on_the_same_list() -> None:
    channel = governed()
    for _ in range(2):
        Client(channel).submit("echo")
    assert len({proposal(item).reply_to for item in channel.sent}) == 2


# --- signatures ----------------------------------------------------------------------------------


def test_a_client_with_a_key_signs_what_it_says() -> None:
    channel = governed()
    Client(channel, client="shop", signer=PlainSigner()).submit("echo", {"a": 1.0})
    said = proposal(channel.sent[0])
    assert said.auth is not None
    assert said.auth.client == "shop"
    assert verify_proposal_auth(said, PlainSigner()) is None


def test_a_client_without_a_key_proposes_on_its_own_queue_and_is_answered_below_its_own_name() -> None:
    channel = governed()
    client = Client(channel, client="shop")
    client.submit("echo", {"a": 1.0})
    assert list(channel.queues) == ["interlock.propose.shop"]
    said = proposal(channel.sent[0])
    assert said.auth is None
    assert (said.reply_to or "").startswith("interlock.reply.shop.")
    with pytest.raises(UsageError):
        client.cancel(said.id)


def test_a_key_without_a_name_is_nobodys() -> None:
    with pytest.raises(UsageError):
        Client(governed(), signer=PlainSigner())


# --- reading -------------------------------------------------------------------------------------


def record(phase: str, **more: Any) -> ToolInvocationRecord:
    base = ToolInvocationRecord(
        invocation_id=new_id(),
        position=1,
        version=1,
        status="REQUESTED",
        phase=phase,
        tool="echo",
        tool_version="1",
        tier="T0",
        pool="pure",
        tenant="default",
        client="local",
        subject=None,
        session="default",
        stage="default",
        route=None,
        cause="",
        arguments_hash="",
        action_digest="",
        requested_at_us=1,
    )
    return replace(base, **more)


class Told:
    """A source that tells one record after the other, the last for ever."""

    def __init__(self, *records: ToolInvocationRecord | None) -> None:
        self._records = list(records)

    def record(self, invocation_id: str) -> ToolInvocationRecord | None:
        return self._records.pop(0) if len(self._records) > 1 else self._records[0]

    def events(self, after: int, limit: int, /) -> list[StoredEvent]:
        event = StoredEvent(1, "session", "s", 1, "SessionOpened", 1, 1, "", "", "", "s", True, b"{}", "")
        return [event._replace(seq=seq) for seq in range(after + 1, min(after + limit, 5) + 1)]


def reading(source: OutcomeSource) -> Client:
    return Client(InMemoryChannel(), source=source)


@pytest.mark.parametrize("phase", ["done", "reconciliation_required"])
def test_waiting_ends_where_nothing_more_comes_by_itself(phase: str) -> None:
    client = reading(Told(None, record("deciding"), record("running"), record(phase)))
    assert client.wait("id", 10).phase == phase


def test_waiting_ends_with_its_time() -> None:
    with pytest.raises(RetryLaterError) as caught:
        reading(Told(record("awaiting_approval"))).wait("id", 0.01)
    assert caught.value.code == "WAIT_TIMEOUT"


def test_a_result_is_a_success_a_failure_or_not_there_yet() -> None:
    done = record("done", status="COMPLETED", exit_code=0, output_summary="hello", receipt_digest="d")
    found = reading(Told(done)).result("id")
    assert isinstance(found, Success)
    assert (found.output, found.exit_code) == ("hello", 0)
    failed = reading(Told(record("done", status="REJECTED", reason_code="UNKNOWN_TOOL"))).result("id")
    assert isinstance(failed, Failure)
    assert (failed.reason, failed.recoverable) == ("UNKNOWN_TOOL", False)
    assert reading(Told(record("running", status="STARTED"))).result("id") is None
    with pytest.raises(NotFoundError):
        reading(Told(None)).result("id")


def test_events_are_read_in_portions_to_their_end() -> None:
    assert [event.seq for event in reading(Told(None)).events(1, limit=2)] == [2, 3, 4, 5]


def test_a_client_without_a_source_does_not_guess() -> None:
    with pytest.raises(UsageError):
        Client(InMemoryChannel()).wait("id", 1)


# --- other requests ------------------------------------------------------------------------------


def answering(answer: Answer) -> InMemoryChannel:
    def respond(item: bytes) -> Sequence[Heard]:
        reply_to = envelope(item).reply_to
        assert reply_to is not None
        return [Heard(reply_to, answer.to_bytes())]

    return InMemoryChannel(respond)


def test_a_cancellation_is_answered() -> None:
    chosen = new_id()
    channel = answering(Answer(invocation_id=chosen, status="accepted", phase="done"))
    assert Client(channel).cancel(chosen).phase == "done"
    read = envelope(channel.take(DECIDE_QUEUE))
    assert (read.task, json.loads(read.kwargs_json)) == ("interlock.cancel", {"id": chosen})


def test_a_client_with_a_signer_signs_its_cancellation() -> None:
    chosen, signer = new_id(), Ed25519Signer.generate()
    channel = answering(Answer(invocation_id=chosen, status="accepted", phase="done"))
    Client(channel, client="alice", signer=signer).cancel(chosen)
    read = read_cancellation(json.loads(envelope(channel.take(DECIDE_QUEUE)).kwargs_json))
    assert read is not None
    assert (read.invocation_id, read.client) == (chosen, "alice")
    assert read.is_signed_by(Ed25519KeyRing({signer.kid: signer.public_hex}))


def test_a_request_that_nobody_answers_is_said_so() -> None:
    with pytest.raises(RetryLaterError):
        impatient(InMemoryChannel()).cancel(new_id())


def snapshot() -> ApprovalSnapshot:
    invocation_id = new_id()
    terms = PermitTerms(
        action_digest="a", invocation_id=invocation_id, epoch=1, valid_from_us=0, valid_until_us=9, attempts=1
    )
    return ApprovalSnapshot(
        invocation_id=invocation_id,
        tool="shell.run",
        tool_version="1",
        contract_digest="c",
        tier="T3",
        arguments={},
        arguments_hash="h",
        tenant="default",
        client="local",
        subject=None,
        session="s",
        stage="g",
        route=None,
        terms=terms,
    )


@pytest.mark.parametrize("deny", [True, False])
def test_an_approver_signs_the_terms_it_saw_and_the_same_decision_is_one(deny: bool) -> None:
    channel = answering(Answer(status="accepted"))
    parked = snapshot()
    for _ in range(2):
        Client(channel).approve(parked, approver="bot", signer=PlainSigner(), deny=deny, reason="seen")
    first, again = (Vote.from_json(json.loads(envelope(item).kwargs_json)) for item in channel.sent)
    assert first == again
    assert (first.decision, first.terms_digest) == ("deny" if deny else "approve", parked.terms.digest)
    assert bytes.fromhex(first.signature) == PlainSigner().sign(first.signed_bytes())


def test_a_client_is_closed_with_its_block() -> None:
    with Client(governed()) as client:
        assert client.submit("echo").answer.status == "accepted"

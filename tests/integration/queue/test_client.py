"""The client over a real broker: answered, withdrawn, or not known; and what it costs the queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from governance.adapters.redis_intake import RedisIntake
from governance.intake import Reply, TakenItem
from interlock.adapters.celery_wire import Envelope, decode_task
from interlock.answer import Answer
from interlock.client import Client
from interlock.courier import Submitted
from interlock.errors import AcceptanceUnknownError, NotAcceptedError
from interlock.identifier import new_id
from interlock.parse import parse_proposal
from interlock.proposal import PROPOSE_QUEUE, Proposal, ProposalRefused
from tests.support.valkey import ValkeyServer, valkey_server
from tests.support.wait import until

Judge = Callable[[Proposal | ProposalRefused], Answer]


def read(item: TakenItem) -> Proposal | ProposalRefused:
    envelope = decode_task(item.raw)
    assert isinstance(envelope, Envelope)
    return parse_proposal(
        envelope.kwargs_json,
        task_id=envelope.task_id,
        reply_to=envelope.reply_to,
        wants_result=envelope.wants_result,
    )


def accepting(said: Proposal | ProposalRefused) -> Answer:
    if isinstance(said, ProposalRefused):
        return Answer.refusing(said.id, said.reason)
    return Answer(invocation_id=said.id, status="accepted", phase="queued")


@contextmanager
def governor(server: ValkeyServer, judge: Judge = accepting) -> Iterator[None]:
    """Answers whatever comes, without a ledger."""
    intake = RedisIntake(
        server.client(), server.client(blocking=True), boot=new_id(), queues=(PROPOSE_QUEUE,)
    )
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            batch = intake.take(100, 0.05)
            said = [read(item) for item in batch.items]
            intake.done(batch, [Reply(judge(one), one.reply_to, one.task_id) for one in said])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_proposal_is_answered_on_the_clients_own_list(server: ValkeyServer, broker: Redis) -> None:
    for url in (server.url, server.celery_url):
        with governor(server), Client(url) as client:
            submitted = client.submit("echo", {"text": "ä"})
            assert submitted.answer == Answer(
                invocation_id=submitted.invocation_id, status="accepted", phase="queued"
            )
    assert broker.llen(PROPOSE_QUEUE) == 0


def test_many_are_answered_in_their_order(server: ValkeyServer, broker: Redis) -> None:
    ids = [new_id() for _ in range(700)]
    proposals = [
        {"tool": "echo", "id": one, "key": one if place % 50 == 0 else None} for place, one in enumerate(ids)
    ]
    with governor(server), Client(server.url) as client:
        outcomes = list(client.submit_many(proposals))
    assert [one.invocation_id for one in outcomes if isinstance(one, Submitted)] == ids


def test_threads_share_a_client(server: ValkeyServer, broker: Redis) -> None:
    seen: list[str] = []
    with governor(server), Client(server.url) as client:

        def submit() -> None:
            seen.extend(client.submit("echo").invocation_id for _ in range(5))

        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(seen)) == 20


def test_without_a_governor_the_proposal_is_taken_back(server: ValkeyServer, broker: Redis) -> None:
    with Client(server.url, timeout_seconds=0.2) as client:
        with pytest.raises(NotAcceptedError):
            client.submit("echo")
        outcomes = list(client.submit_many({"tool": "echo"} for _ in range(3)))
    assert [type(outcome) for outcome in outcomes] == [NotAcceptedError] * 3
    assert broker.llen(PROPOSE_QUEUE) == 0


def test_what_a_silent_governor_had_taken_is_not_known(server: ValkeyServer, broker: Redis) -> None:
    intake = RedisIntake(server.client(), server.client(blocking=True), boot="s", queues=(PROPOSE_QUEUE,))
    taken = threading.Thread(target=lambda: intake.take(1, 10))
    taken.start()
    with Client(server.url, timeout_seconds=0.3) as client, pytest.raises(AcceptanceUnknownError):
        client.submit("echo")
    taken.join()


def test_what_an_emptied_broker_lost_is_sent_again(server: ValkeyServer, broker: Redis) -> None:
    answers: list[Answer] = []
    client = Client(server.url, resend_seconds=0.1)
    thread = threading.Thread(target=lambda: answers.append(client.submit("echo").answer))
    thread.start()
    until(lambda: broker.llen(PROPOSE_QUEUE) == 1, 30, "the proposal is sent")
    broker.flushall()
    with governor(server):
        thread.join()
    client.close()
    assert [answer.status for answer in answers] == ["accepted"]


def test_a_broker_that_restarts_meanwhile_is_waited_for(short_tmp_path: Path) -> None:
    with valkey_server(short_tmp_path) as server:
        answers: list[Answer] = []
        client = Client(server.url, resend_seconds=0.1)
        thread = threading.Thread(target=lambda: answers.append(client.submit("echo").answer))
        thread.start()
        watcher = server.client()
        until(lambda: watcher.llen(PROPOSE_QUEUE) == 1, 30, "the proposal is sent")
        server.stop()
        server.start()
        with governor(server):
            thread.join()
        client.close()
        assert [answer.status for answer in answers] == ["accepted"]


def test_without_a_broker_nothing_was_sent(short_tmp_path: Path) -> None:
    with (
        Client(f"unix://{short_tmp_path}/none.sock") as client,
        pytest.raises(NotAcceptedError) as caught,
    ):
        client.submit("echo")
    assert caught.value.code == "BROKER_UNAVAILABLE"


def test_a_proposal_of_the_greatest_size_goes_through_and_a_larger_one_is_refused(
    server: ValkeyServer, broker: Redis
) -> None:
    def judge(said: Proposal | ProposalRefused) -> Answer:
        if isinstance(said, Proposal) and said.arguments_fault is not None:
            return Answer.refusing(said.id, said.arguments_fault)
        return accepting(said)

    with governor(server, judge), Client(server.url) as client:
        assert client.submit("echo", {"text": "x" * 1_048_000}).answer.status == "accepted"
        for given in ({"arguments": {"text": "x" * 2_000_000}}, {"arguments_json": "[" * 20_000}):
            with pytest.raises(NotAcceptedError) as caught:
                client.submit("echo", **given)
            assert caught.value.code in ("ARGUMENTS_TOO_LARGE", "JSON_DEPTH")

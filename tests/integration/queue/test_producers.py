"""What real Celery producers put on the queue is read, whichever protocol and options they use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from redis import Redis

from interlock.adapters.celery_wire import Envelope, decode_task
from interlock.identifier import new_id
from interlock.parse import parse_proposal
from interlock.proposal import PROPOSE_QUEUE, PROPOSE_TASK, Proposal
from tests.support.valkey import ValkeyServer

Producer = Callable[..., Celery]


@pytest.fixture
def producer(server: ValkeyServer) -> Iterator[Producer]:
    """Makes Celery applications that only send."""
    made: list[Celery] = []

    def make(**settings: Any) -> Celery:
        app = Celery("producer", broker=server.celery_url, set_as_current=False)
        app.conf.update(task_default_queue=PROPOSE_QUEUE, **settings)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


def sent(broker: Redis, queue: str = PROPOSE_QUEUE) -> Envelope:
    raw = broker.rpop(queue)
    assert isinstance(raw, bytes)
    envelope = decode_task(raw)
    assert isinstance(envelope, Envelope), envelope
    return envelope


def propose(app: Celery, kwargs: dict[str, Any], **options: Any) -> Any:
    return app.send_task(PROPOSE_TASK, kwargs=kwargs, queue=PROPOSE_QUEUE, **options)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("body_encoding", ["base64", None])
def test_both_protocols_and_both_encodings_are_read(
    producer: Producer, broker: Redis, protocol: int, body_encoding: str | None
) -> None:
    app = producer(task_protocol=protocol, broker_transport_options={"body_encoding": body_encoding})
    kwargs = {"id": new_id(), "tool": "echo", "arguments": {"text": 'ä\n"]},{[', "n": [1, 2.5]}}
    result = propose(app, kwargs)
    envelope = sent(broker)
    assert (envelope.task, envelope.task_id, envelope.refused_options) == (PROPOSE_TASK, result.id, ())
    assert json.loads(envelope.kwargs_json) == kwargs
    proposal = parse_proposal(envelope.kwargs_json, task_id=envelope.task_id)
    assert isinstance(proposal, Proposal)
    assert (proposal.id, proposal.arguments) == (kwargs["id"], kwargs["arguments"])


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"amount": float("nan")}, "JSON_NOT_FINITE"),
        ({"amount": float("-inf")}, "JSON_NOT_FINITE"),
        ({"reason": "a\0b"}, "JSON_NUL"),
        ({"reason": "\ud800"}, "JSON_UNICODE"),
        ({"n": 2**60}, "JSON_NUMBER_RANGE"),
    ],
)
def test_what_celery_lets_through_is_seen_by_the_strict_reader(
    producer: Producer, broker: Redis, protocol: int, arguments: dict[str, Any], code: str
) -> None:
    invocation_id = new_id()
    propose(
        producer(task_protocol=protocol),
        {"id": invocation_id, "tool": "payments.refund", "arguments": arguments},
    )
    envelope = sent(broker)
    proposal = parse_proposal(envelope.kwargs_json, task_id=envelope.task_id)
    assert isinstance(proposal, Proposal)
    assert proposal.arguments_fault is not None
    assert (proposal.id, proposal.arguments_fault.code) == (invocation_id, code)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"countdown": 60}, "eta"),
        ({"eta": datetime(2040, 1, 1, tzinfo=UTC)}, "eta"),
        ({"expires": 60}, "expires"),
        ({"link": True}, "link"),
        ({"link_error": True}, "link_error"),
        ({"time_limit": 5}, "time_limit"),
        ({"soft_time_limit": 5}, "time_limit"),
        ({"args": [1]}, "args"),
        ({"group_id": "g"}, "group"),
        ({"chord": True}, "chord"),
        ({"expiration": 5}, "expires"),
    ],
)
def test_every_option_that_would_be_ignored_is_named(
    producer: Producer, broker: Redis, protocol: int, options: dict[str, Any], name: str
) -> None:
    app = producer(task_protocol=protocol)
    given = {key: app.signature("another") if value is True else value for key, value in options.items()}
    propose(app, {"tool": "echo", "arguments": {}}, **given)
    assert sent(broker).refused_options == (name,)


def test_canvases_are_named(producer: Producer, broker: Redis) -> None:
    app = producer(result_backend="cache+memory://")
    step = app.signature(PROPOSE_TASK, kwargs={"tool": "echo", "arguments": {}}, immutable=True)
    chain(step, step, app=app).apply_async()
    assert sent(broker).refused_options == ("chain",)
    group([step, step], app=app).apply_async()
    assert sent(broker).refused_options == ("group",)
    assert "group" in sent(broker).refused_options
    chord([step, step], step, app=app).apply_async()
    assert {"group", "chord"} <= set(sent(broker).refused_options)


@pytest.mark.parametrize("option", [{"serializer": "pickle"}, {"compression": "zlib"}])
def test_a_body_in_another_form_is_refused_by_name_and_can_be_answered(
    producer: Producer, broker: Redis, option: dict[str, str]
) -> None:
    result = propose(producer(), {"tool": "echo", "arguments": {}}, **option)
    envelope = sent(broker)
    assert envelope.task_id == result.id
    assert set(envelope.refused_options) & {"serializer", "compression"}


def test_a_priority_chooses_another_list_of_the_same_queue(producer: Producer, broker: Redis) -> None:
    propose(producer(), {"tool": "echo", "arguments": {}}, priority=9)
    assert sent(broker, f"{PROPOSE_QUEUE}\x06\x169").refused_options == ()


def test_whether_a_result_is_wanted_is_known(producer: Producer, broker: Redis) -> None:
    propose(producer(), {"tool": "echo"}, ignore_result=True)
    assert not sent(broker).wants_result
    propose(producer(), {"tool": "echo"})
    assert sent(broker).wants_result


def test_a_reply_list_of_ours_is_found_in_the_message(producer: Producer, broker: Redis) -> None:
    propose(producer(), {"tool": "echo"}, reply_to="interlock.reply.mine")
    assert sent(broker).reply_to == "interlock.reply.mine"
    propose(producer(), {"tool": "echo"})
    assert sent(broker).reply_to is None

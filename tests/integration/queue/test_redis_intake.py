"""The intake against a real broker: killed processes, lost answers, large items, Celery results."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from celery import Celery
from redis import Redis
from redis.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

from governance.adapters.redis_intake import INDEX, SLICE_SECONDS, RedisIntake
from governance.intake import Reply, TakenBatch
from interlock.adapters.celery_wire import Envelope, NotAnEnvelope, decode_task
from interlock.answer import Answer
from interlock.errors import BrokerUnavailableError
from interlock.identifier import new_id
from interlock.proposal import PROPOSE_QUEUE, PROPOSE_TASK, client_queue
from tests.support.valkey import ValkeyServer, valkey_server

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def intake(server: ValkeyServer, broker: Redis) -> RedisIntake:
    return intake_of(server, "b")


def intake_of(
    server: ValkeyServer, boot: str, own_queues: Callable[[], Sequence[str]] = tuple
) -> RedisIntake:
    return RedisIntake(
        server.client(),
        server.client(blocking=True),
        boot=boot,
        queues=(PROPOSE_QUEUE,),
        own_queues=own_queues,
        look_seconds=0,
    )


def everybody(boot: str) -> bool:
    return True


def remaining(intake: RedisIntake) -> Iterator[TakenBatch]:
    while batches := intake.takeover(everybody):
        yield batches[0]
        intake.done(batches[0])


def take_and_be_killed(server: ValkeyServer, boot: str, limit: int = 100) -> str:
    """What a process said that took a batch before it was killed with SIGKILL."""
    command = [sys.executable, "-m", "tests.integration.queue.taker"]
    with subprocess.Popen(
        [*command, server.url, boot, PROPOSE_QUEUE, str(limit)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        process.kill()
    return said


def test_what_a_killed_process_had_taken_is_not_lost(
    server: ValkeyServer, broker: Redis, intake: RedisIntake
) -> None:
    for number in range(5):
        broker.lpush(PROPOSE_QUEUE, b"%d" % number)
    assert take_and_be_killed(server, "k", limit=3) == "3 1"
    assert broker.llen(PROPOSE_QUEUE) == 2
    again = [(item.raw, item.deliveries) for batch in remaining(intake) for item in batch.items]
    assert again == [(b"0", 2), (b"1", 2), (b"2", 2)]
    assert [item.raw for item in intake.take(9, 0).items] == [b"3", b"4"]


def test_the_third_process_that_meets_an_item_is_told_so(
    server: ValkeyServer, broker: Redis, intake: RedisIntake
) -> None:
    broker.lpush(PROPOSE_QUEUE, b"poison", b"behind it")
    assert take_and_be_killed(server, "k1") == "2 1"
    assert take_and_be_killed(server, "k2") == "1 2"
    seen = {item.raw: item.is_poison for batch in remaining(intake) for item in batch.items}
    assert seen == {b"poison": True, b"behind it": False}


def test_a_batch_whose_answer_was_lost_comes_with_the_next_call(broker: Redis, intake: RedisIntake) -> None:
    broker.lpush(PROPOSE_QUEUE, b"1", b"2")
    queues = '["interlock.propose"]'
    args: list[str | int] = [intake._field, 1, 100, "t 1 interlock.propose.*", 0, queues, ""]
    intake._take(keys=[INDEX, intake._list], args=args)
    batch = intake.take(9, 0)
    assert [(item.raw, item.queue, item.deliveries) for item in batch.items] == [(b"1", PROPOSE_QUEUE, 1)]
    assert [item.raw for item in intake.take(9, 0).items] == [b"2"]


def test_a_take_over_whose_answer_was_lost_is_found(
    server: ValkeyServer, broker: Redis, intake: RedisIntake
) -> None:
    broker.lpush(PROPOSE_QUEUE, b"1")
    intake_of(server, "dead").take(1, 0)
    intake._look(everybody)
    intake._held.clear()
    assert [item.raw for batch in remaining(intake) for item in batch.items] == [b"1"]


@pytest.mark.parametrize("priority", [0, 3, 6, 9])
def test_celerys_priorities_are_lists_of_the_same_queue(
    server: ValkeyServer, broker: Redis, intake: RedisIntake, priority: int
) -> None:
    app = Celery("producer", broker=server.celery_url, set_as_current=False)
    app.send_task(PROPOSE_TASK, kwargs={"tool": "echo"}, queue=PROPOSE_QUEUE, priority=priority)
    app.send_task(PROPOSE_TASK, kwargs={"tool": "first"}, queue=PROPOSE_QUEUE)
    app.close()
    items = intake.take(9, 0).items
    assert {item.queue for item in items} == {PROPOSE_QUEUE}
    assert len(items) == 2
    envelope = decode_task(items[-1].raw)
    assert isinstance(envelope, Envelope)
    assert envelope.kwargs_json == (b'{"tool": "echo"}' if priority else b'{"tool": "first"}')


def test_an_item_of_fifty_megabytes_is_refused_at_its_producer(broker: Redis, intake: RedisIntake) -> None:
    with pytest.raises((ResponseError, RedisConnectionError)):
        broker.lpush(PROPOSE_QUEUE, b"x" * 50_000_000)
    broker.lpush(PROPOSE_QUEUE, b"small")
    assert [item.raw for item in intake.take(9, 0).items] == [b"small"]


def test_where_the_broker_takes_it_it_comes_alone_and_is_not_decoded(
    broker: Redis, intake: RedisIntake
) -> None:
    broker.config_set("proto-max-bulk-len", 64_000_000)
    try:
        broker.lpush(PROPOSE_QUEUE, b"before")
        broker.lpush(PROPOSE_QUEUE, b"x" * 50_000_000)
        broker.lpush(PROPOSE_QUEUE, b"after")
    finally:
        broker.config_set("proto-max-bulk-len", 4_194_304)
    sizes = [[len(item.raw) for item in intake.take(9, 0).items] for _ in range(3)]
    assert sizes == [[6], [50_000_000], [5]]
    large = decode_task(b"x" * 50_000_000)
    assert isinstance(large, NotAnEnvelope)
    assert large.reason.code == "JSON_SIZE"


def test_a_celery_producer_gets_its_answer_as_a_result(
    server: ValkeyServer, broker: Redis, intake: RedisIntake
) -> None:
    app = Celery("producer", broker=server.celery_url, backend=server.celery_url, set_as_current=False)
    result = app.send_task(PROPOSE_TASK, kwargs={"tool": "echo"}, queue=PROPOSE_QUEUE)
    batch = intake.take(9, 1)
    envelope = decode_task(batch.items[0].raw)
    assert isinstance(envelope, Envelope)
    answer = Answer(invocation_id=new_id(), status="accepted", phase="queued", seq=7)
    intake.done(batch, [Reply(answer, envelope.reply_to, envelope.task_id)])
    assert result.get(timeout=10) == answer.to_json()
    assert result.status == "SUCCESS"
    ttl = broker.ttl(f"celery-task-meta-{result.id}")
    assert 0 < ttl <= 600
    app.close()


def test_a_producer_that_waits_already_is_woken(
    server: ValkeyServer, broker: Redis, intake: RedisIntake
) -> None:
    app = Celery("producer", broker=server.celery_url, backend=server.celery_url, set_as_current=False)
    result = app.send_task(PROPOSE_TASK, kwargs={"tool": "echo"}, queue=PROPOSE_QUEUE)
    heard: PubSub = broker.pubsub()  # type: ignore[no-untyped-call]  # redis-py annotates it not
    heard.subscribe(f"celery-task-meta-{result.id}")
    assert heard.get_message(timeout=30)
    intake.answer([Reply(Answer(status="refused", code="UNKNOWN_TOOL"), None, result.id)])
    message = heard.get_message(timeout=30)
    heard.close()
    assert message is not None
    assert b"UNKNOWN_TOOL" in message["data"]
    assert result.get(timeout=30)["status"] == "refused"
    app.close()


def test_an_answer_that_cannot_be_delivered_stops_nobody_elses(broker: Redis, intake: RedisIntake) -> None:
    broker.set("interlock.reply.bad", "no list")
    broker.lpush(PROPOSE_QUEUE, b"x")
    answer = Answer(invocation_id=new_id(), status="accepted", phase="queued")
    replies = [Reply(answer, "interlock.reply.bad"), Reply(answer, "interlock.reply.good")]
    intake.done(intake.take(1, 0), replies)
    assert broker.llen("interlock.reply.good") == 1
    assert broker.hlen(INDEX) == 0


@pytest.mark.parametrize("entry", ["junk", "t x interlock.propose", "t 1", "\xff"])
def test_what_is_no_entry_of_the_index_is_dropped(broker: Redis, intake: RedisIntake, entry: str) -> None:
    broker.hset(INDEX, "junk", entry)
    broker.hset(INDEX, b"\xff:1", "t 1 interlock.propose")
    broker.hset(INDEX, "k:1", entry)
    broker.lpush(PROPOSE_QUEUE, b"item")
    assert intake.takeover(everybody) == []
    assert [item.raw for item in intake.take(9, 0).items] == [b"item"]
    assert broker.hlen(INDEX) == 1


@pytest.mark.parametrize("key", [PROPOSE_QUEUE, f"{PROPOSE_QUEUE}\x06\x163", INDEX])
def test_a_key_of_another_kind_is_set_aside(broker: Redis, intake: RedisIntake, key: str) -> None:
    broker.set(key, "x")
    if key != PROPOSE_QUEUE:
        broker.lpush(PROPOSE_QUEUE, b"item")
    with pytest.raises(BrokerUnavailableError):
        intake.take(9, 0)
    if key == PROPOSE_QUEUE:
        broker.lpush(PROPOSE_QUEUE, b"item")
    assert [item.raw for item in intake.take(9, 0).items] == [b"item"]
    [aside] = broker.keys("*.bad.*")
    assert broker.get(aside) == b"x"


def test_an_emptied_broker_is_taken_from_as_a_new_one(broker: Redis, intake: RedisIntake) -> None:
    broker.lpush(PROPOSE_QUEUE, b"1")
    lost = intake.take(1, 0)
    broker.flushall()
    broker.script_flush()
    intake.done(lost)
    broker.lpush(PROPOSE_QUEUE, b"2")
    assert [item.raw for item in intake.take(1, 0).items] == [b"2"]


def test_a_broker_that_is_away_is_said_so_and_loses_nothing(short_tmp_path: Path) -> None:
    with valkey_server(short_tmp_path) as server:
        intake = intake_of(server, "b")
        server.client().lpush(PROPOSE_QUEUE, b"1", b"2")
        batch = intake.take(1, 0)
        server.stop()
        for broken in (
            lambda: intake.take(1, 0),
            lambda: intake.done(batch),
            lambda: intake.answer([Reply(Answer(status="refused"), "interlock.reply.r")]),
            lambda: intake.now_us(),
        ):
            with pytest.raises(BrokerUnavailableError):
                broken()
        server.start()
        intake.done(batch)
        assert [item.raw for item in intake.take(9, 0).items] == [b"2"]


def test_an_idle_intake_asks_seldom(server: ValkeyServer, broker: Redis, intake: RedisIntake) -> None:
    intake.take(9, 0.05)
    broker.config_resetstat()
    assert intake.take(9, 1.2).items == ()
    stats = broker.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] <= 4
    assert stats.get("cmdstat_exists", {"calls": 0})["calls"] <= 4 * 3


@pytest.mark.parametrize("suffix", ["", ".acme", ".acme\x06\x163"])
def test_an_idle_intake_wakes_at_once(server: ValkeyServer, broker: Redis, suffix: str) -> None:
    queues = (*(f"{PROPOSE_QUEUE}.c{number}" for number in range(200)), f"{PROPOSE_QUEUE}.acme")
    intake = intake_of(server, "b", lambda: queues)
    name = f"{PROPOSE_QUEUE}{suffix}"
    waits: list[float] = []
    for _ in range(3):
        put_at: list[float] = []

        def put(put_at: list[float] = put_at) -> None:
            put_at.append(time.monotonic())
            broker.lpush(name, b"x")

        timer = threading.Timer(0.1, put)
        timer.start()
        batch = intake.take(9, 20)
        waits.append(time.monotonic() - put_at[0])
        timer.join()
        assert [(item.raw, item.queue) for item in batch.items] == [(b"x", name.split("\x06")[0])]
        intake.done(batch)
    assert min(waits) < SLICE_SECONDS / 4


def test_a_watch_survives_an_emptied_and_a_restarted_broker(short_tmp_path: Path) -> None:
    with valkey_server(short_tmp_path) as server:
        intake = intake_of(server, "b")
        assert intake.take(9, 0.05).items == ()
        server.client().flushall()
        assert intake.take(9, 0.05).items == ()
        server.stop()
        with pytest.raises(BrokerUnavailableError):
            intake.take(9, 1)
        with pytest.raises(BrokerUnavailableError):
            intake.now_us()
        server.start()
        with pytest.raises(BrokerUnavailableError):
            intake.take(9, 1)  # the connection on which it waits was lost, too
        timer = threading.Timer(0.05, lambda: server.client().lpush(PROPOSE_QUEUE, b"x"))
        timer.start()
        assert [item.raw for item in intake.take(9, 20).items] == [b"x"]
        timer.join()


def test_a_list_that_an_earlier_version_had_taken_is_taken_over(broker: Redis, intake: RedisIntake) -> None:
    broker.lpush(f"{INDEX}:dead:1", b"1", b"2\0")
    broker.hset(INDEX, "dead:1", f"t 1 {PROPOSE_QUEUE}")
    seen = [(item.raw, item.queue) for batch in remaining(intake) for item in batch.items]
    assert seen == [(b"1", PROPOSE_QUEUE), (b"2\0", PROPOSE_QUEUE)]


def test_a_thousand_queues_are_cheap_to_look_at(server: ValkeyServer, broker: Redis) -> None:
    queues = tuple(f"{PROPOSE_QUEUE}.c{number}" for number in range(1_000))
    intake = intake_of(server, "b", lambda: queues)
    intake.take(9, 0)
    broker.lpush(queues[7], *[b"x"] * 512)
    broker.config_resetstat()
    assert len(intake.take(512, 0).items) == 512
    assert broker.info("commandstats")["cmdstat_evalsha"]["usec"] < 50_000


def test_one_client_with_thousands_waiting_delays_no_other(server: ValkeyServer, broker: Redis) -> None:
    acme, rival = client_queue("acme"), client_queue("rival")
    queues = (acme, rival)
    intake = intake_of(server, "b", lambda: queues)
    broker.lpush(acme, *[b"x"] * 5_000)
    assert len(intake.take(512, 0).items) == 512
    broker.lpush(rival, b"one")
    batch = intake.take(512, 0)
    assert [item.raw for item in batch.items if item.queue == rival] == [b"one"]
    assert len(batch.items) == 512


def test_a_client_whom_the_broker_gave_its_queue_writes_nowhere_else(
    server: ValkeyServer, broker: Redis
) -> None:
    password = secrets.token_hex(16)
    rule = f"on >{password} resetkeys -@all +hello +auth +ping +time +select +multi +exec +client|setinfo"
    queue = "~interlock.propose.acme ~interlock.propose.acme[^-0-9A-Za-z._@]*"
    own = (
        f"({queue} +lpush +llen +lpos +lrem)",
        "(~_kombu.binding*.interlock.propose.acme +sadd)",
        "(~interlock.reply.acme.* +brpop +rpop)",
    )
    broker.execute_command("ACL", "SETUSER", "acme", *rule.split(), *own)  # type: ignore[no-untyped-call]  # redis-py names no types here
    try:
        acme = Redis.from_url(server.url.replace("unix://", f"unix://acme:{password}@"))
        acme.lpush(f"{PROPOSE_QUEUE}.acme", b"x")
        url = server.celery_url.replace("://", f"://acme:{password}@")
        app = Celery("p", broker=url, set_as_current=False)
        for priority in (0, 9):
            app.send_task(
                PROPOSE_TASK,
                queue=f"{PROPOSE_QUEUE}.acme",
                priority=priority,
                ignore_result=True,
                retry=False,
            )
        app.close()
        for key in (
            PROPOSE_QUEUE,
            f"{PROPOSE_QUEUE}.acme2",
            f"{PROPOSE_QUEUE}.acme.b",
            INDEX,
            "interlock.reply.other.1",
        ):
            with pytest.raises(NoPermissionError):
                acme.lpush(key, b"x")
        with pytest.raises(NoPermissionError):
            acme.rpop("interlock.reply.other.1")
        assert acme.rpop("interlock.reply.acme.1") is None
        acme.close()
    finally:
        broker.execute_command("ACL", "DELUSER", "acme")  # type: ignore[no-untyped-call]  # redis-py names no types here

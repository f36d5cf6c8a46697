"""The client for coroutines: what it gathers, what it bounds, and what a cancelled or closed one leaves."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

import interlock
from interlock.answer import Answer
from interlock.async_client import AsyncClient
from interlock.channel import Heard, InMemoryChannel
from interlock.client import Client
from interlock.courier import Submitted
from interlock.errors import (
    AcceptanceUnknownError,
    LedgerUnavailableError,
    NotAcceptedError,
    NotFoundError,
    RetryLaterError,
    UsageError,
)
from interlock.identifier import new_id
from interlock.proposal import PROPOSE_QUEUE, Proposal
from interlock.receipt import Success
from tests.support.answering import (
    InMemoryOutcomes,
    OneByOne,
    accepting,
    envelope,
    governed,
    proposal,
    record_of,
)
from tests.support.source import ROOT
from tests.support.wait import until

T = TypeVar("T")
SLOW_SECONDS = 0.5


async def turn_of_the_loop() -> None:
    """Let everything go on that can."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()


def run(work: Coroutine[Any, Any, T]) -> T:
    """In a loop that complains of whatever holds it, and fails for what nobody looked at."""
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = SLOW_SECONDS
    faults: list[Any] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    try:
        found = loop.run_until_complete(work)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert faults == []
    return found


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("interlock-")]


# --- one definition ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["submit", "cancel", "approve", "wait", "record", "result", "events"])
def test_it_takes_what_the_other_client_takes(name: str) -> None:
    mine, other = (inspect.signature(getattr(of, name)) for of in (AsyncClient, Client))
    assert mine.parameters == other.parameters


def test_it_is_made_with_what_the_other_is_made_with() -> None:
    mine, other = (inspect.signature(of.__init__).parameters for of in (AsyncClient, Client))
    assert {name: mine[name] for name in other} == dict(other)


def test_an_unknown_field_is_an_error_at_once() -> None:
    async def work() -> None:
        async with AsyncClient(governed()) as client:
            with pytest.raises(TypeError, match="'sesion'"):
                await client.submit("echo", sesion="s")  # type: ignore[call-arg]  # the point

    run(work())


def test_the_package_is_light_and_has_both_clients() -> None:
    program = "import interlock, sys; print('asyncio' in sys.modules or 'redis' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    assert interlock.AsyncClient is AsyncClient


# --- submitting ----------------------------------------------------------------------------------


def test_everything_that_is_said_stands_on_the_wire() -> None:
    channel, chosen = governed(), new_id()

    async def work() -> Submitted:
        async with AsyncClient(channel, timeout_seconds=7) as client:
            return await client.submit(
                "echo", {"a": 1}, session="s", stage="g", key="k", priority=2, mode="edit", id=chosen
            )

    submitted = run(work())
    said = proposal(channel.sent[0])
    assert submitted.invocation_id == said.id == chosen
    assert (said.arguments, said.session, said.stage) == ({"a": 1}, "s", "g")
    assert (said.key, said.priority, said.mode) == ("k", 2, "edit")


def test_what_one_turn_of_the_loop_submits_is_sent_together() -> None:
    sends: list[int] = []

    class Counting(InMemoryChannel):
        def send(self, queue: str, items: Sequence[bytes]) -> None:
            sends.append(len(items))
            super().send(queue, items)

    answering = governed()
    channel = Counting(answering.respond)
    answering.queues = channel.queues

    async def work() -> list[Submitted]:
        async with AsyncClient(channel) as client:
            return await asyncio.gather(*(client.submit("echo", {"n": n}) for n in range(1_000)))

    submitted = run(work())
    assert len({one.invocation_id for one in submitted}) == 1_000
    assert sends == [500, 500]


def test_each_gets_its_own_outcome() -> None:
    def judge(said: Proposal) -> Answer | None:
        if said.tool == "refused":
            return Answer(invocation_id=said.id, status="refused", code="KEY_REUSED")
        return None if said.tool == "silent" else accepting(said)

    async def work() -> list[Any]:
        async with AsyncClient(governed(judge), timeout_seconds=0.05) as client:
            said = [client.submit(tool) for tool in ("echo", "refused", "silent")]
            said.append(client.submit("echo", {"a": float("nan")}))
            return list(await asyncio.gather(*said, return_exceptions=True))

    accepted, *others = run(work())
    assert isinstance(accepted, Submitted)
    assert [(type(one), one.code) for one in others] == [
        (NotAcceptedError, "KEY_REUSED"),
        (NotAcceptedError, "NOT_ACCEPTED"),
        (NotAcceptedError, "JSON_NOT_FINITE"),
    ]


def test_an_answered_one_does_not_wait_for_its_silent_neighbour() -> None:
    async def work() -> None:
        channel = governed(lambda said: None if said.tool == "silent" else accepting(said))
        async with AsyncClient(channel) as client:
            silent = asyncio.ensure_future(client.submit("silent"))
            assert (await client.submit("echo")).answer.status == "accepted"
            assert not silent.done()
            silent.cancel()

    run(work())


def test_what_cannot_be_written_down_harms_only_whoever_said_it() -> None:
    async def work() -> list[Any]:
        async with AsyncClient(governed()) as client:
            bad: Any = object()
            said = [client.submit("echo"), client.submit("echo", session=bad), client.submit("echo")]
            return list(await asyncio.gather(*said, return_exceptions=True))

    first, bad, last = run(work())
    assert isinstance(bad, TypeError)
    assert isinstance(first, Submitted)
    assert isinstance(last, Submitted)


def test_an_item_that_got_lost_is_sent_again_as_it_was() -> None:
    seen: list[str] = []

    def second_time(said: Proposal) -> Answer | None:
        seen.append(said.id)
        if len(seen) == 1:
            channel.take(PROPOSE_QUEUE)
            return None
        return accepting(said)

    channel = governed(second_time)

    async def work() -> Submitted:
        async with AsyncClient(channel, resend_seconds=0.01) as client:
            return await client.submit("echo")

    assert run(work()).answer.status == "accepted"
    assert len(seen) == 2
    assert len(set(channel.sent)) == 1


def test_without_a_broker_nothing_was_sent() -> None:
    async def work() -> None:
        async with AsyncClient(governed(is_away=True)) as client:
            with pytest.raises(NotAcceptedError) as caught:
                await client.submit("echo")
            assert caught.value.code == "BROKER_UNAVAILABLE"

    run(work())


def test_no_more_than_the_bound_are_on_their_way() -> None:
    most = 0
    answers: list[Heard] = []

    def hold(item: bytes) -> Sequence[Heard]:
        nonlocal most
        said = proposal(item)
        assert said.reply_to is not None
        answers.append(Heard(said.reply_to, accepting(said).to_bytes()))
        most = max(most, len(answers))
        return ()

    class Answering(InMemoryChannel):
        def receive(self, names: Sequence[str], seconds: float) -> list[Heard]:
            held, answers[:] = list(answers), []
            return held

    async def work() -> None:
        async with AsyncClient(Answering(hold), underway_max=7) as client:
            await asyncio.gather(*(client.submit("echo") for _ in range(50)))

    run(work())
    assert most == 7


# --- many ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
def test_many_come_back_in_their_order(is_async: bool) -> None:
    ids = [new_id() for _ in range(60)]

    async def stream() -> AsyncIterator[dict[str, Any]]:
        for one in ids:
            yield {"tool": "echo", "id": one}

    async def work() -> list[Any]:
        async with AsyncClient(governed(), underway_max=8) as client:
            said = stream() if is_async else [{"tool": "echo", "id": one} for one in ids]
            return [outcome async for outcome in client.submit_many(said)]

    assert [one.invocation_id for one in run(work())] == ids


def test_what_submit_raises_is_an_outcome_of_many() -> None:
    async def work() -> list[Any]:
        async with AsyncClient(governed()) as client:
            said = [{"tool": "echo"}, {"tool": "echo", "id": "none"}, {"tool": "echo"}]
            return [type(outcome) async for outcome in client.submit_many(said)]

    assert run(work()) == [Submitted, NotAcceptedError, Submitted]


def test_who_stops_asking_leaves_its_places_to_others() -> None:
    async def work() -> None:
        async with AsyncClient(governed(), underway_max=4) as client:
            outcomes = client.submit_many({"tool": "echo"} for _ in range(20))
            async for _ in outcomes:
                break
            await outcomes.aclose()  # type: ignore[attr-defined]  # it is a generator
            await asyncio.gather(*(client.submit("echo") for _ in range(8)))

    run(work())


# --- waiting -------------------------------------------------------------------------------------


def test_a_thousand_waits_share_one_question() -> None:
    outcomes = InMemoryOutcomes()
    ids = [new_id() for _ in range(1_000)]

    async def work() -> list[Any]:
        async with AsyncClient(governed(), source=outcomes) as client:
            waits = asyncio.gather(*(client.wait(one, 10) for one in ids))
            await asyncio.wait_for(_asked(outcomes, 2), 5)
            outcomes.known = {one: record_of(one) for one in ids}
            return await waits

    assert [record.invocation_id for record in run(work())] == ids
    assert set(outcomes.asked) == {1_000}
    assert len(outcomes.asked) < 20


async def _asked(outcomes: InMemoryOutcomes, times: int) -> None:
    await asyncio.to_thread(until, lambda: len(outcomes.asked) >= times, 5, "it is asked")


@pytest.mark.parametrize("phase", ["done", "reconciliation_required"])
def test_waiting_ends_where_nothing_more_comes_by_itself(phase: str) -> None:
    outcomes = InMemoryOutcomes({"a": record_of("a", phase)})

    async def work(source: Any) -> list[Any]:
        async with AsyncClient(governed(), source=source) as client:
            return list(await asyncio.gather(client.wait("a", 5), client.wait("a", 5)))

    for source in (outcomes, OneByOne(outcomes)):
        assert [record.phase for record in run(work(source))] == [phase, phase]


def test_waiting_ends_with_its_time() -> None:
    outcomes = InMemoryOutcomes({"a": record_of("a", "awaiting_approval")})

    async def work() -> None:
        async with AsyncClient(governed(), source=outcomes) as client:
            for one, phase in (("a", "awaiting_approval"), ("b", "unknown")):
                with pytest.raises(RetryLaterError) as caught:
                    await client.wait(one, 0.01)
                assert (caught.value.code, caught.value.data["phase"]) == ("WAIT_TIMEOUT", phase)
            outcomes.known["a"] = record_of("a")
            assert (await client.wait("a", 0)).phase == "done"

    run(work())


def test_nobody_is_asked_while_nobody_waits() -> None:
    outcomes = InMemoryOutcomes({"a": record_of("a")})

    async def work() -> None:
        async with AsyncClient(governed(), source=outcomes) as client:
            await client.wait("a", 5)
            with pytest.raises(RetryLaterError):
                await client.wait("b", 0.01)
            mine = asyncio.current_task()
            until_idle = [one for one in asyncio.all_tasks() if one is not mine]
            await asyncio.wait_for(asyncio.gather(*until_idle), 5)
            assert asyncio.all_tasks() == {mine}

    run(work())


def test_an_error_of_the_source_reaches_everybody_who_waits_and_nobody_later() -> None:
    outcomes = InMemoryOutcomes({"a": record_of("a")}, error=LedgerUnavailableError("away"))

    async def work() -> None:
        async with AsyncClient(governed(), source=outcomes) as client:
            found = await asyncio.gather(client.wait("a", 5), client.wait("b", 5), return_exceptions=True)
            assert [type(one) for one in found] == [LedgerUnavailableError] * 2
            outcomes.error = None
            assert (await client.wait("a", 5)).phase == "done"

    run(work())


def test_results_and_events_are_read() -> None:
    done = record_of("a", output_summary="hello", exit_code=0, receipt_digest="d")
    outcomes = InMemoryOutcomes({"a": done})

    async def work() -> None:
        async with AsyncClient(governed(), source=outcomes) as client:
            assert isinstance(await client.result("a"), Success)
            assert await client.record("b") is None
            with pytest.raises(NotFoundError):
                await client.result("b")
            assert [event.seq async for event in client.events(1, limit=2)] == [2, 3, 4, 5]

    run(work())


def test_a_client_without_a_source_does_not_guess() -> None:
    async def work() -> None:
        async with AsyncClient(governed()) as client:
            with pytest.raises(UsageError):
                await client.wait("a", 1)

    run(work())


# --- other requests ------------------------------------------------------------------------------


def test_a_cancellation_is_answered() -> None:
    def respond(item: bytes) -> Sequence[Heard]:
        reply_to = envelope(item).reply_to
        assert reply_to is not None
        return [Heard(reply_to, Answer(invocation_id="i", status="accepted", phase="done").to_bytes())]

    channel, chosen = InMemoryChannel(respond), new_id()

    async def work() -> Answer:
        async with AsyncClient(channel) as client:
            return await client.cancel(chosen)

    assert run(work()).phase == "done"
    assert json.loads(envelope(channel.sent[0]).kwargs_json) == {"id": chosen}


# --- cancelled, closed, shared -------------------------------------------------------------------


def test_a_cancelled_submission_stays_sent_and_its_place_is_free_once_it_is_answered() -> None:
    held: list[Heard] = []

    def hold(item: bytes) -> Sequence[Heard]:
        said = proposal(item)
        assert said.reply_to is not None
        if said.tool == "late":
            held.append(Heard(said.reply_to, accepting(said).to_bytes()))
            return ()
        return [Heard(said.reply_to, accepting(said).to_bytes())]

    channel = InMemoryChannel(hold)

    async def work() -> None:
        async with AsyncClient(channel, underway_max=1) as client:
            late = asyncio.ensure_future(client.submit("late"))
            await asyncio.to_thread(until, lambda: held, 5, "it is sent")
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            after = asyncio.ensure_future(client.submit("echo"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(after), 0.02)
            channel.tell(held)
            assert (await after).answer.status == "accepted"

    run(work())
    assert [proposal(item).tool for item in channel.sent] == ["late", "echo"]


def test_what_is_cancelled_before_it_was_sent_is_never_sent() -> None:
    channel = governed()

    async def work() -> None:
        async with AsyncClient(channel, underway_max=2) as client:
            first = asyncio.ensure_future(client.submit("first"))
            asyncio.get_running_loop().call_soon(first.cancel)
            await asyncio.gather(first, return_exceptions=True)
            await asyncio.gather(client.submit("echo"), client.submit("echo"))

    run(work())
    assert [proposal(item).tool for item in channel.sent] == ["echo", "echo"]


def test_a_cancelled_wait_is_forgotten() -> None:
    outcomes = InMemoryOutcomes()

    async def work() -> None:
        async with AsyncClient(governed(), source=outcomes) as client:
            one, other = (asyncio.ensure_future(client.wait("a", 5)) for _ in range(2))
            await asyncio.wait_for(_asked(outcomes, 1), 5)
            one.cancel()
            outcomes.known["a"] = record_of("a")
            assert (await other).phase == "done"
            assert one.cancelled()

    run(work())


def test_closing_tells_everybody_who_waits() -> None:
    chosen, outcomes = new_id(), InMemoryOutcomes()
    channel = governed(lambda said: None)

    async def work() -> list[Any]:
        client = AsyncClient(channel, source=outcomes, underway_max=2)
        waits = [
            client.submit("sent", id=chosen),
            client.submit("sent"),
            client.submit("waits for a place"),
            client.wait("a", 60),
            client.cancel(new_id()),
        ]
        everybody = asyncio.gather(*waits, return_exceptions=True)
        await asyncio.to_thread(until, lambda: len(channel.queues) == 2, 5, "they are sent")
        await client.close()
        await client.close()
        with pytest.raises(UsageError):
            await client.submit("echo")
        with pytest.raises(UsageError):
            await client.wait("a", 1)
        return await everybody

    channel.respond = lambda item: ()
    found = run(work())
    assert [type(one) for one in found] == [AcceptanceUnknownError] * 2 + [NotAcceptedError] + [
        UsageError
    ] * 2
    assert found[0].invocation_id == chosen
    assert "closed" in str(found[3])


def test_what_is_gathered_when_it_is_closed_was_not_sent() -> None:
    channel = governed()

    async def work() -> None:
        client = AsyncClient(channel)
        submission = asyncio.ensure_future(client.submit("echo"))
        asyncio.get_running_loop().call_soon(lambda: closing.append(asyncio.ensure_future(client.close())))
        closing: list[Any] = []
        found = await asyncio.gather(submission, return_exceptions=True)
        await asyncio.gather(*closing)
        assert isinstance(found[0], (NotAcceptedError, AcceptanceUnknownError, Submitted))

    run(work())


def test_whoever_waits_for_a_place_when_it_is_closed_was_not_sent() -> None:
    async def work() -> list[Any]:
        client = AsyncClient(governed(), underway_max=1)
        submissions = [asyncio.ensure_future(client.submit("echo")) for _ in range(20)]
        await turn_of_the_loop()
        await client.close()
        return list(await asyncio.gather(*submissions, return_exceptions=True))

    found = run(work())
    assert {type(one) for one in found} <= {NotAcceptedError, AcceptanceUnknownError, Submitted}
    assert isinstance(found[-1], NotAcceptedError)


def test_a_close_that_nobody_waited_for_to_the_end_goes_on() -> None:
    before = len(threads())

    async def work() -> None:
        client = AsyncClient(governed())
        await client.submit("echo")
        first = asyncio.ensure_future(client.close())
        await turn_of_the_loop()
        first.cancel()
        await client.close()

    run(work())
    until(lambda: len(threads()) <= before, 30, "its threads ended")


def test_a_closed_client_leaves_no_thread_behind() -> None:
    before = len(threads())
    outcomes = InMemoryOutcomes({"a": record_of("a")})

    async def work() -> None:
        async with AsyncClient(governed(), source=outcomes) as client:
            assert len(threads()) == before
            await client.submit("echo")
            await client.wait("a", 5)

    run(work())
    until(lambda: len(threads()) <= before, 30, "its threads ended")


def test_loops_in_threads_have_clients_of_their_own() -> None:
    channel, seen = governed(), set()

    async def work() -> None:
        async with AsyncClient(channel) as client:
            for one in await asyncio.gather(*(client.submit("echo") for _ in range(20))):
                seen.add(one.invocation_id)

    lock = threading.Lock()
    respond = channel.respond

    def one_at_a_time(item: bytes) -> Sequence[Heard]:
        with lock:
            return respond(item)

    channel.respond = one_at_a_time
    workers = [threading.Thread(target=run, args=(work(),)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(seen) == 60


def test_a_client_belongs_to_one_loop() -> None:
    client = AsyncClient(governed())

    async def work() -> None:
        await client.submit("echo")

    async def close() -> None:
        await client.close()

    run(work())
    with pytest.raises(UsageError, match="loop"):
        run(work())
    run(close())


def test_the_loop_goes_on_while_broker_and_source_are_slow(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = InMemoryOutcomes({"a": record_of("a")})
    outcomes.gate.clear()
    answered = threading.Event()

    class Slow(InMemoryChannel):
        def receive(self, names: Sequence[str], seconds: float) -> list[Heard]:
            answered.wait(2 * SLOW_SECONDS)
            return super().receive(names, seconds)

        def now_us(self) -> int:
            answered.wait(2 * SLOW_SECONDS)
            return super().now_us()

    answering = governed()
    channel = Slow(answering.respond)
    answering.queues = channel.queues

    async def work() -> None:
        async with AsyncClient(channel, source=outcomes) as client:
            waits = asyncio.gather(client.submit("echo"), client.wait("a", 60), client.record("a"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waits), 2 * SLOW_SECONDS)
            outcomes.gate.set()
            await waits

    with caplog.at_level(logging.WARNING, "asyncio"):
        run(work())
    assert [line.getMessage() for line in caplog.records if "took" in line.getMessage()] == []

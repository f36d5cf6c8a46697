"""Intakes move, never pop: what one had taken is handed out again until somebody is done with it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from governance.intake import IntakeQueue, Reply, TakenBatch
from interlock.answer import Answer
from interlock.clock import SECOND_US, SystemClock

if TYPE_CHECKING:
    from tests.conformance.intake.conftest import Bench

DECIDE = "interlock.decide"


def raws(batch: TakenBatch) -> list[bytes]:
    return [item.raw for item in batch.items]


def take(intake: IntakeQueue, limit: int = 100) -> TakenBatch:
    return intake.take(limit, 0)


def everybody(boot: str) -> bool:
    return True


def nobody(boot: str) -> bool:
    return False


def test_items_come_oldest_first_and_at_most_as_many_as_asked(bench: Bench) -> None:
    for number in range(5):
        bench.put(b"%d" % number)
    intake = bench.intake("a")
    assert raws(take(intake, 3)) == [b"0", b"1", b"2"]
    assert raws(take(intake, 3)) == [b"3", b"4"]
    assert take(intake).items == ()


def test_a_taken_item_stays_until_its_batch_is_done(bench: Bench) -> None:
    bench.put(b"x")
    intake = bench.intake("a")
    batch = take(intake)
    assert (bench.waiting(), bench.kept()) == (0, 1)
    assert take(intake).items == ()
    intake.done(batch)
    assert (bench.waiting(), bench.kept()) == (0, 0)


def test_two_intakes_never_get_the_same_item(bench: Bench) -> None:
    for number in range(6):
        bench.put(b"%d" % number)
    first, second = bench.intake("a"), bench.intake("b")
    got = raws(take(first, 2)) + raws(take(second, 2)) + raws(take(first, 2)) + raws(take(second, 2))
    assert got == [b"%d" % number for number in range(6)]


OWN = "interlock.propose"
SHOP = "interlock.propose.shop"


def origins(batch: TakenBatch) -> list[tuple[str, bytes]]:
    return [(item.queue, item.raw) for item in batch.items]


def test_every_queue_has_its_share_of_a_batch_and_every_item_says_whence_it_came(bench: Bench) -> None:
    for number in range(9):
        bench.put(b"%d" % number)
    bench.put(b"only one", SHOP)
    intake = bench.intake("a")
    seen = origins(take(intake, 4))
    assert sorted(seen) == [(OWN, b"0"), (OWN, b"1"), (OWN, b"2"), (SHOP, b"only one")]
    assert [raw for queue, raw in seen if queue == OWN] == [b"0", b"1", b"2"]


def test_a_long_queue_delays_no_other(bench: Bench) -> None:
    for _ in range(50):
        bench.put(b"own")
    intake = bench.intake("a")
    take(intake, 10)
    bench.put(b"shop", SHOP)
    assert (SHOP, b"shop") in origins(take(intake, 10))


def test_a_queue_of_large_items_delays_no_other(bench: Bench) -> None:
    for _ in range(9):
        bench.put(b"x" * 400)
    bench.put(b"small", SHOP)
    intake = bench.intake("a")
    seen = [*origins(take(intake)), *origins(take(intake))]
    assert (SHOP, b"small") in seen


def test_who_found_no_place_is_first_the_next_time(bench: Bench) -> None:
    queues = tuple(f"interlock.propose.c{number}" for number in range(7))
    for queue in queues:
        for _ in range(3):
            bench.put(b"x", queue)
    intake = bench.intake("a", queues)
    seen = [item.queue for _ in range(7) for item in take(intake, 3).items]
    assert sorted(seen[:7]) == sorted(seen[7:14]) == sorted(seen[14:]) == sorted(queues)


def test_queues_that_come_and_go_are_served_as_they_stand(bench: Bench) -> None:
    own: list[tuple[str, ...]] = [()]
    intake = bench.intake("a", own_queues=lambda: own[0])
    bench.put(b"stranger", "interlock.propose.new")
    assert take(intake).items == ()
    own[0] = ("interlock.propose.new",)
    assert origins(take(intake)) == [("interlock.propose.new", b"stranger")]
    bench.put(b"late", "interlock.propose.new")
    own[0] = ()
    assert take(intake).items == ()


def test_what_is_handed_out_again_still_says_whence_it_came(bench: Bench) -> None:
    bench.put(b"own\0interlock.propose.shop")
    bench.put(b"interlock.propose\0shop", SHOP)
    lost = origins(take(bench.intake("dead")))
    intake = bench.intake("b", (OWN,))
    again = [*intake.takeover(everybody), *intake.takeover(everybody)]
    assert [pair for batch in again for pair in origins(batch)] == lost
    assert len(set(lost)) == 2
    intake.give_back(again[1])
    assert origins(take(intake)) == lost[1:]


def test_a_batch_ends_before_it_grows_too_large_but_has_at_least_one_item(bench: Bench) -> None:
    for size in (600, 400, 1, 5_000, 2):
        bench.put(b"x" * size)
    intake = bench.intake("a")
    assert [[len(raw) for raw in raws(take(intake))] for _ in range(4)] == [[600, 400], [1], [5_000], [2]]


def test_items_of_any_bytes_come_as_they_were(bench: Bench) -> None:
    items = [b"", b"\0\xff\r\n", b" "]
    for raw in items:
        bench.put(raw)
    assert raws(take(bench.intake("a"))) == items


def test_waiting_ends_when_something_comes(bench: Bench) -> None:
    intake = bench.intake("a")
    timer = threading.Timer(0.05, bench.put, [b"late"])
    timer.start()
    assert raws(intake.take(10, 30)) == [b"late"]
    timer.join()


def test_waiting_sees_every_queue(bench: Bench) -> None:
    intake = bench.intake("a")
    timer = threading.Timer(0.02, bench.put, [b"late", "interlock.propose.shop"])
    timer.start()
    assert raws(intake.take(10, 30)) == [b"late"]
    timer.join()


def test_waiting_ends_with_its_time(bench: Bench) -> None:
    assert bench.intake("a").take(10, 0.02).items == ()


def test_what_a_dead_intake_had_taken_is_handed_out_again_one_by_one(bench: Bench) -> None:
    for number in range(3):
        bench.put(b"%d" % number)
    take(bench.intake("dead"))
    bench.put(b"new")
    intake = bench.intake("b")
    seen = [*intake.takeover(everybody), take(intake), *intake.takeover(everybody), take(intake)]
    assert [raws(batch) for batch in seen] == [[b"0"], [b"1"], [b"2"], [b"new"]]
    assert [batch.items[0].deliveries for batch in seen] == [2, 2, 2, 1]
    for batch in seen:
        intake.done(batch)
    assert (bench.kept(), intake.takeover(everybody)) == (0, [])


def test_the_living_keep_what_they_have(bench: Bench) -> None:
    bench.put(b"x")
    first = bench.intake("a")
    batch = take(first)
    second = bench.intake("b")
    assert second.takeover(nobody) == []
    assert first.takeover(everybody) == []
    first.done(batch)
    assert second.takeover(everybody) == []


def test_who_wakes_up_late_removes_nothing_of_others(bench: Bench) -> None:
    bench.put(b"1")
    sleeper = bench.intake("sleeper")
    old = take(sleeper)
    intake = bench.intake("b")
    [again] = intake.takeover(everybody)
    bench.put(b"2")
    new = take(sleeper)
    sleeper.done(old)
    assert bench.kept() == 2
    assert raws(again) == [b"1"]
    intake.done(again)
    assert (bench.kept(), raws(new)) == (1, [b"2"])


def test_the_item_that_ends_its_readers_is_found_and_the_others_are_not_blamed(bench: Bench) -> None:
    for raw in (b"good", b"poison", b"fine"):
        bench.put(raw)
    done: list[bytes] = []
    poisoned: list[bytes] = []
    for boot in "abcde":
        intake = bench.intake(boot)
        while True:
            batches = intake.takeover(lambda other, boot=boot: other < boot) or [take(intake)]  # type: ignore[misc]  # a default in a lambda has no annotation
            if not batches[0].items:
                break
            poisoned += [item.raw for item in batches[0].items if item.is_poison]
            if b"poison" in raws(batches[0]) and not poisoned:
                break  # its process ends here
            done += raws(batches[0])
            intake.done(batches[0])
    assert poisoned == [b"poison"]
    assert sorted(done) == [b"fine", b"good", b"poison"]
    assert (bench.waiting(), bench.kept()) == (0, 0)


def test_what_was_taken_over_survives_the_one_who_took_it_over(bench: Bench) -> None:
    for number in range(3):
        bench.put(b"%d" % number)
    take(bench.intake("a"))
    bench.intake("b").takeover(everybody)
    intake = bench.intake("c")
    seen = []
    while batches := intake.takeover(everybody):
        seen += [(item.raw, item.deliveries) for item in batches[0].items]
        intake.done(batches[0])
    assert sorted(seen) == [(b"0", 3), (b"1", 2), (b"2", 2)]


def test_what_is_given_back_was_never_handed_out(bench: Bench) -> None:
    bench.put(b"x")
    intake = bench.intake("a")
    for _ in range(5):
        batch = take(intake)
        assert (raws(batch), batch.items[0].deliveries) == ([b"x"], 1)
        intake.give_back(batch)
    assert bench.kept() == 1


def test_an_intake_takes_over_its_own_queues_only(bench: Bench) -> None:
    bench.put(b"proposal")
    take(bench.intake("dead"))
    assert bench.intake("dead", (DECIDE,)).take(1, 0).items == ()
    council = bench.intake("b", (DECIDE,))
    assert council.takeover(everybody) == []
    assert take(council).items == ()
    [batch] = bench.intake("b").takeover(everybody)
    assert raws(batch) == [b"proposal"]


def test_two_intakes_of_one_boot_do_not_mix(bench: Bench) -> None:
    bench.put(b"proposal")
    bench.put(b"vote", DECIDE)
    governor, council = bench.intake("a"), bench.intake("a", (DECIDE,))
    proposals, votes = take(governor), take(council)
    assert (raws(proposals), raws(votes)) == ([b"proposal"], [b"vote"])
    council.done(votes)
    assert bench.kept() == 1
    governor.done(proposals)
    assert bench.kept() == 0


def test_answers_reach_their_list_in_order(bench: Bench) -> None:
    intake = bench.intake("a")
    answers = [Answer(invocation_id=str(number), status="accepted", phase="queued") for number in range(3)]
    intake.answer([Reply(answer, reply_to="interlock.reply.r") for answer in answers])
    assert bench.replies("interlock.reply.r") == answers
    intake.answer([])
    intake.answer([Reply(answers[0])])


def test_a_batch_is_answered_and_removed_at_once(bench: Bench) -> None:
    bench.put(b"x")
    intake = bench.intake("a")
    answer = Answer(status="refused", code="JSON_SYNTAX", sentence="no")
    intake.done(take(intake), [Reply(answer, "interlock.reply.r", "task-1")])
    assert bench.replies("interlock.reply.r") == [answer]
    assert bench.kept() == 0


def test_the_brokers_time_comes_with_the_batch(bench: Bench) -> None:
    intake = bench.intake("a")
    now_us = SystemClock().now_us()
    assert abs(intake.now_us() - now_us) < 60 * SECOND_US
    assert abs(take(intake).at_us - now_us) < 60 * SECOND_US

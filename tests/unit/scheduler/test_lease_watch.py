"""When a boot is dead: by its lock at once, else by its counter, and never because the store was away."""

from __future__ import annotations

from governance.ledger import Boot
from scheduler.lease_watch import FORGOTTEN_NS, LeaseWatch

SECOND_NS = 1_000_000_000
LEASE_MS, BEAT_MS = 3_000, 500


def boot(counter: int = 1) -> Boot:
    return Boot("b-1", "pool.fs", "host", 1, counter, 0, False)


def looked(watch: LeaseWatch, counter: int, at_s: float) -> set[str]:
    """One look, and the proof that it asks for."""
    dead = watch.look([boot(counter)], round(at_s * SECOND_NS))
    if watch.suspects:
        watch.prove(round(at_s * SECOND_NS))
    return dead


def test_a_free_lock_ends_a_lease_at_once() -> None:
    watch = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: True)
    assert watch.look([boot()], 0) == {"b-1"}


def test_a_counter_that_moves_is_alive_whatever_the_clock_says() -> None:
    watch = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: None)
    assert not any(looked(watch, counter, counter * 3_600) for counter in range(50))


def test_a_counter_that_stands_still_ends_the_lease_on_another_host_and_on_this_one() -> None:
    for probe in (lambda _: None, lambda _: False):
        watch = LeaseWatch(LEASE_MS, BEAT_MS, probe)
        dead = [looked(watch, 1, second) for second in range(7)]
        assert dead == [
            set(),
            set(),
            set(),
            set(),
            set(),
            {"b-1"},
            {"b-1"},
        ]


def test_a_long_gap_between_two_looks_is_no_lease() -> None:
    watch = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: None)
    assert [looked(watch, 1, at) for at in (0, 1_000, 2_000)] == [set()] * 3


def test_without_a_write_that_got_through_nobody_is_dead() -> None:
    watch = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: None)
    assert not any(watch.look([boot()], second * SECOND_NS) for second in range(60))
    assert watch.suspects
    assert looked(watch, 2, 61) == set()
    assert not watch.suspects


def test_a_store_that_stops_taking_writes_again_makes_silence_worth_nothing() -> None:
    watch = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: None)
    assert [looked(watch, 1, second) for second in range(5)] == [set()] * 5
    watch.disprove()
    assert [looked(watch, 1, second) for second in (5, 6, 7)] == [set(), set(), {"b-1"}]


def test_a_failed_reading_starts_the_watch_anew() -> None:
    watch = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: None)
    for second in range(5):
        looked(watch, 1, second)
    watch.start_anew()
    assert [looked(watch, 1, second) for second in (5, 6)] == [set(), set()]


def test_a_boot_of_another_host_is_over_after_an_hour_of_silence_and_anew_when_it_beats() -> None:
    watch, hour = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: None), FORGOTTEN_NS // SECOND_NS
    over_at = next(second for second in range(2 * hour) if looked(watch, 1, second) and watch.is_over(boot()))
    assert hour <= over_at <= hour + 5
    assert looked(watch, 2, over_at + 1) == set()
    assert not watch.is_over(boot(2))


def test_a_boot_whose_lock_is_held_is_never_over_and_one_whose_lock_is_free_is_at_once() -> None:
    held = LeaseWatch(LEASE_MS, BEAT_MS, lambda _: False)
    assert not any(
        looked(held, 1, second) and held.is_over(boot()) for second in range(2 * FORGOTTEN_NS // SECOND_NS)
    )
    assert LeaseWatch(LEASE_MS, BEAT_MS, lambda _: True).is_over(boot())

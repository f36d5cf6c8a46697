"""What every waker and every notice does."""

from __future__ import annotations

import threading

from interlock.hint import Waker
from interlock.stream import ProjectionNotice


def test_a_wake_up_before_the_wait_is_kept_and_used_once(waker: Waker) -> None:
    waker.wake("relay")
    waker.wake("relay")
    assert waker.wait("relay", 1)
    assert not waker.wait("relay", 0.01)


def test_roles_are_woken_apart(waker: Waker) -> None:
    waker.wake("governor")
    assert not waker.wait("relay", 0.01)
    assert waker.wait("governor", 1)


def test_who_waits_is_woken(waker: Waker) -> None:
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(waker.wait("relay", 20)))
    waiting.start()
    waker.wake("relay")
    waiting.join(10)
    assert woken == [True]


def test_a_notice_tells_how_far_the_projection_is(notice: ProjectionNotice) -> None:
    assert notice.projected() == 0
    notice.announce(7)
    assert notice.projected() == 7
    assert notice.wait(7, 1)
    assert not notice.wait(8, 0.01)


def test_who_waits_for_a_number_is_told_when_it_is_reached(notice: ProjectionNotice) -> None:
    told: list[bool] = []
    waiting = threading.Thread(target=lambda: told.append(notice.wait(3, 20)))
    waiting.start()
    for seq in (1, 2, 3):
        notice.announce(seq)
    waiting.join(10)
    assert told == [True]

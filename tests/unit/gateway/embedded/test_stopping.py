"""The stop of a role: set once, seen by every thread that waits, settable from a signal's code."""

from __future__ import annotations

import os
import select
import signal
import threading

from gateway.embedded.member import stopping_line
from gateway.embedded.role import Stopping


def test_a_wait_without_a_stop_ends_at_its_limit() -> None:
    assert Stopping().wait(0.01) is False


def test_every_waiting_thread_sees_the_stop() -> None:
    stopping = Stopping()
    seen: list[bool] = []
    threads = [threading.Thread(target=lambda: seen.append(stopping.wait(10))) for _ in range(3)]
    for thread in threads:
        thread.start()

    stopping.set()
    stopping.set()
    for thread in threads:
        thread.join(10)

    assert seen == [True, True, True]
    assert stopping.is_set()
    assert select.select([stopping], [], [], 0)[0] == [stopping]


def test_a_signal_sets_it_while_the_main_thread_waits() -> None:
    stopping = Stopping()
    before = signal.getsignal(signal.SIGUSR2)
    stopping.listen(signal.SIGUSR2)
    killer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR2))
    try:
        killer.start()
        assert stopping.wait(10) is True
    finally:
        killer.join()
        signal.signal(signal.SIGUSR2, before)


def test_what_a_stop_waits_for_is_told() -> None:
    assert stopping_line(0) == "stopping"
    assert stopping_line(2) == "stopping: waiting for 2 running"

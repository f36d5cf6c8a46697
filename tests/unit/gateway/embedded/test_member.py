"""When a role that died is started again."""

from __future__ import annotations

from gateway.embedded.member import BACKOFF_SECONDS_MAX, STEADY_SECONDS, Member, backoff_seconds
from gateway.embedded.role import Role


def test_the_first_restart_is_at_once_and_later_ones_wait_longer_up_to_a_cap() -> None:
    waits = [backoff_seconds(failures) for failures in range(1, 12)]

    assert waits[:4] == [0.0, 0.1, 0.2, 0.4]
    assert waits == sorted(waits)
    assert backoff_seconds(10_000) == BACKOFF_SECONDS_MAX


def test_a_role_that_lived_long_earns_an_immediate_restart_again() -> None:
    member = Member(Role("pool", lambda _context: 0))
    for began in (0.0, 1.0, 2.0):
        member.note_start(1, 5, began)
        member.note_end(-9, began + 0.5, again=True)
    assert member.start_at == 2.5 + 0.2

    member.note_start(1, 5, 3.0)
    member.note_end(-9, 3.0 + STEADY_SECONDS, again=True)

    assert member.start_at == 3.0 + STEADY_SECONDS
    assert member.restarts == 4


def test_a_role_that_is_to_stay_away_is_not_due() -> None:
    member = Member(Role("pool", lambda _context: 0))
    member.note_start(1, 5, 0.0)

    member.note_end(0, 1.0, again=False)

    assert (member.start_at, member.pid, member.last_exit, member.restarts) == (None, None, 0, 0)

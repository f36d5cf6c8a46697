"""Case EVT-01 under load: the stream loses, doubles and forgets entries while two of each role follow it."""

from __future__ import annotations

import contextlib
import random
from contextlib import closing
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from interlock.adapters.redis_client import connect
from interlock.stream import STREAM
from tests.support.calling import Traffic
from tests.support.crashing import hurt_system, settle
from tests.support.idle import baseline, grown
from tests.support.wait import until

ROUNDS = 12
LAST = 40


def test_entries_that_are_missing_doubled_or_foreign_change_nothing(rng: random.Random) -> None:
    with (
        hurt_system(rng) as (system, traffic),
        closing(connect(system.directory.broker_client_url)) as client,
    ):
        for number in range(ROUNDS):
            more_calls(traffic, 5)
            disturb(client, rng)
            if number % 4 == 3:
                client.delete(STREAM)
        assert settle(system, traffic) == []
        assert system.faulted_pids() == set()


def more_calls(traffic: Traffic, count: int) -> None:
    before = len(traffic.calls)
    until(lambda: len(traffic.calls) >= before + count, 30, f"{count} further calls")


def disturb(client: Redis, rng: random.Random) -> None:
    """Take some of the last entries away, and bring some once more, late, behind those that came later."""
    found: Any = client.xrevrange(STREAM, count=LAST)
    for identifier, _ in found[1:]:
        if rng.random() < 0.3:
            client.xdel(STREAM, identifier)
    if found and rng.random() < 0.5:
        last = found[0][0].decode().partition("-")[0]
        with contextlib.suppress(ResponseError):  # the relay was faster
            client.xadd(STREAM, rng.choice(found)[1], id=f"{last}-1")


def test_what_a_hurt_system_holds_when_it_is_quiet_is_what_it_held_before(rng: random.Random) -> None:
    with hurt_system(rng) as (system, traffic):
        before = baseline(system)
        for name in sorted(system.roles()):
            if name != "broker":
                system.wait_restarted(name, system.kill_role(name))
        system.wait_restarted("broker", system.kill_role("broker"))
        assert settle(system, traffic) == []
        assert grown(system, before) == []

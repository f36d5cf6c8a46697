"""How much a run of the benchmarks does, and on what. Numbers and names only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from interlock.proposal import PROPOSE_QUEUE, client_queue

N_DEFAULT = 10_000
"""Invocations a measurement."""
N_MIN = 20
SESSIONS = 200
"""Over so many sessions a measurement spreads its invocations, each in a stage of its own."""
SQLITE, POSTGRESQL, BOTH = "sqlite", "postgresql", "both"
TENANTS = 200
"""Over so many clients, each of a tenant of its own, a measurement spreads its invocations."""


class Lane(NamedTuple):
    """One client's way in."""

    client: str
    queue: str


def lanes(tenants: int) -> tuple[Lane, ...]:
    """As many ways in: one is everybody's queue, whose client is `local`; several are a client's own each."""
    if tenants == 1:
        return (Lane("local", PROPOSE_QUEUE),)
    clients = [f"bench-{number:03}" for number in range(tenants)]
    return tuple(Lane(client, client_queue(client)) for client in clients)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Every measurement is made `rounds` times; all sides take turns."""

    n: int = N_DEFAULT
    rounds: int = 3
    producers: int = 1
    """As many on each side."""
    stores: tuple[str, ...] = (SQLITE,)
    peers: bool = False
    tenants: int = TENANTS
    idle_submits: int = 200
    idle_watch_seconds: float = 5.0
    sandbox_runs: int = 30
    fsyncs: int = 200

    @classmethod
    def of(
        cls,
        n: int | None = None,
        rounds: int | None = None,
        *,
        producers: int | None = None,
        stores: tuple[str, ...] = (SQLITE,),
        peers: bool = False,
    ) -> Plan:
        """The usual plan with other numbers; a small one is small in everything. Raises ValueError."""
        wanted = N_DEFAULT if n is None else n
        times = 3 if rounds is None else rounds
        crowd = 1 if producers is None else producers
        if wanted < N_MIN or times < 1 or not 1 <= crowd <= wanted:
            raise ValueError(f"--n is at least {N_MIN}, --rounds and --producers at least 1")
        if wanted >= 1_000:
            return cls(wanted, times, crowd, stores, peers)
        return cls(wanted, times, crowd, stores, peers, min(TENANTS, wanted), min(50, wanted), 1.0, 5, 50)


def stores_of(wanted: str | None, *, has_postgres: bool) -> tuple[str, ...]:
    """Which stores to measure: both where nothing was said and there is a server. Raises ValueError."""
    known = {SQLITE: (SQLITE,), POSTGRESQL: (POSTGRESQL,), BOTH: (SQLITE, POSTGRESQL)}
    if wanted is None:
        return known[BOTH if has_postgres else SQLITE]
    if wanted not in known:
        raise ValueError(f"--store is one of {', '.join(known)}")
    if wanted != SQLITE and not has_postgres:
        raise ValueError(f"--store {wanted}: there is no PostgreSQL server to start")
    return known[wanted]

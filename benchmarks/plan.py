"""How much a run of the benchmarks does. Numbers only."""

from __future__ import annotations

from dataclasses import dataclass

N_DEFAULT = 3_000
"""Invocations a measurement: as many as keep the whole run within three minutes on two cores."""
N_MIN = 20
SESSIONS = 200
"""Over so many sessions a measurement spreads its invocations, each in a stage of its own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Every measurement is made `rounds` times; both sides take turns."""

    n: int = N_DEFAULT
    rounds: int = 3
    idle_submits: int = 200
    idle_watch_seconds: float = 5.0
    sandbox_runs: int = 30
    fsyncs: int = 200

    @classmethod
    def of(cls, n: int | None, rounds: int | None) -> Plan:
        """The usual plan with other numbers; a small one is small in everything. Raises ValueError."""
        if n is None:
            n = N_DEFAULT
        if n < N_MIN or (rounds is not None and rounds < 1):
            raise ValueError(f"--n is at least {N_MIN}, --rounds at least 1")
        given = 3 if rounds is None else rounds
        if n >= N_DEFAULT:
            return cls(n, given)
        return cls(n, given, min(200, n), 2.0, 10, 50)

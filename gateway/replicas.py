"""How many processes of each role a start makes: `INTERLOCK_REPLICAS`, read once by a composition root."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from interlock.errors import OursToFixError

REPLICATED = ("governor", "scheduler", "projector", "pool-pure", "pool-fs", "pool-shell", "pool-network")
REPLICAS_MAX = 16
NAME = "INTERLOCK_REPLICAS"


def replicas_from(environment: Mapping[str, str]) -> Mapping[str, int]:
    """Role → how many, one where nothing is said: `governor=2,pool-fs=3`.

    Raises OursToFixError(CONFIG_INVALID) for what is no role, no number from 1 to 16, or said twice.
    """
    said: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in environment.get(NAME, "").split(","))):
        role, equals, count = (part.strip() for part in item.partition("="))
        if role not in REPLICATED:
            raise _invalid(f"{item!r} names no role of {', '.join(REPLICATED)}")
        if not (equals and count.isascii() and count.isdecimal() and 1 <= int(count) <= REPLICAS_MAX):
            raise _invalid(f"{item!r} is no ROLE=NUMBER with a number from 1 to {REPLICAS_MAX}")
        if role in said:
            raise _invalid(f"{role} is said twice")
        said[role] = int(count)
    return {role: said.get(role, 1) for role in REPLICATED}


def replica_names(role: str, count: int) -> Iterator[str]:
    """`governor`, `governor-2`, …"""
    yield role
    yield from (f"{role}-{number}" for number in range(2, count + 1))


def _invalid(why: str) -> OursToFixError:
    return OursToFixError("CONFIG_INVALID", f"{NAME}: {why}")

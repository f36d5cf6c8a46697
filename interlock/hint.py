"""Hints: ids on a pool's queue that say "something may be claimed". Losing or doubling one harms nothing.

A hint never carries arguments, rights or results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

RUN_TASK = "interlock.run"


class Hint(NamedTuple):
    """One message for one pool: more than one id only for pure tools."""

    pool: str
    invocation_ids: tuple[str, ...]


class HintPublisher(Protocol):
    """Puts hints on the pools' queues."""

    def publish(self, hints: Sequence[Hint]) -> None:
        """Publish all, in order; after a BrokerUnavailableError some may have gone out (harmless)."""
        ...


class Waker(Protocol):
    """Tells a role that there is something to look at; a lost wake-up costs one polling interval."""

    def wake(self, role: str) -> None:
        """Wake one role (`relay`, `governor`, `scheduler`)."""
        ...

    def wait(self, role: str, seconds: float) -> bool:
        """Wait to be woken; False when the time ran out."""
        ...

"""Trying a transaction again at once, where the store says that it lost to another which is done by now.

A deadlock or a serialisation rolled everything back, so nothing is done twice. Anything else is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from interlock.errors import LedgerUnavailableError

TRIES_MAX = 4

Made = TypeVar("Made")


def again_at_once(transaction: Callable[[], Made], *, tries: int = TRIES_MAX) -> Made:
    """What the transaction returns; raises what it raised last."""
    for _ in range(tries - 1):
        try:
            return transaction()
        except LedgerUnavailableError as error:
            if not error.data.get("at_once"):
                raise
    return transaction()

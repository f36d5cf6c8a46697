"""What every ledger asks of an append, whatever store it lies in. Pure.

Never judges whether an event is a legal move: that is the business of whoever appends it.
"""

from __future__ import annotations

from collections.abc import Sequence

from governance.ledger import Append
from interlock.event import Stream

ANY_VERSION = -1
"""`expected` of evidence: appended at whatever version the stream has."""

KEY_LIFE_US = 30 * 24 * 3_600 * 1_000_000
"""How long an idempotency key is remembered after its invocation became final."""


def require_appends(appends: Sequence[Append]) -> None:
    """Raises ValueError where a stream is named twice, or an append holds no event."""
    seen: set[Stream] = set()
    for append in appends:
        if append.stream in seen:
            raise ValueError(f"two appends for {append.stream} in one call")
        if not append.events:
            raise ValueError(f"an append without events for {append.stream}")
        seen.add(append.stream)


def key_is_live(phase: str | None, at_us: int | None, now_us: int) -> bool:
    """Whether a key is still bound, by its invocation's head: not final, or final for less than its life.

    Without a head the invocation is about to be appended in the same transaction.
    """
    return phase != "done" or at_us is None or now_us - at_us < KEY_LIFE_US

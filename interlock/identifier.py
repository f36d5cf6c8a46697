"""Makes and reads the ids of this product: UUIDs of version 7 in lower-case text, which carry their time.

It never judges whether an id's time is acceptable; that needs a clock.
"""

from __future__ import annotations

import re

import uuid_utils

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def new_id() -> str:
    """A new UUIDv7; within one process each is greater than the one before. Safe across forks."""
    return str(uuid_utils.uuid7())


def is_uuid7(text: str) -> bool:
    """Whether this is a UUID of version 7 in its one canonical form: lower case, with hyphens."""
    return _UUID7.fullmatch(text) is not None


def id_time_us(text: str) -> int | None:
    """Microseconds since the epoch that the id carries (in steps of 1,000), or None for any other text."""
    if not is_uuid7(text):
        return None
    return int(text[:8] + text[9:13], 16) * 1000

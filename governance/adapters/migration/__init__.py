"""Brings a ledger that an older version of this program made to the format this one knows.

A ledger's format is the number in its table `meta`, and nothing else says it. Opening a ledger compares that
number only; what it takes to move it is imported by whoever calls `upgrade`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

Location = Path | str
"""A file for SQLite, `postgresql://…` for a database."""


class FormatReport(NamedTuple):
    """Which format a ledger has, and which one this program would give it."""

    found: int
    """0 where there is no ledger yet."""
    min_reader: int
    """The oldest program that may use it, by the format that one knows."""
    newest: int
    applied: tuple[str, ...] = ()
    """The formats that were just reached, oldest first."""

    @property
    def is_current(self) -> bool:
        return self.found >= self.newest


def migrate(location: Location, *, check: bool = False) -> FormatReport:
    """Upgrade, or with `check` only look; the report is of the ledger as it is then.

    Raises what `current` and `upgrade` raise.
    """
    applied = () if check else tuple(upgrade(location))
    return current(location)._replace(applied=applied)


def current(location: Location) -> FormatReport:
    """The format of this ledger; writes nothing.

    Raises NotFoundError without a file, LedgerUnavailableError where it cannot be reached,
    OursToFixError(LEDGER_FORMAT) for one that only later programs may use.
    """
    from governance.adapters.migration.store import store_of

    with store_of(location) as store:
        return store.report()


def upgrade(location: Location, *, until: int | None = None, beside: Sequence[Path] = ()) -> list[str]:
    """Take every step from the format found to the newest, or to `until`; the formats reached, in order.

    An empty database or file gets a new ledger. A step is whole or not there, or can be taken again: one
    that was cut short is continued by the next call. One caller works at a time, others wait. `beside` names
    folders with further steps.

    Raises what `current` raises, and OursToFixError(CONFIG_INVALID) for an account that may not.
    """
    from governance.adapters.migration.chain import take_steps
    from governance.adapters.migration.store import store_of

    with store_of(location, write=True) as store:
        return take_steps(store, until, beside)

"""What an installation begins with is recorded once; every later start only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from governance.installation import install
from governance.keys import KeyPurpose
from governance.memory_ledger import InMemoryLedger, InMemoryTransaction
from interlock.clock import SystemClock

PUBLIC = dict.fromkeys(KeyPurpose, "00" * 32)
KIDS = dict.fromkeys(KeyPurpose, "00" * 8)


class _GuardedLedger(InMemoryLedger):
    """A ledger as a role has it that may or may not write what an installation begins with."""

    may_write = True

    @contextmanager
    def write(self, keys: Iterable[str] = (), *, control: bool = False) -> Iterator[InMemoryTransaction]:
        if not self.may_write:
            raise PermissionError(sorted(keys))
        with super().write(keys, control=control) as transaction:
            yield transaction


@pytest.fixture
def ledger() -> _GuardedLedger:
    return _GuardedLedger(SystemClock())


def test_a_role_that_may_not_write_starts_on_what_is_installed(ledger: _GuardedLedger) -> None:
    install(ledger, PUBLIC, KIDS)
    with ledger.read() as view:
        last = view.last_seq()
    ledger.may_write = False
    install(ledger, PUBLIC, KIDS)
    with ledger.read() as view:
        assert view.last_seq() == last > 0


def test_a_role_that_may_not_write_cannot_be_the_first(ledger: _GuardedLedger) -> None:
    ledger.may_write = False
    with pytest.raises(PermissionError):
        install(ledger, PUBLIC, KIDS)

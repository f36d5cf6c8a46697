"""The queues that registered clients have of their own: which there are now, read from the ledger.

Whoever may write to one is the broker's business, by an access rule. Takes nothing from them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from governance.ledger import Ledger
from governance.principal import principal_of_head
from interlock.event import StreamKind
from interlock.proposal import client_queue

CLIENTS_MAX = 10_000
LOOK_SECONDS = 0.5
"""How old what is known may be."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""Whose name is none of these has no queue: it could be taken for another's list."""


@dataclass(slots=True)
class ClientQueues:
    """One thread's knowledge of who is registered; called, it names the queues."""

    ledger: Ledger
    look_seconds: float = LOOK_SECONDS
    monotonic: Callable[[], float] = time.monotonic
    _look_at: float = 0.0
    _epoch: int = -1
    _queues: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, ...]:
        """The same tuple as long as nothing changed. Raises LedgerUnavailableError."""
        if self.monotonic() >= self._look_at:
            self._look()
            self._look_at = self.monotonic() + self.look_seconds
        return self._queues

    def _look(self) -> None:
        with self.ledger.read() as view:
            # Who is registered never changes without the control epoch.
            epoch = view.epoch()
            if epoch == self._epoch:
                return
            heads = view.heads_of(StreamKind.PRINCIPAL.value, limit=CLIENTS_MAX)
        names = [head.id for head in heads if principal_of_head(head).role == "client"]
        queues = tuple(client_queue(name) for name in names if _NAME.fullmatch(name))
        self._epoch = epoch
        if queues != self._queues:
            self._queues = queues

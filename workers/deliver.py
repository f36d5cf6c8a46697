"""Brings outcomes into the ledger: spooled where a run cannot be repeated, then written until they stand.

While one waits for the ledger this process claims nothing. Never runs anything again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol, TypeVar

from governance.execution import Execution, Reported
from interlock.canonical import Json, JsonObject, canonical
from interlock.errors import InterlockError
from interlock.fault import FaultPoints
from workers.report_form import report_to_json
from workers.spool import Block, Spool

Written = TypeVar("Written")
_LOG = logging.getLogger("interlock.report")


class Insist(Protocol):
    """Writes again until it is written or there is no time left."""

    def __call__(self, write: Callable[[], Written]) -> Written:
        """What the write returns; raises its last error."""
        ...


@dataclass(slots=True, eq=False)
class _OnItsWay:
    """Reports that are not in the ledger yet, and the block that holds them."""

    reports: Sequence[Reported]
    block: Block | None
    is_late: bool = False
    """The ledger did not take it at once."""
    is_left: bool = False
    """Nobody but `mend` tries any more."""


class Delivery:
    """The way of one pool process's outcomes into the ledger. Safe for threads."""

    def __init__(
        self, execution: Execution, spool: Spool | None, insist: Insist, faults: FaultPoints
    ) -> None:
        self._execution = execution
        self._spool = spool
        self._insist = insist
        self._faults = faults
        self._incarnation = execution.ledger.info.incarnation
        self._waiting: list[_OnItsWay] = []
        self._lock = Lock()

    @property
    def is_blocked(self) -> bool:
        """Whether an outcome waits for the ledger, so that nothing may be claimed."""
        with self._lock:
            return any(item.is_late or item.is_left for item in self._waiting)

    def deliver(self, reports: Sequence[Reported], *, is_spooled: bool) -> None:
        """Bring these in; what cannot be written as long as this process lives stays in the spool."""
        block = self._spool.take() if is_spooled and self._spool is not None else None
        item = _OnItsWay(reports, block)
        with self._lock:
            self._waiting.append(item)
        try:
            self._keep(item)
            self._insist(lambda: self._write(item))
        except Exception:  # noqa: BLE001 - whatever went wrong, the outcome is still true
            _LOG.exception("an outcome is kept for later")
            item.is_left = True

    def mend(self) -> None:
        """Try once more to bring in what nobody tries any more; raises what the ledger raises."""
        with self._lock:
            left = [item for item in self._waiting if item.is_left]
        for item in left:
            self._write(item)

    def _keep(self, item: _OnItsWay) -> None:
        self._faults.reach("report.before_spool")
        if item.block is not None:
            try:
                item.block.write(self._record(item))
            except OSError:
                _LOG.exception("an outcome could not be spooled; it is held in memory")
        self._faults.reach("report.after_spool")

    def _record(self, item: _OnItsWay) -> bytes:
        reports: list[Json] = [report_to_json(one) for one in item.reports]
        record: JsonObject = {"incarnation": self._incarnation, "reports": reports}
        return canonical(record)

    def _write(self, item: _OnItsWay) -> None:
        try:
            self._execution.report(item.reports)
        except InterlockError:
            item.is_late = True
            raise
        with self._lock:
            self._waiting.remove(item)
        if item.block is not None and self._spool is not None:
            self._spool.give_back(item.block)

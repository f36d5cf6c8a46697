"""Brings in what dead processes left: their spools, and outcomes of supervisors whose pool was gone.

Everything is reported under the claim it belongs to, so doing it twice, or late, changes nothing. Never runs
anything again, and touches nothing of a boot that lives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from governance.execution import Execution, Reported, Work
from interlock.canonical import JsonObject, read_stored
from interlock.errors import InterlockError, NotJsonError
from interlock.receipt import SandboxReport
from workers.claim import Contracts, Prepared
from workers.report import Reporting
from workers.report_form import report_from_json
from workers.spool import ORPHANS, forget_folders, set_aside, spooled
from workers.supervisor.port import Outcome
from workers.supervisor.report import read_orphan

_LOG = logging.getLogger("interlock.recover")


@dataclass(frozen=True, slots=True)
class Recovery:
    """Reports for the dead of one data directory."""

    execution: Execution
    reporting: Reporting
    contracts: Contracts
    spool: Path
    is_alive: Callable[[str], bool]
    """Whether a boot lives."""

    def run(self) -> int:
        """Bring in everything there is; how many files that were. Raises what the ledger raises."""
        count = 0
        for path, record in spooled(self.spool, self.is_alive):
            self._guarded(path, partial(self._bring_record, path, record))
            count += 1
        forget_folders(self.spool, self.is_alive)
        for path in sorted((self.spool / ORPHANS).glob("*.json")):
            self._guarded(path, partial(self._bring_orphan, path))
            count += 1
        return count

    def _guarded(self, path: Path, bring: Callable[[], None]) -> None:
        try:
            bring()
        except InterlockError:
            raise
        except Exception:  # noqa: BLE001 - one file that cannot be told must not stop every pool of the directory
            _LOG.exception("an outcome was set aside as %s", set_aside(path, self.spool))

    def _bring_record(self, path: Path, record: bytes) -> None:
        reports = self._reports_in(record)
        if reports is None:
            _LOG.error("an outcome of another ledger was set aside as %s", set_aside(path, self.spool))
            return
        self.execution.faults.reach("recover.before_report")
        fates = self.execution.report(reports)
        self.execution.faults.reach("recover.after_report")
        _LOG.warning("brought in outcomes of a dead process: %s", fates)
        path.unlink(missing_ok=True)

    def _reports_in(self, record: bytes) -> list[Reported] | None:
        """The reports of a record, None where it belongs to another ledger or cannot be read."""
        try:
            value = read_stored(record)
            assert isinstance(value, dict)
            if value["incarnation"] != self.execution.ledger.info.incarnation:
                return None
            return [report_from_json(one) for one in _objects(value["reports"])]
        except (NotJsonError, ValidationError, KeyError):
            return None

    def _bring_orphan(self, path: Path) -> None:
        try:
            names, outcome = read_orphan(path)
        except FileNotFoundError:
            return  # another process brought it in
        except (ValueError, KeyError):
            _LOG.error("an outcome that cannot be read was set aside as %s", set_aside(path, self.spool))
            return
        prepared = self._prepared(names["invocation_id"], names["claim"])
        if prepared is None:
            _LOG.error("an outcome without its invocation was set aside as %s", set_aside(path, self.spool))
            return
        self._report_orphan(prepared, outcome)
        path.unlink(missing_ok=True)

    def _report_orphan(self, prepared: Prepared, outcome: Outcome) -> None:
        fates = self.execution.report(self.reporting.reports([(prepared, outcome)]))
        _LOG.warning("brought in an outcome whose pool had died: %s", fates)

    def _prepared(self, invocation_id: str, nonce: str) -> Prepared | None:
        work = self.execution.load([invocation_id]).get(invocation_id)
        if not isinstance(work, Work) or work.permit is None:
            return None
        contract = self.contracts.pinned(work.action.contract_digest)
        if contract is None:
            return None
        # The head counts the attempt that stands; a prepared one is about to begin the next.
        before = replace(work, head=work.head._replace(attempt=max(0, work.head.attempt - 1)))
        return Prepared(before, contract, work.permit, nonce, SandboxReport())


def _objects(value: object) -> Iterator[JsonObject]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item

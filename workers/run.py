"""Runs what was claimed: the closed list in this process, everything else behind the supervisor.

Looks whether it is still wanted before each item and while one runs. Never retries an effect, never claims.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from governance.execution import Execution
from interlock.canonical import thaw
from interlock.clock import boottime_ns
from interlock.contract import Executor, Tool
from interlock.errors import LedgerUnavailableError
from interlock.fault import FaultPoints
from interlock.receipt import SandboxReport
from interlock.tier import ToolCapability
from interlock.workspace import workspace_name
from workers.claim import Prepared
from workers.supervisor.port import Call, Failed, NotStarted, Outcome, Supervisor
from workers.tools.mock import run_mock
from workers.tools.pure import PURE_TOOLS, run_pure
from workers.tools.table import SUPERVISED_TOOLS

FRESH_NS = 10_000_000
"""How old a look at the claims may be when an item of an envelope begins. Pure tools take microseconds: a
look each would cost more than all of them, and no look is younger than its own way from the store."""

POOL_STOPPING = "POOL_STOPPING"

# To name a member of an enumeration is a call, and these are named for every item.
_MOCK, _BUILTIN = Executor.MOCK, Executor.BUILTIN

_LOG = logging.getLogger("interlock.run")


@dataclass(frozen=True, slots=True)
class BuiltinToolset:
    """The tools that ship with this version, at exactly its contracts, and the mock for what has no code."""

    digests: Mapping[str, str]
    """Qualified name → digest of the contract that ships here."""
    sandbox_report: SandboxReport

    def has(self, contract: Tool, contract_digest: str) -> bool:
        """Whether the tool is here in exactly this version."""
        if contract.executor is _MOCK:
            return True  # it runs in this process and needs nothing of what its contract names
        known = contract.name in PURE_TOOLS or contract.name in SUPERVISED_TOOLS
        return (
            contract.executor is _BUILTIN
            and known
            and self.digests.get(contract.qualified_name) == contract_digest
        )

    def sandbox(self, contract: Tool) -> SandboxReport:
        """How an execution of it is held."""
        return SandboxReport() if runs_here(contract) else self.sandbox_report


def is_computed(lot: Sequence[Prepared]) -> bool:
    """Whether nothing of this lot has an effect, so that it may run before it is claimed."""
    return all(item.is_batchable and runs_here(item.contract) for item in lot)


def runs_here(contract: Tool) -> bool:
    """Whether it runs in the pool process: the mock, and built-ins on the closed list."""
    return contract.executor is _MOCK or (contract.executor is _BUILTIN and contract.name in PURE_TOOLS)


class Watching:
    """Whether claims still stand and are still wanted. One for one lot; used by one thread."""

    def __init__(
        self,
        execution: Execution,
        lot: Sequence[Prepared],
        is_stopping: Callable[[], bool],
        boottime: Callable[[], int] = boottime_ns,
        must_end: Callable[[], bool] = lambda: False,
        seen_ns: int | None = None,
    ) -> None:
        """`seen_ns`: when the lot was last seen to stand and to be wanted, None where nobody looked yet."""
        self._must_end = must_end
        self._execution = execution
        self._nonces = {item.invocation_id: item.nonce for item in lot}
        self._is_stopping = is_stopping
        self._boottime = boottime
        self._seen: Mapping[str, str] = {}
        self._seen_ns = -FRESH_NS if seen_ns is None else seen_ns

    def reason_to_end(self, invocation_id: str) -> str | None:
        """Why what runs must end; a ledger that is away is no reason, for the effect has begun."""
        try:
            reason = self._look().get(invocation_id)
        except LedgerUnavailableError:
            reason = None
        return reason or (POOL_STOPPING if self._must_end() else None)

    def may_begin(self, invocation_id: str, start_by_ns: int) -> bool:
        """Whether its effect may begin now: the claim was just seen to stand, and it is not too late."""
        try:
            stands = invocation_id not in self._look()
        except LedgerUnavailableError:
            return False
        return stands and self._boottime() < start_by_ns

    def reason_not_to_begin(self, invocation_id: str) -> str | None:
        """Like `reason_to_end`, before anything began: then a pool that stops is a reason too."""
        return POOL_STOPPING if self._is_stopping() else self.reason_to_end(invocation_id)

    def has_run(self, invocation_id: str) -> None:
        """This one needs no look any more; an envelope on a busy machine takes many."""
        self._nonces.pop(invocation_id, None)

    def _look(self) -> Mapping[str, str]:
        now_ns = self._boottime()
        if now_ns - self._seen_ns >= FRESH_NS:
            self._seen = self._execution.stop_reasons(self._nonces)
            self._seen_ns = now_ns
        return self._seen


class Running:
    """Executes claimed work for one pool process. Safe for threads."""

    def __init__(
        self,
        execution: Execution,
        supervisor: Supervisor | None,
        workspaces: Path,
        faults: FaultPoints,
        is_stopping: Callable[[], bool],
        boottime: Callable[[], int] = boottime_ns,
        must_end: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_stopping`: begin nothing any more; `must_end`: end what runs, there is no more time for it."""
        self._must_end = must_end
        self._boottime = boottime
        self._execution = execution
        self._supervisor = supervisor
        self._workspaces = workspaces
        self._faults = faults
        self._is_stopping = is_stopping

    def run(
        self, lot: Sequence[Prepared], start_by_ns: int, seen_ns: int | None = None
    ) -> list[tuple[Prepared, Outcome]]:
        """One outcome for each, in order. Whatever a tool does, nothing is raised.

        `seen_ns` is when their claims were made; what has an effect is looked at again all the same.
        """
        if not is_computed(lot):
            seen_ns = None
        watching = Watching(self._execution, lot, self._is_stopping, self._boottime, self._must_end, seen_ns)
        ran: list[tuple[Prepared, Outcome]] = []
        for item in lot:
            ran.append((item, self._guarded(item, watching, start_by_ns)))
            watching.has_run(item.invocation_id)
        return ran

    def compute(self, lot: Sequence[Prepared]) -> list[tuple[Prepared, Outcome]]:
        """The outcomes of these computations, which nobody has claimed yet; raises nothing.

        Nobody looks whether they are wanted: that is judged where they are recorded, and until then nothing
        has happened. A pool that stops leaves out the rest, and so is what cannot run.
        """
        ran: list[tuple[Prepared, Outcome]] = []
        for item in lot:
            if self._is_stopping():
                break
            outcome = self._computed(item)
            if not isinstance(outcome, NotStarted):
                ran.append((item, outcome))
        self._faults.reach("compute.after_run")
        return ran

    def _computed(self, item: Prepared) -> Outcome:
        try:
            return self._effected(item)
        except Exception as error:  # noqa: BLE001 - around a running tool: it is this one's outcome
            return _crashed(item, error)

    def _effected(self, item: Prepared) -> Outcome:
        self._faults.reach("run.before_effect")
        outcome = _answer(item)
        self._faults.reach("run.after_effect")
        return outcome

    def _guarded(self, item: Prepared, watching: Watching, start_by_ns: int) -> Outcome:
        try:
            if runs_here(item.contract):
                return self._here(item, watching, start_by_ns)
            return self._supervised(item, watching, start_by_ns)
        except Exception as error:  # noqa: BLE001 - around a running tool: its claim must end in an outcome
            return _crashed(item, error)

    def _here(self, item: Prepared, watching: Watching, start_by_ns: int) -> Outcome:
        reason = watching.reason_not_to_begin(item.invocation_id)
        if reason is not None:
            return NotStarted("CANCELLED_BEFORE_START", reason)
        if not watching.may_begin(item.invocation_id, start_by_ns):
            return NotStarted("CLAIM_NOT_HELD", "the claim did not stand just before the effect")
        return self._effected(item)

    def _supervised(self, item: Prepared, watching: Watching, start_by_ns: int) -> Outcome:
        if self._supervisor is None:
            return NotStarted("SANDBOX_UNAVAILABLE", "this pool has no supervisor")
        try:
            call = self._call(item, start_by_ns)
        except (OSError, LedgerUnavailableError) as error:
            return NotStarted("SANDBOX_SETUP_FAILED", f"the call could not be made: {error}")
        has_begun = False

        def should_stop() -> str | None:
            if has_begun:
                return watching.reason_to_end(item.invocation_id)
            return watching.reason_not_to_begin(item.invocation_id)

        def before_effect() -> bool:
            nonlocal has_begun
            has_begun = watching.may_begin(item.invocation_id, start_by_ns)
            if has_begun:
                self._faults.reach("run.before_effect")
            return has_begun

        outcome = self._supervisor.execute(call, should_stop, before_effect)
        self._faults.reach("run.after_effect")
        return outcome

    def _call(self, item: Prepared, start_by_ns: int) -> Call:
        # Where it runs is what was permitted, not what the head says.
        contract, action = item.contract, item.work.action
        return Call(
            invocation_id=item.invocation_id,
            tool=contract.name,
            arguments=item.work.arguments_copy(),
            session_id=action.session,
            workspace=self._workspace(contract, action.tenant, action.session),
            capabilities=frozenset(capability.value for capability in contract.capabilities),
            wall_limit_ms=self._wall_limit_ms(item),
            output_limit_bytes=contract.limits.output_bytes,
            start_by_boottime_ns=start_by_ns,
            claim=item.nonce,
        )

    def _wall_limit_ms(self, item: Prepared) -> int:
        """The contract's limit, or what is left until the deadline: while it runs the deadline is a limit."""
        deadline_us = item.work.head.deadline_us
        if not deadline_us:
            return item.contract.timeout_ms
        left_ms = (deadline_us - self._execution.store_now_us()) // 1_000
        return max(1, min(item.contract.timeout_ms, left_ms))

    def _workspace(self, contract: Tool, tenant: str, session: str) -> Path | None:
        if not {ToolCapability.FILE_READ, ToolCapability.FILE_WRITE} & set(contract.capabilities):
            return None
        return workspace_of(self._workspaces, tenant, session)


def workspace_of(workspaces: Path, tenant: str, session: str) -> Path:
    """The folder of a tenant's session, made when it is missing."""
    folder = workspaces / workspace_name(tenant, session)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _crashed(item: Prepared, error: Exception) -> Failed:
    _LOG.error("running %s failed", item.invocation_id, exc_info=error)
    return Failed("TOOL_CRASHED", f"{type(error).__name__} in the pool", began=True)


def _answer(item: Prepared) -> Outcome:
    if item.contract.executor is _MOCK:
        schema = thaw(item.contract.output)
        return run_mock(
            item.contract.qualified_name,
            item.work.action.arguments_hash,
            schema if isinstance(schema, dict) else {},
        )
    return run_pure(item.contract.name, item.work.arguments_copy())

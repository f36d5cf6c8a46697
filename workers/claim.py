"""From a hint's ids to the right to execute: what is wrong is dropped or rejected, what is right is claimed.

A worker rejects for good only what differs from the permit under a valid seal; whatever only this worker may
find wrong (a key, a contract) makes it drop the hint, and ten such ids in a row make it stop claiming.
Never runs a tool.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from governance.execution import (
    CLAIMABLE,
    Claim,
    Claimant,
    Claimed,
    Computed,
    Execution,
    Reported,
    Unusable,
    Work,
)
from interlock.contract import EffectScope, Tool
from interlock.errors import InterlockError
from interlock.identifier import new_id
from interlock.permit import Permit, PermitMismatch
from interlock.permit import mismatch_by_digests as mismatch
from interlock.receipt import SandboxReport
from interlock.seal import SealVerifier
from interlock.tier import Pool

DROPS_MAX = 10
"""Invocations dropped in a row after which this worker is taken to be what is wrong."""
FACTS_MAX = 1_024
DOUBTS = frozenset(("PERMIT_UNVERIFIABLE", "CONTRACT_CHANGED", "TOOL_UNAVAILABLE"))
"""What another worker may find right; anything else is wrong with hint or record, whoever looks."""

_OF_THE_CONTRACT = frozenset(("CONTRACT_CHANGED", "TOOL_UNAVAILABLE"))

_LOG = logging.getLogger("interlock.claim")


class Contracts(Protocol):
    """Contracts as they were pinned."""

    def pinned(self, contract_digest: str) -> Tool | None:
        """The contract with exactly this digest."""
        ...


class Toolset(Protocol):
    """What this pool can run."""

    def has(self, contract: Tool, contract_digest: str) -> bool:
        """Whether the tool is here in exactly this version; `contract_digest` is the contract's."""
        ...

    def sandbox(self, contract: Tool) -> SandboxReport:
        """How an execution of it is held."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """Work that is what was allowed, ready to be claimed."""

    work: Work
    contract: Tool
    permit: Permit
    nonce: str
    sandbox: SandboxReport
    is_batchable: bool = False
    """Whether it may be claimed with others."""

    @property
    def invocation_id(self) -> str:
        return self.work.invocation_id

    @property
    def attempt(self) -> int:
        """The attempt that a claim of it begins."""
        return self.work.head.attempt + 1

    def claim(self) -> Claim:
        """The wish to execute it."""
        return Claim(
            invocation_id=self.invocation_id,
            version=self.work.head.version,
            attempt=self.attempt,
            nonce=self.nonce,
            permit=self.permit,
            permit_digest=self.work.permit_digest,
            stage=self.work.head.stage_key,
            cause=self.work.cause,
            sandbox=self.sandbox,
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What a pinned contract says of its invocations; the permit binds the contract only."""

    contract: Tool
    tool: str
    pool: str
    is_batchable: bool
    told: tuple[object, ...]
    """What head and request must say again, in the order of `_TOLD`."""

    @classmethod
    def of(cls, contract: Tool) -> Facts:
        """Those of one contract."""
        told = (
            contract.tier.value, contract.effect_scope.value, contract.timeout_ms, contract.may_repeat,
            contract.guards_twins, contract.effect_scope is EffectScope.EXTERNAL, contract.is_batchable,
        )  # fmt: skip
        return cls(contract, contract.qualified_name, contract.pool.value, contract.is_batchable, told)

    def fault(self, work: Work) -> str | None:
        """What head or request say otherwise than the contract."""
        head, requested = work.head, work.requested
        said = (
            requested.tier, requested.effect_scope, requested.timeout_ms, head.may_repeat,
            head.guards_twins, head.external, head.batchable,
        )  # fmt: skip
        if said == self.told:
            return None
        names = [n for n, mine, its in zip(_TOLD, said, self.told, strict=True) if mine != its]
        return f"it says otherwise than its contract of {', '.join(names)}"


_TOLD = ("tier", "effect_scope", "timeout_ms", "may_repeat", "guards_twins", "external", "batchable")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A hint that this worker leaves to others."""

    code: str
    detail: str


class Drops:
    """Counts what was dropped, by code, and which invocations in a row. Safe for threads."""

    def __init__(self, drops_max: int = DROPS_MAX) -> None:
        self._drops_max = drops_max
        self._in_a_row: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def drop(self, code: str, invocation_id: str) -> None:
        """One more; the same invocation again says nothing new about this worker."""
        with self._lock:
            self._counts[code] += 1
            if code in DOUBTS:
                self._in_a_row.add(invocation_id)

    def forget(self) -> None:
        """Something was right again."""
        with self._lock:
            self._in_a_row.clear()

    @property
    def is_halted(self) -> bool:
        """Whether this worker must claim nothing any more."""
        return len(self._in_a_row) >= self._drops_max

    def counts(self) -> dict[str, int]:
        """Code → how many hints were dropped for it."""
        with self._lock:
            return dict(self._counts)


class Claiming:
    """Judges hints and claims for one pool process. Safe for threads."""

    def __init__(
        self,
        execution: Execution,
        claimant: Claimant,
        contracts: Contracts,
        toolset: Toolset,
        verifier: SealVerifier,
        drops: Drops,
    ) -> None:
        self._execution = execution
        self._claimant = claimant
        self._contracts = contracts
        self._toolset = toolset
        self._verifier = verifier
        self._verifying = Lock()
        self._known: dict[str, Facts] = {}
        self.drops = drops

    def prepare(self, invocation_ids: Sequence[str]) -> list[Prepared]:
        """What of these ids may be claimed here now; raises LedgerUnavailableError."""
        prepared: list[Prepared] = []
        for identifier, found in self._execution.load(invocation_ids).items():
            if isinstance(found, Unusable):
                self._drop(identifier, Dropped(found.code, found.detail))
            elif found.head.phase in CLAIMABLE and found.head.ready:
                self._guarded(found, prepared)
        return prepared

    def claim(self, lot: Sequence[Prepared]) -> Claimed:
        """Claim these together; raises LedgerUnavailableError."""
        alone = not all(item.is_batchable for item in lot)
        return self._execution.claim(self._claimant, [item.claim() for item in lot], tell=alone)

    def record(self, reports: Sequence[tuple[Prepared, Reported]]) -> set[str]:
        """Claim computations together with what they came to; raises as `Execution.record` does."""
        return self._execution.record(
            self._claimant, [Computed(item.claim(), reported) for item, reported in reports]
        )

    def _guarded(self, work: Work, prepared: list[Prepared]) -> None:
        """One that cannot be judged stops no other of its envelope."""
        try:
            self._judge(work, prepared)
        except InterlockError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's
            _LOG.exception("judging %s failed", work.invocation_id)
            self._drop(work.invocation_id, Dropped("INTERNAL", f"judging it failed: {type(error).__name__}"))

    def _judge(self, work: Work, prepared: list[Prepared]) -> None:
        verdict = self._verdict(work)
        if isinstance(verdict, Prepared):
            self.drops.forget()
            prepared.append(verdict)
        elif isinstance(verdict, Dropped):
            # Of an older epoch it may be wrong for everybody: then governance judges it again.
            if verdict.code not in _OF_THE_CONTRACT or not self._execution.give_back_stale(work):
                self._drop(work.invocation_id, verdict)
        else:
            _LOG.error("rejected %s: %s: %s", work.invocation_id, verdict.field, verdict.detail)
            self._execution.reject(work, verdict, self._claimant.worker)

    def _verdict(self, work: Work) -> Prepared | Dropped | PermitMismatch:
        if work.permit is None:
            return Dropped("PERMIT_UNVERIFIABLE", "no permit stands")
        with self._verifying:
            found = mismatch(
                work.permit, work.permit_digest, work.action_digest, work.invocation_id, self._verifier
            )
        if found is not None and found.field == "seal":
            self._execution.note_mismatch(work, found, self._claimant.worker)
            return Dropped("PERMIT_UNVERIFIABLE", found.detail)
        if found is not None:
            return _named(found, work, work.permit)
        if work.permit_uses >= work.permit.terms.attempts:
            return PermitMismatch(field="attempts", detail="the permit's attempts are used")
        return self._here(work, work.permit)

    def _here(self, work: Work, permit: Permit) -> Prepared | Dropped:
        if work.action.pool != self._claimant.pool:
            return Dropped("CAPABILITY_MISMATCH", f"it belongs to the pool {work.action.pool}")
        facts = self._facts(work.action.contract_digest)
        if facts is None or facts.tool != work.action.tool or facts.pool != self._claimant.pool:
            return Dropped(
                "CONTRACT_CHANGED", f"{work.action.tool} is not known by the contract it was judged by"
            )
        contract = facts.contract
        fault = facts.fault(work)
        if fault is not None:
            return Dropped("HEAD_DIFFERS", fault)
        if not self._toolset.has(contract, work.action.contract_digest):
            return Dropped("TOOL_UNAVAILABLE", f"{work.action.tool} {contract.version} is not in this pool")
        is_batchable = facts.is_batchable and not work.head.alone
        return Prepared(work, contract, permit, new_id(), self._toolset.sandbox(contract), is_batchable)

    def _facts(self, contract_digest: str) -> Facts | None:
        """What the contract with this digest says, read out of it once for as long as it is the same."""
        contract = self._contracts.pinned(contract_digest)
        if contract is None:
            return None
        known = self._known.get(contract_digest)
        if known is None or known.contract is not contract:
            if len(self._known) >= FACTS_MAX:
                self._known.clear()
            known = self._known[contract_digest] = Facts.of(contract)
        return known

    def _drop(self, invocation_id: str, dropped: Dropped) -> None:
        self.drops.drop(dropped.code, invocation_id)
        _LOG.warning("dropped a hint for %s: %s: %s", invocation_id, dropped.code, dropped.detail)
        if self.drops.is_halted:
            _LOG.error(
                "this worker claims nothing any more: the last %d were all wrong, so it may be wrong",
                DROPS_MAX,
            )


def lots(prepared: Iterable[Prepared], pool: str) -> list[list[Prepared]]:
    """How to claim these: what is batchable together, anything else alone, when its turn comes."""
    together: list[Prepared] = []
    alone: list[list[Prepared]] = []
    is_pure = pool == Pool.PURE.value
    for item in prepared:
        if is_pure and item.is_batchable:
            together.append(item)
        else:
            alone.append([item])
    return ([together] if together else []) + alone


def _named(found: PermitMismatch, work: Work, permit: Permit) -> PermitMismatch:
    """The mismatch with the name of the field that differs, where some other place still tells its old value.

    A digest cannot say what differs; putting one old value back at a time can.
    """
    if found.field != "action":
        return found
    for name, value in work.told_before:
        if getattr(work.action, name) == value:
            continue
        if work.action.model_copy(update={name: value}).digest == permit.terms.action_digest:
            return PermitMismatch(field=name, detail=f"{name} is not what was permitted")
    return found

"""From what happened to what is recorded: the receipt, under the pool's seal, and the event that follows.

Pure but for the signer. An effect outside the workspace that may have begun and may not be repeated never
becomes a failure: its outcome is unknown. Never writes to the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any

from governance.execution import Reported
from interlock.canonical import (
    Fragment,
    Json,
    canonical,
    sha256_hex,
)
from interlock.code import UnknownCodeError
from interlock.code import code as code_of
from interlock.contract import EffectScope, Tool
from interlock.decision import Reason
from interlock.event import (
    ExecutionAttemptFailed,
    ExecutionReleased,
    FailureDetail,
    ReconciliationRequired,
    ToolExecutionCompleted,
    ToolExecutionFailed,
)
from interlock.mark import mark_non_finite
from interlock.receipt import SUMMARY_CHARACTERS_MAX, Receipt, SealedReceipt
from interlock.schema import CompiledSchema, Valid, compile_schema
from interlock.seal import Purpose, Signer, seal_batch
from interlock.settings import Settings
from interlock.word import Word
from workers.claim import Prepared
from workers.draft import Draft, PlainDraft, Sealed
from workers.mask import Masking
from workers.receipt import Forms, output_rejected, plain_output, receipt_of, shortened
from workers.supervisor import port

SETUP_TRIES_MAX = 5
"""How often in a row a claim is given back because nothing could be set up for it."""
SETUP_WAIT_US = 1_000_000
SCHEMAS_MAX = 1_024
OUR_CODES: Mapping[str, str] = MappingProxyType(
    {
        "PROCESS_LIMIT": "RESOURCE_LIMIT",
        "PATH_REFUSED": "PATH_INVALID",
        "HOST_NOT_LISTED": "HOST_NOT_ALLOWED",
        "HOST_REFUSED": "HOST_NOT_ALLOWED",
        "URL_REFUSED": "HOST_NOT_ALLOWED",
        "ADDRESS_REFUSED": "ADDRESS_NOT_PUBLIC",
        "CONNECT_FAILED": "UPSTREAM_UNREACHABLE",
        "HOST_UNRESOLVED": "UPSTREAM_UNREACHABLE",
        "FETCH_FAILED": "UPSTREAM_ERROR",
        "POOL_LOST": "LEASE_LOST",
        "SUPERVISOR_LOST": "LEASE_LOST",
        "SUPERVISOR_FAULT": "TOOL_CRASHED",
        "KILL_INCOMPLETE": "TOOL_CRASHED",
        "TOOL_UNKNOWN": "TOOL_UNAVAILABLE",
    }
)
"""What a supervisor says, where the table of codes has another word for it."""

STOPPED_BY_US = ("CANCELLED", "POOL_STOPPING")
"""What a supervisor says of a tool that a stopping pool had it end."""

REPEATED_CODES = frozenset(("TOOL_CRASHED", "UPSTREAM_UNREACHABLE", "LEASE_LOST", "RESOURCE_LIMIT"))
"""Failures that another attempt may not meet; a limit of time or output it would meet again."""


class Schemas:
    """Output schemas made ready once. Safe for threads."""

    def __init__(self) -> None:
        self._ready: dict[str, CompiledSchema] = {}
        self._lock = Lock()

    def fault(self, contract_digest: str, contract: Tool, output: Json) -> str | None:
        """What the contract's output schema has against this output."""
        if contract.output is None:
            return None
        verdict = self._of(contract_digest, contract).validate(output)
        if isinstance(verdict, Valid):
            return None
        return "; ".join(f"{fault.pointer or '/'}: {fault.message}" for fault in verdict.errors)

    def _of(self, contract_digest: str, contract: Tool) -> CompiledSchema:
        with self._lock:
            ready = self._ready.get(contract_digest)
            if ready is None:
                if len(self._ready) >= SCHEMAS_MAX:
                    self._ready.clear()
                ready = self._ready[contract_digest] = compile_schema(contract.output, closed=False)
            return ready


@dataclass(frozen=True, slots=True)
class Reporting:
    """Makes the reports of one pool process. Safe for threads."""

    signer: Signer
    worker: str
    settings: Settings
    now_us: Callable[[], int]
    """The moment for receipts and waits."""
    schemas: Schemas
    forms: Forms = field(default_factory=Forms)

    def reports(self, ran: Sequence[tuple[Prepared, port.Outcome]]) -> list[Reported]:
        """One report each, in order; all receipts under one signature."""
        drafts = [self._plain(item, outcome) or self._draft(item, outcome) for item, outcome in ran]
        receipts = [draft.receipt_bytes() for draft in drafts]
        digests = [sha256_hex(receipt) for receipt in receipts if receipt is not None]
        seals = seal_batch(self.signer, Purpose.RECEIPT, digests)
        sealed = map(Sealed, digests, seals)
        return [
            draft.reported(None if receipt is None else next(sealed))
            for draft, receipt in zip(drafts, receipts, strict=True)
        ]

    def _plain(self, item: Prepared, outcome: port.Outcome) -> PlainDraft | None:
        """The draft of what ran to its end, hid nothing, changed nothing and has nothing to tell but its
        output; None for anything else, which takes the long way to the same bytes."""
        if not isinstance(outcome, port.Completed) or item.work.requested.sensitive:
            return None
        if outcome.affected or outcome.metrics or outcome.resources or outcome.truncated:
            return None
        if type(outcome.duration_ms) is not int:
            return None
        written = plain_output(outcome.output)
        if written is None or self.schemas.fault(
            item.work.action.contract_digest, item.contract, outcome.output
        ):
            return None
        own: dict[str, Any] = {
            "invocation_id": item.invocation_id,
            "output_summary": shortened(written.decode()),
            "structured_output": Fragment(written),
            "duration_ms": outcome.duration_ms,
            "timestamp_us": self.now_us(),
            "attempt": item.attempt,
            "permit_digest": item.work.permit_digest,
        }
        kind = (item.work.action.contract_digest, outcome.exit_code, outcome.sandbox)

        def first() -> Receipt:
            return self._receipt(item, outcome, outcome.exit_code, outcome.output, Masking({}, ()))

        receipt = self.forms.written(kind, first, own)
        return None if receipt is None else PlainDraft(item, receipt)

    def _draft(self, item: Prepared, outcome: port.Outcome) -> Draft:
        masking = Masking(item.work.arguments, item.work.requested.sensitive)
        match outcome:
            case port.Completed():
                return self._completed(item, outcome, masking)
            case port.Failed():
                return self._failed(item, outcome, masking)
            case port.NotStarted():
                return self._not_started(item, outcome, masking.text(outcome.message))

    # --- what ran to its end -----------------------------------------------------------------------

    def _completed(self, item: Prepared, outcome: port.Completed, masking: Masking) -> Draft:
        output = mark_non_finite(outcome.output)
        fault = self.schemas.fault(item.work.action.contract_digest, item.contract, output)
        if fault is not None:
            return self._output_rejected(item, outcome, output, fault, masking)
        receipt = self._receipt(item, outcome, outcome.exit_code, masking.masked(output), masking)
        return Draft(
            item, receipt, lambda sealed: ToolExecutionCompleted(nonce=item.nonce, sealed=_held(sealed))
        )

    def _output_rejected(
        self, item: Prepared, outcome: port.Completed, output: Json, fault: str, masking: Masking
    ) -> Draft:
        # Masked before it is cut: a part of a secret is not found any more.
        reason = Reason(code="OUTPUT_INVALID", sentence=masking.text(fault)[:1_000])
        evidence = output_rejected(reason, canonical(masking.masked(output)))
        detail = FailureDetail(code=reason.code, sentence=reason.sentence, recoverable=False, began=True)
        receipt = self._receipt(item, outcome, outcome.exit_code, None, masking)
        return self._ended(item, detail, receipt, (evidence,))

    # --- what did not ------------------------------------------------------------------------------

    def _failed(self, item: Prepared, outcome: port.Failed, masking: Masking) -> Draft:
        code = OUR_CODES.get(outcome.code, outcome.code)
        if (outcome.code, outcome.message) == STOPPED_BY_US and item.contract.may_repeat:
            code = "LEASE_LOST"  # nobody asked for its end: another pool may begin it again
        detail = FailureDetail(
            code=code if _is_known(code) else "TOOL_FAILED",
            sentence=masking.text(_said(outcome.code, code, outcome.message))[:SUMMARY_CHARACTERS_MAX],
            recoverable=_is_known(code) and code_of(code).retryable,
            began=outcome.began,
        )
        evidence: tuple[Word, ...] = ()
        if code == "OUTPUT_INVALID":
            reason = Reason(code=code, sentence=detail.sentence)
            evidence = (output_rejected(reason, masking.raw(outcome.raw_output)),)
        receipt = self._receipt(item, outcome, None, None, masking) if outcome.began else None
        return self._ended(item, detail, receipt, evidence)

    def _ended(
        self, item: Prepared, detail: FailureDetail, receipt: Receipt | None, evidence: tuple[Word, ...]
    ) -> Draft:
        contract, nonce = item.contract, item.nonce
        if detail.began and contract.effect_scope is EffectScope.EXTERNAL and not contract.may_repeat:
            reason = Reason(code="OUTCOME_UNKNOWN", sentence=f"{detail.code}: {detail.sentence}")
            return Draft(
                item,
                receipt,
                lambda sealed: ReconciliationRequired(nonce=nonce, reason=reason, sealed=sealed),
                evidence,
            )
        if contract.may_repeat and detail.code in REPEATED_CODES:
            if item.attempt < min(contract.attempts_max, item.permit.terms.attempts):
                return self._again(item, detail, evidence)
            detail = _exhausted(detail, item.attempt)
        return Draft(
            item,
            receipt,
            lambda sealed: ToolExecutionFailed(nonce=nonce, failure=detail, sealed=sealed),
            evidence,
        )

    def _again(self, item: Prepared, detail: FailureDetail, evidence: tuple[Word, ...]) -> Draft:
        wait_us = self.settings.attempt_wait_ms * 1_000 * 2 ** (item.attempt - 1)
        event = ExecutionAttemptFailed(
            nonce=item.nonce, attempt=item.attempt, failure=detail, again_us=self.now_us() + wait_us
        )
        return Draft(item, None, lambda _sealed: event, evidence, wait_us)

    # --- what never began --------------------------------------------------------------------------

    def _not_started(self, item: Prepared, outcome: port.NotStarted, said: str) -> Draft:
        code = OUR_CODES.get(outcome.code, outcome.code)
        if outcome.code == "CANCELLED_BEFORE_START" and outcome.message == "CANCELLED":
            return self._never(item, "CANCELLED", "it was cancelled before it began", recoverable=False)
        if code == "SANDBOX_UNAVAILABLE":
            return self._never(item, code, said, recoverable=False)
        if code == "SANDBOX_SETUP_FAILED" and item.work.releases + 1 >= SETUP_TRIES_MAX:
            sentence = f"{SETUP_TRIES_MAX} times in a row: {said}"
            return self._never(item, "ATTEMPTS_EXHAUSTED", sentence, recoverable=True)
        reason = _release_reason(outcome, code, said)
        event = ExecutionReleased(nonce=item.nonce, attempt=item.attempt, reason=reason)
        return Draft(item, None, lambda _sealed: event, wait_us=self._release_wait_us(item, code))

    def _never(self, item: Prepared, code: str, sentence: str, *, recoverable: bool) -> Draft:
        detail = FailureDetail(
            code=code, sentence=sentence[:SUMMARY_CHARACTERS_MAX], recoverable=recoverable, began=False
        )
        return Draft(item, None, lambda _sealed: ToolExecutionFailed(nonce=item.nonce, failure=detail))

    def _receipt(
        self,
        item: Prepared,
        outcome: port.Completed | port.Failed,
        exit_code: int | None,
        output: Json,
        masking: Masking,
    ) -> Receipt:
        at_us = self.now_us()
        return receipt_of(item, outcome, exit_code, output, masking, worker=self.worker, at_us=at_us)

    @staticmethod
    def _release_wait_us(item: Prepared, code: str) -> int:
        # What was merely stopped or late is offered again at once; what this pool could not set up waits.
        if code in ("CANCELLED_BEFORE_START", "START_BY_PASSED", "CLAIM_NOT_HELD"):
            return 0
        return int(SETUP_WAIT_US * 2 ** min(item.work.releases, SETUP_TRIES_MAX))


def _held(sealed: SealedReceipt | None) -> SealedReceipt:
    assert sealed is not None, "what completed has a receipt"
    return sealed


def _said(given: str, told: str, message: str) -> str:
    """The sentence, with the supervisor's own code where the table knows it by another."""
    return message if given == told else f"{given}: {message}"


def _release_reason(outcome: port.NotStarted, code: str, said: str) -> Reason:
    if outcome.code == "CANCELLED_BEFORE_START":
        return Reason(code=outcome.message, sentence="it did not begin")
    known = code if _is_known(code) else "SANDBOX_SETUP_FAILED"
    known = "CLAIM_LOST" if code == "CLAIM_NOT_HELD" else known
    return Reason(code=known, sentence=f"{outcome.code}: {said}"[:SUMMARY_CHARACTERS_MAX])


def _exhausted(detail: FailureDetail, attempts: int) -> FailureDetail:
    sentence = f"{attempts} attempts, the last one: {detail.code}: {detail.sentence}"
    return detail.model_copy(update={"code": "ATTEMPTS_EXHAUSTED", "sentence": sentence})


def _is_known(code: str) -> bool:
    try:
        code_of(code)
    except UnknownCodeError:
        return False
    return True

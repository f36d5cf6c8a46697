"""From what happened to what is recorded: the receipt, under the pool's seal, and the event that follows.

Pure but for the signer. An effect outside the workspace that may have begun and may not be repeated never
becomes a failure: its outcome is unknown. Never writes to the ledger.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

from governance.execution import Outcome, Reported, Written, outcome_from
from governance.ledger import StageKey
from interlock.canonical import (
    DEPTH_MAX,
    Fragment,
    Json,
    JsonObject,
    canonical,
    plainly_written,
    quickly_written,
    sha256_hex,
)
from interlock.code import UnknownCodeError
from interlock.code import code as code_of
from interlock.contract import EffectScope, Executor, Tool
from interlock.decision import Reason
from interlock.event import (
    EVENT_TYPES,
    ExecutionAttemptFailed,
    ExecutionReleased,
    FailureDetail,
    OutputRejected,
    ReconciliationRequired,
    ToolExecutionCompleted,
    ToolExecutionFailed,
)
from interlock.mark import mark_non_finite
from interlock.receipt import SUMMARY_CHARACTERS_MAX, AffectedEntity, Receipt, SandboxReport, SealedReceipt
from interlock.schema import CompiledSchema, Valid, compile_schema
from interlock.seal import Purpose, Seal, Signer, seal_batch
from interlock.settings import Settings
from interlock.word import Word
from workers.claim import Prepared
from workers.mask import Masking
from workers.supervisor import port

SETUP_TRIES_MAX = 5
"""How often in a row a claim is given back because nothing could be set up for it."""
SETUP_WAIT_US = 1_000_000
SCHEMAS_MAX = 1_024
RAW_BYTES_MAX = 65_536
FORMS_MAX = 256
PLAIN_BYTES_MAX = 100_000
"""Not more bytes than the marking of a value looks at nodes."""
MARK = b'"$interlock"'
"""What only the marking of a value may write as a key of its own."""

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


class Sealed(NamedTuple):
    """The digest of a receipt under the pool's seal."""

    digest: str
    seal: Seal


@dataclass(frozen=True, slots=True)
class Draft:
    """An outcome before its receipt is sealed."""

    prepared: Prepared
    receipt: Receipt | None
    event: Callable[[SealedReceipt | None], Outcome]
    evidence: tuple[Word, ...] = ()
    wait_us: int = 0

    def receipt_bytes(self) -> bytes | None:
        """What is to be sealed."""
        return None if self.receipt is None else self.receipt.to_bytes()

    def reported(self, sealed: Sealed | None) -> Reported:
        """The report, with its receipt as it was sealed."""
        held = None
        if self.receipt is not None and sealed is not None:
            held = SealedReceipt(receipt=self.receipt, receipt_digest=sealed.digest, seal=sealed.seal)
        return _reported(self.prepared, self.event(held), self.evidence, self.wait_us)


@dataclass(frozen=True, slots=True)
class PlainDraft:
    """A completion of the plainest kind before it is sealed: its receipt is written already."""

    prepared: Prepared
    receipt: bytes

    def receipt_bytes(self) -> bytes:
        """What is to be sealed."""
        return self.receipt

    def reported(self, sealed: Sealed | None) -> Reported:
        """The report, whose event is written around the receipt's own bytes."""
        assert sealed is not None, "what completed has a receipt"
        held = {
            "receipt": Fragment(self.receipt),
            "receipt_digest": sealed.digest,
            "seal": Fragment(sealed.seal.to_bytes()),
        }
        nonce = self.prepared.nonce
        payload = plainly_written({"nonce": nonce, "sealed": held})
        assert payload is not None, "ids, digests and what is canonical already"
        return _reported(self.prepared, Written(nonce, payload))


class Forms:
    """What plain receipts of one kind have in common, read out of the first of them. Safe for threads."""

    def __init__(self) -> None:
        self._forms: dict[Hashable, JsonObject] = {}

    def written(self, kind: Hashable, first: Callable[[], Receipt], own: Mapping[str, Any]) -> bytes | None:
        """The canonical bytes of a receipt of this kind with these fields of its own; `first` makes it.

        None where they cannot be written at once.
        """
        form = self._forms.get(kind)
        if form is None:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            form = self._forms[kind] = first().to_json()
        return plainly_written({**form, **own})


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
            "output_summary": _shortened(written.decode()),
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

    @staticmethod
    def _release_wait_us(item: Prepared, code: str) -> int:
        # What was merely stopped or late is offered again at once; what this pool could not set up waits.
        if code in ("CANCELLED_BEFORE_START", "START_BY_PASSED", "CLAIM_NOT_HELD"):
            return 0
        return int(SETUP_WAIT_US * 2 ** min(item.work.releases, SETUP_TRIES_MAX))

    # --- receipts ----------------------------------------------------------------------------------

    def _receipt(
        self,
        item: Prepared,
        outcome: port.Completed | port.Failed,
        exit_code: int | None,
        output: Json,
        masking: Masking,
    ) -> Receipt:
        contract = item.contract
        return Receipt(
            invocation_id=item.invocation_id,
            kind="mock" if contract.executor is Executor.MOCK else "executed",
            tool_name=contract.qualified_name,
            tool_version=contract.version,
            contract_digest=item.work.action.contract_digest,
            exit_code=exit_code,
            output_summary="" if output is None else _summary(output),
            structured_output=output,
            affected_entities=tuple(_affected(entity, masking) for entity in outcome.affected),
            duration_ms=outcome.duration_ms,
            tier=contract.tier.value,
            timestamp_us=self.now_us(),
            metrics=mark_non_finite(outcome.metrics),
            attempt=item.attempt,
            permit_digest=item.work.permit_digest,
            sandbox=SandboxReport(strength=outcome.sandbox.strength, layers=outcome.sandbox.layers),
            resources=mark_non_finite(outcome.resources),
            truncated=outcome.truncated,
            worker=self.worker,
        )


def output_rejected(reason: Reason, raw: bytes) -> OutputRejected:
    """The evidence of output that broke its schema: its digest and size, and what it begins with."""
    return OutputRejected(
        reason=reason,
        raw_base64=base64.b64encode(raw[:RAW_BYTES_MAX]).decode(),
        size_bytes=len(raw),
        sha256=sha256_hex(raw),
    )


def plain_output(output: object) -> bytes | None:
    """The canonical bytes of an object that is JSON as it stands, so that there is nothing to mark in it.

    None where that is not certain at once. Every value takes a byte at least, so its bytes bound its nodes.
    """
    if type(output) is not dict:
        return None
    written = quickly_written(output, DEPTH_MAX - 1)
    if written is None or len(written) > PLAIN_BYTES_MAX or MARK in written:
        return None
    return written


def _reported(
    prepared: Prepared, told: Outcome | Written, evidence: tuple[Word, ...] = (), wait_us: int = 0
) -> Reported:
    return Reported(prepared.invocation_id, told, prepared.work.head.stage_key, evidence, wait_us)


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


def _affected(entity: port.AffectedEntity, masking: Masking) -> AffectedEntity:
    return AffectedEntity(
        kind="remote" if entity.kind == "remote" else "file",
        name=masking.text(entity.name),
        before=_hex(entity.before),
        after=_hex(entity.after),
    )


def _hex(digest: str | None) -> str | None:
    return None if digest is None else digest.removeprefix("sha256:")


def _summary(output: Json) -> str:
    return _shortened(canonical(output).decode())


def _shortened(text: str) -> str:
    return text if len(text) <= SUMMARY_CHARACTERS_MAX else text[: SUMMARY_CHARACTERS_MAX - 1] + "…"


def report_to_json(reported: Reported) -> JsonObject:
    """A report as JSON, for the spool."""
    outcome = reported.outcome
    return {
        "invocation_id": reported.invocation_id,
        "type": type(outcome).__name__,
        "payload": outcome.to_json(),
        "stage": list(reported.stage),
        "evidence": [[type(word).__name__, word.to_json()] for word in reported.evidence],
        "wait_us": reported.wait_us,
    }


def report_from_json(value: JsonObject) -> Reported:
    """The report that `report_to_json` wrote; raises KeyError and pydantic's ValidationError."""
    evidence = tuple(
        EVENT_TYPES[name].payload.model_validate(word) for name, word in _pairs(value["evidence"])
    )
    return Reported(
        invocation_id=str(value["invocation_id"]),
        told=outcome_from(str(value["type"]), value["payload"]),  # type: ignore[arg-type]  # validated there
        stage=StageKey(*(str(part) for part in _items(value["stage"]))),
        evidence=evidence,
        wait_us=int(str(value["wait_us"])),
    )


def _items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _pairs(value: Json) -> list[tuple[str, Json]]:
    return [(str(pair[0]), pair[1]) for pair in _items(value) if isinstance(pair, list)]

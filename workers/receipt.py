"""What is recorded of one execution: its receipt, its output as it may be shown, and what was wrong with it.

Signs nothing and decides nothing about what follows.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from interlock.canonical import (
    DEPTH_MAX,
    Json,
    JsonObject,
    canonical,
    plainly_written,
    quickly_written,
    sha256_hex,
)
from interlock.contract import Executor
from interlock.decision import Reason
from interlock.event import OutputRejected
from interlock.mark import mark_non_finite
from interlock.receipt import SUMMARY_CHARACTERS_MAX, AffectedEntity, Receipt, SandboxReport
from workers.claim import Prepared
from workers.mask import Masking
from workers.supervisor import port

RAW_BYTES_MAX = 65_536
FORMS_MAX = 256
PLAIN_BYTES_MAX = 100_000
"""Not more bytes than the marking of a value looks at nodes."""
MARK = b'"$interlock"'
"""What only the marking of a value may write as a key of its own."""


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


def receipt_of(
    item: Prepared,
    outcome: port.Completed | port.Failed,
    exit_code: int | None,
    output: Json,
    masking: Masking,
    *,
    worker: str,
    at_us: int,
) -> Receipt:
    """What one execution came to, with nothing in it that is to be hidden."""
    contract = item.contract
    return Receipt(
        invocation_id=item.invocation_id,
        kind="mock" if contract.executor is Executor.MOCK else "executed",
        tool_name=contract.qualified_name,
        tool_version=contract.version,
        contract_digest=item.work.action.contract_digest,
        exit_code=exit_code,
        output_summary="" if output is None else shortened(canonical(output).decode()),
        structured_output=output,
        affected_entities=tuple(_affected(entity, masking) for entity in outcome.affected),
        duration_ms=outcome.duration_ms,
        tier=contract.tier.value,
        timestamp_us=at_us,
        metrics=mark_non_finite(outcome.metrics),
        attempt=item.attempt,
        permit_digest=item.work.permit_digest,
        sandbox=SandboxReport(strength=outcome.sandbox.strength, layers=outcome.sandbox.layers),
        resources=mark_non_finite(outcome.resources),
        truncated=outcome.truncated,
        worker=worker,
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


def _affected(entity: port.AffectedEntity, masking: Masking) -> AffectedEntity:
    return AffectedEntity(
        kind="remote" if entity.kind == "remote" else "file",
        name=masking.text(entity.name),
        before=_hex(entity.before),
        after=_hex(entity.after),
    )


def _hex(digest: str | None) -> str | None:
    return None if digest is None else digest.removeprefix("sha256:")


def shortened(text: str) -> str:
    """A summary: the text, or as much of it as one may hold."""
    return text if len(text) <= SUMMARY_CHARACTERS_MAX else text[: SUMMARY_CHARACTERS_MAX - 1] + "…"

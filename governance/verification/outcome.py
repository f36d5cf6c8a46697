"""The receipts of one execution: unchanged since a pool sealed them, and about this very execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from governance.verification.fault import FaultCode, Faults
from interlock.canonical import digest_of
from interlock.event import StoredEvent
from interlock.seal import Seal, SealVerifier


class Execution(NamedTuple):
    """What began: the attempt, and the permit it began under."""

    attempt: int
    permit_digest: str


def check_receipt(
    event: StoredEvent,
    body: Mapping[str, Any],
    execution: Execution | None,
    verifier: SealVerifier,
    faults: Faults,
) -> None:
    """Judge the sealed receipt that an outcome's payload holds, if it holds one.

    Raises KeyError, TypeError or ValidationError where it is no receipt at all.
    """
    sealed = body.get("sealed")
    if sealed is None:
        return
    receipt, digest = sealed["receipt"], sealed["receipt_digest"]
    if digest_of(receipt) != digest:
        faults.add(event.seq, FaultCode.RECEIPT_CHANGED, "the receipt is not the one of its digest")
    elif not verifier.verify(digest, Seal.model_validate(sealed["seal"])):
        faults.add(event.seq, FaultCode.RECEIPT_SEAL, "no pool of this installation sealed the receipt")
    told = Execution(receipt["attempt"], receipt["permit_digest"])
    # What was found out later is told by whoever found it out, about no attempt of his own.
    is_other = receipt["kind"] != "reconciled" and told != execution
    if receipt["invocation_id"] != event.stream_id or is_other:
        said = f"attempt {told.attempt} of {receipt['invocation_id']} under permit {told.permit_digest}"
        faults.add(event.seq, FaultCode.RECEIPT_FOREIGN, f"the receipt is about {said}")

"""The receipts of one execution: unchanged since a pool sealed them, and about this very execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from governance.verification.fault import FaultCode, Faults
from interlock.canonical import digest_of
from interlock.event import StoredEvent
from interlock.seal import Seal, SealVerifier


def check_receipt(
    event: StoredEvent, body: Mapping[str, Any], verifier: SealVerifier, faults: Faults
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
    if receipt["invocation_id"] != event.stream_id:
        about = f"the receipt is about {receipt['invocation_id']}"
        faults.add(event.seq, FaultCode.RECEIPT_FOREIGN, about)

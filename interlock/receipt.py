"""The receipt: the immutable, structured record of one execution, and the words its outcome is told in.

Never raw text alone: an output is structured, and a summary is bounded.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interlock.canonical import digest_of
from interlock.seal import Seal
from interlock.word import FrozenValue, Word

SUMMARY_CHARACTERS_MAX = 2_000


class AffectedEntity(Word):
    """A file or remote object that an execution changed."""

    kind: Literal["file", "remote"] = "file"
    name: str
    before: str | None = None
    """SHA-256 before, None where it did not exist."""
    after: str | None = None
    """SHA-256 after, None where it no longer exists."""


class SandboxReport(Word):
    """How the execution was held."""

    strength: str = "none"
    layers: tuple[str, ...] = ()


class Receipt(Word):
    """One execution, from claim to outcome."""

    invocation_id: str
    kind: Literal["executed", "mock", "reconciled"] = "executed"
    tool_name: str
    tool_version: str
    contract_digest: str
    exit_code: int | None
    output_summary: str
    structured_output: FrozenValue
    affected_entities: tuple[AffectedEntity, ...] = ()
    duration_ms: int
    tier: str
    timestamp_us: int
    metrics: FrozenValue = Field(default_factory=dict)
    attempt: int
    permit_digest: str
    sandbox: SandboxReport = SandboxReport()
    resources: FrozenValue = Field(default_factory=dict)
    truncated: tuple[str, ...] = ()
    worker: str = ""


class SealedReceipt(Word):
    """A receipt with its digest under the pool's seal."""

    receipt: Receipt
    receipt_digest: str
    seal: Seal


class Success(Word):
    """ToolResult of a program that ran to its end."""

    invocation_id: str
    output: FrozenValue
    exit_code: int | None
    metadata: FrozenValue = Field(default_factory=dict)


class Failure(Word):
    """ToolResult of what did not run to its end, or never ran."""

    invocation_id: str
    reason: str
    """A stable code."""
    recoverable: bool


ToolResult = Success | Failure


class Expectation(Word):
    """What a receipt was expected to show at one place."""

    pointer: str
    """JSON Pointer into the receipt."""
    equals: FrozenValue


class ToolResultArtifact(Word):
    """A receipt wrapped for further validation: what was expected, and what differed."""

    receipt: Receipt
    expectations: tuple[Expectation, ...] = ()
    differences: FrozenValue = ()

    @property
    def artifact_id(self) -> str:
        """Digest-made name, the same for the same receipt and expectations."""
        return digest_of([self.receipt.digest, [e.to_json() for e in self.expectations]])

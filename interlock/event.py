"""Every event of the ledger: its type, its version, what its payload holds, and whether it moves state.

Payloads are stored, hashed and passed on as the bytes that were written; reading them into words is for
folding and showing only. Never appends.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from interlock.approval import ApprovalNeed, ApprovalSnapshot, Vote
from interlock.canonical import read_stored
from interlock.decision import Reason, Verdict
from interlock.permit import Permit
from interlock.receipt import SandboxReport, SealedReceipt
from interlock.word import FrozenValue, Word


class StreamKind(StrEnum):
    """What a stream of events is about."""

    INVOCATION = "invocation"
    EVIDENCE = "evidence"
    SESSION = "session"
    STAGE = "stage"
    POLICY = "policy"
    CONTROL = "control"
    GRANT = "grant"
    PRINCIPAL = "principal"
    TOOL = "tool"
    SCHEDULE = "schedule"
    PROVIDER = "provider"


class Stream(NamedTuple):
    """The address of one stream."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


_INVOCATION = StreamKind.INVOCATION.value  # an enum's value is dear to ask for


def invocation_stream(invocation_id: str) -> Stream:
    """The stream that holds an invocation's moves."""
    return Stream(_INVOCATION, invocation_id)


def evidence_stream(invocation_id: str) -> Stream:
    """The stream beside it, for what moves nothing."""
    return Stream(StreamKind.EVIDENCE.value, invocation_id)


class StoredEvent(NamedTuple):
    """One row of the ledger, as it was written."""

    seq: int
    """Place in the global order, dense from 1; 0 where it has none yet."""
    kind: str
    stream_id: str
    version: int
    """Place in its stream, dense from 1."""
    type: str
    format: int
    """Version of the payload's format."""
    at_us: int
    """The store's time at append, never smaller than the stream's last."""
    cause: str
    """What it follows from: `submission:<id>`, `event:<seq>`, `timer:<what>`, `vote:<id>`, …"""
    actor: str
    """The principal or role that appended it."""
    tenant: str
    session: str
    moves_state: bool
    payload: bytes
    """Canonical JSON."""
    hash: str
    """Hex chain hash over the previous one, the header and the payload's digest; "" without seq."""

    @property
    def stream(self) -> Stream:
        return Stream(self.kind, self.stream_id)

    def body(self) -> dict[str, Any]:
        """The payload as a fresh object."""
        value: Any = read_stored(self.payload)
        return dict(value)


# --- payloads of the stream `invocation:<id>` --------------------------------------------------------


class ToolInvocationRequested(Word):
    """Accepted for decision; holds the canonical request."""

    tool: str
    tool_version: str
    contract_digest: str
    """"" for a tool that nobody knows."""
    tier: str
    capability_pool: str
    arguments: FrozenValue
    """Canonical, sensitive values sealed; None where they could not be judged or might show a secret."""
    arguments_hash: str
    """Over the true values."""
    request_digest: str
    """Over everything the producer said; the same id with another digest is a conflict."""
    action_digest: str
    tenant: str
    client: str
    subject: str | None
    session: str
    stage: str
    route: str | None = None
    mode: str | None = None
    """A lower mode that the proposal chose for itself."""
    key: str | None = None
    priority: int = 4
    deadline_us: int | None = None
    repeat: int = 0
    sensitive: tuple[str, ...] = ()
    """JSON Pointers to the values that are sealed."""
    defaulted: tuple[str, ...] = ()
    """Which of session and stage the caller left out."""
    may_repeat: bool = False
    effect_scope: str = "none"
    timeout_ms: int = 60_000
    raw: FrozenValue = None
    """For arguments that were no acceptable JSON: their sha256 and size."""


class ApprovalRequested(Word):
    """Parked: the frozen snapshot, the approvals needed, the expiry."""

    snapshot: ApprovalSnapshot
    need: ApprovalNeed
    expires_us: int
    verdicts: tuple[Verdict, ...] = ()


class ApprovalVoted(Word):
    """One approver's authenticated answer."""

    vote: Vote
    person: str
    """The human or bot behind the principal; a quorum counts persons."""


class ApprovalGranted(Word):
    """By policy or by quorum; holds the permit."""

    by: str
    """`policy` or `quorum`."""
    permit: Permit
    policy: str
    verdicts: tuple[Verdict, ...] = ()
    approvers: tuple[str, ...] = ()


class ApprovalDenied(Word):
    """An approver said no; final for that action digest."""

    approver: str
    reason: str


class ApprovalExpired(Word):
    """Silence ended the wait."""

    expires_us: int


class DecisionDeferred(Word):
    """Nothing was decided; judged again at a moment or a signal."""

    reasons: tuple[Reason, ...]
    until_us: int


class PermitReturned(Word):
    """A worker found the permit's epoch or validity gone by; governance judges again."""

    reason: Reason
    permit_digest: str


class ToolExecutionStarted(Word):
    """The claim: who, under which boot, which attempt."""

    worker: str
    boot: str
    nonce: str
    attempt: int
    pool: str
    permit_digest: str
    start_by_ms: int
    sandbox: SandboxReport
    batch: int = 1
    """How many were claimed together."""


class ToolResponseRecorded(Word):
    """An external system answered, before the outcome is complete."""

    nonce: str
    response: FrozenValue


class ToolExecutionCompleted(Word):
    """The program ran to its end."""

    nonce: str
    sealed: SealedReceipt


class FailureDetail(Word):
    """Structured error of what did not run to its end."""

    code: str
    sentence: str
    recoverable: bool
    began: bool
    """Whether the effect may have begun."""


class ToolExecutionFailed(Word):
    """Final: no further attempt."""

    nonce: str
    failure: FailureDetail
    sealed: SealedReceipt | None = None


class ExecutionAttemptFailed(Word):
    """This attempt failed, another follows at a moment."""

    nonce: str
    attempt: int
    failure: FailureDetail
    again_us: int


class ExecutionReleased(Word):
    """Claimed, never began: back to the line, no attempt spent."""

    nonce: str
    attempt: int
    reason: Reason


class ExecutionAbandoned(Word):
    """The lease ran out under a repeatable execution: another attempt follows."""

    nonce: str
    attempt: int
    reason: Reason
    alone: bool
    """Whether the next hint must carry it alone: it was claimed together with others."""


class ToolExecutionRejected(Word):
    """Never ran, and never will."""

    reason: Reason
    verdicts: tuple[Verdict, ...] = ()


class CancellationRequested(Word):
    """Somebody asked for the end; what runs is ended by its supervisor."""

    by: str
    reason: str = ""


class ReconciliationRequired(Word):
    """The outcome is unknown; never sent again."""

    nonce: str
    reason: Reason
    sealed: SealedReceipt | None = None


class ReconciliationResolved(Word):
    """What was found out."""

    verdict: str
    """`executed`, `not_executed`."""
    by: str
    reason: str
    sealed: SealedReceipt | None = None


# --- payloads of other streams -----------------------------------------------------------------------


class LateOutcomeRecorded(Word):
    """An outcome that came after the claim had been judged; on `evidence:<id>`."""

    nonce: str
    outcome: FrozenValue


class OutcomeContradicted(Word):
    """A late outcome that says something else than the verdict; on `evidence:<id>`."""

    nonce: str
    outcome: FrozenValue


class SandboxViolation(Word):
    """Something forbidden was tried; on `evidence:<id>`."""

    violation: str
    detail: str
    count: int = 1


class PermitMismatched(Word):
    """A security event: what was about to run is not what was allowed; on `evidence:<id>`."""

    field: str
    detail: str
    worker: str


class OutputRejected(Word):
    """Output that broke its schema, kept as it came; on `evidence:<id>`."""

    reason: Reason
    raw_base64: str
    size_bytes: int
    sha256: str


class VoteRefused(Word):
    """A vote that did not count, and why; on `evidence:<id>`."""

    vote: FrozenValue
    reason: Reason


class DeadLettered(Word):
    """A queue item that was no envelope, or ended its readers; on `evidence:dead-letters`."""

    reason: Reason
    sha256: str
    size_bytes: int
    first_base64: str
    """The beginning of what is no envelope; "" for what ended its readers."""
    queue: str


class SessionOpened(Word):
    """A session with its mode."""

    mode: str
    opened_by: str
    client: str
    """The only client that may propose in it."""
    implicit: bool = False
    tenant: str = "default"


class SessionClosed(Word):
    """No further proposal is accepted."""

    by: str


class PrincipalRegistered(Word):
    """A client, approver, bot or operator with its public key and rights."""

    role: str
    person: str
    kid: str = ""
    public_key: str = ""
    """Hex of the raw Ed25519 public key, "" where another way in authenticates it."""
    tenant: str = "default"
    tiers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class ToolRegistered(Word):
    """A contract came into a catalogue."""

    contract: FrozenValue
    contract_digest: str


class InstallationStarted(Word):
    """First event of a ledger; on `control:installation`."""

    incarnation: str
    governance_kid: str
    governance_key: str
    pool_kid: str
    pool_key: str
    anchor_kid: str
    anchor_key: str


class KeyAdded(Word):
    """A public key with its validity; on `control:keys`."""

    purpose: str
    kid: str
    public_key: str
    valid_from_us: int
    valid_until_us: int | None = None


_MOVING: tuple[type[Word], ...] = (
    ToolInvocationRequested, ApprovalRequested, ApprovalVoted, ApprovalGranted, ApprovalDenied,
    ApprovalExpired, DecisionDeferred, PermitReturned, ToolExecutionStarted, ToolResponseRecorded,
    ToolExecutionCompleted,
    ToolExecutionFailed, ExecutionAttemptFailed, ExecutionReleased, ExecutionAbandoned, ToolExecutionRejected,
    CancellationRequested, ReconciliationRequired, ReconciliationResolved, SessionOpened, SessionClosed,
)  # fmt: skip

_STILL: tuple[type[Word], ...] = (
    LateOutcomeRecorded, OutcomeContradicted, SandboxViolation, PermitMismatched, OutputRejected, VoteRefused,
    DeadLettered, PrincipalRegistered, ToolRegistered, InstallationStarted, KeyAdded,
)  # fmt: skip


class EventType(NamedTuple):
    """What the log knows of one type of event."""

    payload: type[Word]
    moves_state: bool
    format: int = 1


EVENT_TYPES: Mapping[str, EventType] = MappingProxyType(
    {word.__name__: EventType(word, True) for word in _MOVING}
    | {word.__name__: EventType(word, False) for word in _STILL}
)
"""Every known type of event by name."""


def read_payload(event: StoredEvent) -> Word:
    """The payload as its word; raises KeyError for an unknown type, ValidationError for a foreign format."""
    return EVENT_TYPES[event.type].payload.model_validate(event.body())


class NewEvent(NamedTuple):
    """An event about to be appended; the ledger adds place, time and hash."""

    type: str
    payload: bytes
    cause: str
    actor: str
    moves_state: bool = True
    format: int = 1


def new_event(payload: Word, *, cause: str, actor: str, written: bytes | None = None) -> NewEvent:
    """An event of the payload's own type, in canonical bytes: `written`, where they were made before."""
    name = type(payload).__name__
    known = EVENT_TYPES[name]
    return NewEvent(
        name,
        payload.to_bytes() if written is None else written,
        cause,
        actor,
        known.moves_state,
        known.format,
    )

"""One proposed invocation as its producer said it, and the signature that may stand under it.

What a producer says about itself is a claim: client and tenant come from a signature or a queue, never from
here. Judges neither tool nor rights, and has no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.canonical import Fragment, Json, JsonObject, digest_of, plainly_written, sha256_hex
from interlock.decision import Reason
from interlock.seal import KeyRing, Purpose, Signer
from interlock.variant import Variants

PROPOSE_TASK = "interlock.propose"
PROPOSE_QUEUE = "interlock.propose"
DECIDE_TASK = "interlock.decide"
DECIDE_QUEUE = "interlock.decide"
CANCEL_TASK = "interlock.cancel"
REPLY_PREFIX = "interlock.reply."

TEXT_MAX = 256
ARGUMENTS_SIZE_MAX = 1_048_576
ARGUMENTS_DEPTH_MAX = 64
PROPOSAL_SIZE_MAX = 4_194_304
"""Of the whole text: arguments may come as an escaped string, which is longer than what it holds."""
PRIORITY_DEFAULT = 4
DEFAULT_PLACE = "default"


@dataclass(frozen=True, slots=True)
class ProposalAuth:
    """Who claims to have signed, with which key; worth nothing until it is verified."""

    client: str
    kid: str
    signature: str
    """Hex Ed25519 over `signed_bytes`."""
    content_digest: str
    """Digest of everything said but the signature; "" where that is no JSON that could be signed."""

    def signed_bytes(self) -> bytes:
        """What the client signs: purpose, itself, its key, and everything it says."""
        return _signed_bytes(self.client, self.kid, self.content_digest)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposed invocation, as its producer said it."""

    id: str
    tool: str
    arguments: JsonObject | None
    """None where they were no acceptable JSON object: `arguments_fault` says why."""
    session: str
    stage: str
    arguments_fault: Reason | None = None
    raw_sha256: str = ""
    """Hex, of the text of arguments that were not acceptable; "" otherwise."""
    raw_size: int = 0
    """Bytes of that text."""
    subject: str | None = None
    route: str | None = None
    mode: str | None = None
    key: str | None = None
    priority: int = PRIORITY_DEFAULT
    deadline_ms: int | None = None
    """Milliseconds after acceptance."""
    accept_until_us: int | None = None
    """Moment by the broker's clock after which intake refuses it."""
    repeat: int = 0
    cause: str | None = None
    reply_to: str | None = None
    task_id: str = ""
    wants_result: bool = False
    defaulted: tuple[str, ...] = ()
    """Which of `id`, `key`, `session`, `stage` the producer left out."""
    auth: ProposalAuth | None = None
    client: str = ""
    """"" until somebody has authenticated it."""
    tenant: str = ""
    signed: bool = False
    """Whether `client` was authenticated by a signature rather than by its queue."""

    @property
    def request_digest(self) -> str:
        """Hex over everything said that matters, with the true argument values; the id is not part of it.

        The same for another order of keys and for 60 and 60.0.
        """
        return self.digest_with(None)

    def digest_with(self, arguments_json: bytes | None) -> str:
        """`request_digest`, where the arguments' canonical bytes are known already."""
        if arguments_json is not None:
            written = plainly_written(self._said(Fragment(arguments_json)))
            if written is not None:
                return sha256_hex(written)
        return digest_of(self._said(self._content()))

    def _said(self, content: Any) -> list[Any]:
        return [
            "interlock.request.v1",
            self.tool,
            content,
            self.session,
            self.stage,
            self.subject,
            self.route,
            self.mode,
            self.key,
            self.priority,
            self.deadline_ms,
            self.repeat,
            self.cause,
        ]

    def _content(self) -> Json:
        if self.arguments_fault is not None:
            return [self.arguments_fault.code, self.raw_sha256]
        return self.arguments

    def authenticated(self, client: str, tenant: str, *, signed: bool) -> Proposal:
        """The same proposal, with the client it was found to come from."""
        return proposal_with(self, client=client, tenant=tenant, signed=signed)


proposal_with = Variants(Proposal)
"""A proposal with other fields."""


def client_queue(client: str) -> str:
    """The queue that a registered client has of its own."""
    return f"{PROPOSE_QUEUE}.{client}"


def client_of_queue(queue: str) -> str | None:
    """Whose own queue it is; None for the one that everybody may use."""
    return None if queue == PROPOSE_QUEUE else queue.removeprefix(f"{PROPOSE_QUEUE}.")


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """What could not be read as a proposal, with what is needed to answer it."""

    reason: Reason
    id: str | None = None
    reply_to: str | None = None
    task_id: str = ""
    wants_result: bool = False


def _signed_bytes(client: str, kid: str, content_digest: str) -> bytes:
    return digest_of([Purpose.PROPOSAL.value, client, kid, content_digest]).encode()


def sign_proposal(fields: JsonObject, client: str, signer: Signer) -> JsonObject:
    """The same fields with the client's signature; raises NotJsonError where they are no I-JSON."""
    content = {name: value for name, value in fields.items() if name != "auth"}
    signature = signer.sign(_signed_bytes(client, signer.kid, digest_of(content))).hex()
    return content | {"auth": {"client": client, "kid": signer.kid, "signature": signature}}


def verify_proposal_auth(proposal: Proposal, keys: KeyRing) -> Reason | None:
    """None when a trusted key signed everything the proposal says; whose key it is, the caller looks up."""
    auth = proposal.auth
    if auth is None:
        return Reason(code="SIGNATURE_INVALID", sentence="the proposal carries no signature")
    if not auth.content_digest:
        return Reason(code="SIGNATURE_INVALID", sentence="what is no strict JSON cannot have been signed")
    if not keys.verify(auth.kid, auth.signed_bytes(), bytes.fromhex(auth.signature)):
        return Reason(code="SIGNATURE_INVALID", sentence=f"no good signature of key {auth.kid}")
    return None

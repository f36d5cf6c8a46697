"""The two digests that bind an invocation, and the permit: governance's signature over exactly what may run.

Never decides whether something may run, only whether this is what was allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from interlock.canonical import canonical, digest_of, plainly_written, sha256_hex
from interlock.seal import Seal, SealVerifier
from interlock.word import Word


class Action(Word):
    """Everything that makes two calls the same call; its digest finds twins and sticky denials."""

    tenant: str
    client: str
    subject: str | None
    session: str
    stage: str
    route: str | None
    tool: str
    contract_digest: str
    arguments_hash: str
    """SHA-256 of the canonical arguments with their true values."""
    pool: str
    tier: str
    repeat: int = 0
    """A wanted repetition is another action."""


class PermitTerms(Word):
    """What a permit, or a vote for one, binds."""

    action_digest: str
    invocation_id: str
    epoch: int
    """The control epoch the judgement was made under."""
    valid_from_us: int
    valid_until_us: int
    attempts: int
    """How many attempts it covers."""

    @property
    def digest(self) -> str:
        said = [_PERMIT, *_digested_of(self)]
        return sha256_hex(plainly_written(said) or canonical(said))


_PERMIT = "interlock.permit.v1"
_DIGESTED = ("action_digest", "invocation_id", "epoch", "valid_from_us", "valid_until_us", "attempts")
_digested_of = attrgetter(*_DIGESTED)


def terms_digest(terms: Mapping[str, Any]) -> str:
    """The permit digest of terms that are given as their fields; raises KeyError where one is missing."""
    return digest_of([_PERMIT, *(terms[name] for name in _DIGESTED)])


class Permit(Word):
    """Terms under a seal."""

    terms: PermitTerms
    seal: Seal

    @property
    def digest(self) -> str:
        return self.terms.digest


class PermitMismatch(Word):
    """What differs between a permit and what is about to run; a refusal, not an exception."""

    field: str
    detail: str


def mismatch(
    permit: Permit, action: Action, invocation_id: str, verifier: SealVerifier
) -> PermitMismatch | None:
    """The first thing that is wrong with running this action as this invocation under this permit.

    `seal` first: under a signature that is not good, no other field means anything.
    """
    return mismatch_by_digests(permit, permit.digest, action.digest, invocation_id, verifier)


def mismatch_by_digests(
    permit: Permit, permit_digest: str, action_digest: str, invocation_id: str, verifier: SealVerifier
) -> PermitMismatch | None:
    """As `mismatch`, for whoever has just computed the digests of this permit and this action."""
    if not verifier.verify(permit_digest, permit.seal):
        return PermitMismatch(field="seal", detail="not signed by a trusted governance key")
    if permit.terms.invocation_id != invocation_id:
        return PermitMismatch(field="invocation_id", detail="the permit was minted for another invocation")
    if permit.terms.action_digest != action_digest:
        return PermitMismatch(
            field="action", detail="arguments, tool, session, subject or another bound field differ"
        )
    return None

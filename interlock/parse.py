"""Reads the wire form of one proposal strictly, and refuses by name what it does not know.

Bad arguments do not take the rest with them, so that their refusal can be recorded. Judges neither tool nor
rights, verifies no signature, and has no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from interlock.canonical import Json, JsonObject, canonical, digest_of, parse_json, sha256_hex
from interlock.decision import Reason
from interlock.errors import NotJsonError
from interlock.field import first_fault, missing, reply_list
from interlock.fragment import members
from interlock.identifier import is_uuid7, new_id
from interlock.proposal import (
    ARGUMENTS_DEPTH_MAX,
    ARGUMENTS_SIZE_MAX,
    DEFAULT_PLACE,
    PRIORITY_DEFAULT,
    PROPOSAL_SIZE_MAX,
    TEXT_MAX,
    Proposal,
    ProposalAuth,
    ProposalRefused,
    proposal_with,
)

TASK_ID_MAX = TEXT_MAX - len("celery:")
_ARGUMENT_FIELDS = ("arguments", "arguments_json")


@dataclass(slots=True)
class _Said:
    """What was found in the text so far."""

    fields: JsonObject
    content_digest: str = ""
    fault: Reason | None = None
    """Of the arguments alone."""
    raw: bytes = b""
    """Text of the arguments at fault."""


def parse_proposal(
    kwargs_json: bytes, *, task_id: str, reply_to: str | None = None, wants_result: bool = False
) -> Proposal | ProposalRefused:
    """The proposal that a Celery message's keyword arguments hold, or why there is none.

    Bad arguments under an otherwise good proposal make a Proposal with `arguments_fault`, so that the refusal
    can be recorded. `reply_to` is the message's own; one that is no reply list of ours is passed over.
    """
    envelope_reply = reply_list(reply_to)
    said = _Said({})
    try:
        _read(said, kwargs_json)
        reason = first_fault(said.fields) or _take_arguments(said, kwargs_json)
    except NotJsonError as error:
        reason = _json_reason(error)
    reply = reply_list(said.fields.get("reply_to")) or envelope_reply
    if reason is None:
        identity = _identity(said.fields, task_id)
        if isinstance(identity, _Identity):
            return _proposal(said, identity, task_id, reply, wants_result)
        reason = identity
    return ProposalRefused(reason, _known_id(said.fields, task_id), reply, task_id, wants_result)


def _read(said: _Said, text: bytes) -> None:
    try:
        value = parse_json(text, depth_max=ARGUMENTS_DEPTH_MAX + 1, size_bytes_max=PROPOSAL_SIZE_MAX)
    except NotJsonError as error:
        if error.code == "JSON_SIZE":
            raise
        _read_in_pieces(said, text, error)
        return
    if not isinstance(value, dict):
        raise NotJsonError("JSON_TYPE", "a proposal is an object")
    said.fields = value
    if "auth" in value:
        said.content_digest = digest_of({name: item for name, item in value.items() if name != "auth"})


def _read_in_pieces(said: _Said, text: bytes, whole: NotJsonError) -> None:
    """Each member on its own, so that bad arguments do not take the rest with them."""
    failed: NotJsonError | None = None
    for name, raw in members(text).items():
        try:
            said.fields[name] = parse_json(
                raw, depth_max=ARGUMENTS_DEPTH_MAX, size_bytes_max=PROPOSAL_SIZE_MAX
            )
        except NotJsonError as error:
            if name in _ARGUMENT_FIELDS and said.fault is None:
                said.fields[name] = None
                said.fault, said.raw = _json_reason(error), raw
            else:
                failed = failed or NotJsonError(error.code, f"{name[:64]!a}: {error.detail}")
    if failed or said.fault is None:
        raise failed or whole


def _json_reason(error: NotJsonError) -> Reason:
    at = "" if error.offset is None else f" at byte {error.offset}"
    return Reason(code=error.code, sentence=f"{error.detail}{at}"[:512])


# --- arguments -----------------------------------------------------------------------------------


def _take_arguments(said: _Said, text: bytes) -> Reason | None:
    """Settle the arguments, or find their fault; a reason where the proposal itself is at fault."""
    fields = said.fields
    as_text = fields.pop("arguments_json", None)
    if said.fault is not None:
        return None
    if isinstance(as_text, str):
        if fields.get("arguments") is not None:
            return Reason(code="FIELD_INVALID", sentence="arguments and arguments_json exclude each other")
        _take_text(said, as_text)
    elif "arguments" not in fields:
        return missing("arguments")
    if said.fault is None:
        _bound(said, text, as_text)
    return None


def _take_text(said: _Said, text: str) -> None:
    try:
        said.fields["arguments"] = parse_json(
            text, depth_max=ARGUMENTS_DEPTH_MAX, size_bytes_max=ARGUMENTS_SIZE_MAX
        )
    except NotJsonError as error:
        said.fault, said.raw = _json_reason(error), text.encode()


def _bound(said: _Said, text: bytes, as_text: Json) -> None:
    arguments = said.fields["arguments"]
    if not isinstance(arguments, dict):
        fault = Reason(code="ARGUMENTS_NOT_OBJECT", sentence="arguments must be an object")
    elif len(text) > ARGUMENTS_SIZE_MAX and len(canonical(arguments)) > ARGUMENTS_SIZE_MAX:
        fault = Reason(
            code="ARGUMENTS_TOO_LARGE", sentence=f"arguments are larger than {ARGUMENTS_SIZE_MAX} bytes"
        )
    else:
        return
    said.fault = fault
    said.raw = as_text.encode() if isinstance(as_text, str) else members(text)["arguments"]


# --- the result ----------------------------------------------------------------------------------


def _known_id(fields: JsonObject, task_id: str) -> str | None:
    said = fields.get("id")
    if said is not None:
        return said if isinstance(said, str) and is_uuid7(said) else None
    return task_id if is_uuid7(task_id) else None


class _Identity(NamedTuple):
    id: str
    key: str | None
    made: tuple[str, ...]
    """Names of those that the producer did not choose."""


def _identity(fields: JsonObject, task_id: str) -> _Identity | Reason:
    said_id, key = fields.get("id"), fields.get("key")
    assert said_id is None or isinstance(said_id, str)
    assert key is None or isinstance(key, str)
    if said_id is not None:
        return _Identity(said_id, key, ())
    if fields.get("auth") is not None or not 0 < len(task_id) <= TASK_ID_MAX:
        # The message around it is not signed: whoever replays it under another id would act twice.
        return missing("id")
    if is_uuid7(task_id):
        return _Identity(task_id, key, ("id",))
    if key is not None:
        return _Identity(new_id(), key, ("id",))
    # The same message may come again, sent twice by its producer or taken over from a dead intake:
    # its own id is the key under which the first one is found.
    return _Identity(new_id(), f"celery:{task_id}", ("id", "key"))


def _proposal(
    said: _Said, identity: _Identity, task_id: str, reply_to: str | None, wants_result: bool
) -> Proposal:
    fields: dict[str, Any] = said.fields  # every value has passed its check
    get = fields.get
    session, stage, priority = get("session"), get("stage"), get("priority")
    return proposal_with.made(
        id=identity.id,
        tool=fields["tool"],
        arguments=None if said.fault else fields["arguments"],
        session=session or DEFAULT_PLACE,
        stage=stage or DEFAULT_PLACE,
        arguments_fault=said.fault,
        raw_sha256=sha256_hex(said.raw) if said.fault else "",
        raw_size=len(said.raw),
        subject=get("subject"),
        route=get("route"),
        mode=get("mode"),
        key=identity.key,
        priority=PRIORITY_DEFAULT if priority is None else priority,
        deadline_ms=get("deadline_ms"),
        accept_until_us=get("accept_until_us"),
        repeat=get("repeat") or 0,
        cause=get("cause"),
        reply_to=reply_to,
        task_id=task_id,
        wants_result=wants_result,
        defaulted=_defaulted(identity, session, stage),
        auth=_auth_of(said, get("auth")),
    )


def _defaulted(identity: _Identity, session: str | None, stage: str | None) -> tuple[str, ...]:
    places = ("session",) * (session is None) + ("stage",) * (stage is None)
    return identity.made + places


def _auth_of(said: _Said, auth: dict[str, str] | None) -> ProposalAuth | None:
    return None if auth is None else ProposalAuth(**auth, content_digest=said.content_digest)

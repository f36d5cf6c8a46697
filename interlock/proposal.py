"""The wire form of one proposed invocation: reads it strictly, and refuses by name what it does not know.

What a producer says about itself is a claim: client and tenant come from a signature or a queue, never from
here. Judges neither tool nor rights, and has no clock.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from interlock.canonical import INTEGER_MAX, Json, JsonObject, canonical, digest_of, parse_json, sha256_hex
from interlock.decision import Reason
from interlock.errors import NotJsonError
from interlock.fragment import members
from interlock.identifier import is_uuid7, new_id
from interlock.seal import KeyRing, Purpose, Signer
from interlock.tier import SessionMode
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
DEADLINE_MS_MAX = 365 * 86_400_000
REPEAT_MAX = 1_000_000
PRIORITY_DEFAULT = 4
DEFAULT_PLACE = "default"
TASK_ID_MAX = TEXT_MAX - len("celery:")
_ARGUMENT_FIELDS = ("arguments", "arguments_json")

_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REPLY = re.compile(re.escape(REPLY_PREFIX) + r"[A-Za-z0-9._-]{1,128}")
_HEX_SIGNATURE = re.compile(r"[0-9a-f]{128}")


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
        return digest_of(
            [
                "interlock.request.v1",
                self.tool,
                self._content(),
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
        )

    def _content(self) -> Json:
        if self.arguments_fault is not None:
            return [self.arguments_fault.code, self.raw_sha256]
        return self.arguments

    def authenticated(self, client: str, tenant: str, *, signed: bool) -> Proposal:
        """The same proposal, with the client it was found to come from."""
        return _proposal_with(self, client=client, tenant=tenant, signed=signed)


_proposal_with = Variants(Proposal)


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """What could not be read as a proposal, with what is needed to answer it."""

    reason: Reason
    id: str | None = None
    reply_to: str | None = None
    task_id: str = ""
    wants_result: bool = False


# --- reading -------------------------------------------------------------------------------------


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
    envelope_reply = _text_or(reply_to, _REPLY)
    said = _Said({})
    try:
        _read(said, kwargs_json)
        reason = _first_fault(said.fields) or _take_arguments(said, kwargs_json)
    except NotJsonError as error:
        reason = _json_reason(error)
    reply = _text_or(said.fields.get("reply_to"), _REPLY) or envelope_reply
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


# --- fields --------------------------------------------------------------------------------------


def _text(value: Json) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX or not value.isprintable():
        return f"must be 1 to {TEXT_MAX} printable characters"
    return None


def _place(value: Json) -> str | None:
    if not isinstance(value, str) or not _PLACE.fullmatch(value):
        return "must be 1 to 128 of A-Z a-z 0-9 . _ - and begin with a letter or digit"
    return None


def _identifier(value: Json) -> str | None:
    return None if isinstance(value, str) and is_uuid7(value) else "must be a UUIDv7 in lower-case text"


def _integer(least: int, most: int) -> Callable[[Json], str | None]:
    def check(value: Json) -> str | None:
        if type(value) is not int or not least <= value <= most:
            return f"must be an integer from {least} to {most}"
        return None

    return check


def _mode(value: Json) -> str | None:
    known = [mode.value for mode in SessionMode]
    return None if value in known else f"must be one of {', '.join(known)}"


def _reply(value: Json) -> str | None:
    if isinstance(value, str) and _REPLY.fullmatch(value):
        return None
    return f"must be {REPLY_PREFIX} and 1 to 128 of A-Z a-z 0-9 . _ -"


def _auth(value: Json) -> str | None:
    if not isinstance(value, dict) or set(value) != {"client", "kid", "signature"}:
        return "must hold client, kid and signature, and nothing else"
    if _text(value["client"]) or _text(value["kid"]):
        return "needs client and kid as printable text"
    return None if _text_or(value["signature"], _HEX_SIGNATURE) else "needs a signature of 128 hex digits"


def _anything(_: Json) -> str | None:
    return None


def _string(value: Json) -> str | None:
    return None if isinstance(value, str) else "must be a string that holds JSON"


_CHECKS: Mapping[str, Callable[[Json], str | None]] = MappingProxyType(
    {
        "id": _identifier,
        "tool": _text,
        "arguments": _anything,
        "arguments_json": _string,
        "session": _place,
        "stage": _place,
        "subject": _text,
        "route": _text,
        "mode": _mode,
        "key": _text,
        "priority": _integer(0, 9),
        "deadline_ms": _integer(1, DEADLINE_MS_MAX),
        "accept_until_us": _integer(1, INTEGER_MAX),
        "repeat": _integer(0, REPEAT_MAX),
        "cause": _text,
        "reply_to": _reply,
        "auth": _auth,
    }
)
FIELDS = tuple(_CHECKS)
"""Every field of a proposal; there are no others."""


def _first_fault(fields: JsonObject) -> Reason | None:
    for name, value in fields.items():
        check = _CHECKS.get(name)
        if check is None:
            return _unknown(name)
        wrong = check(value) if value is not None else None
        if wrong:
            code = "ID_NOT_UUID7" if name == "id" else "FIELD_INVALID"
            return Reason(code=code, sentence=f"{name} {wrong}")
    return _missing("tool") if fields.get("tool") is None else None


def _unknown(name: str) -> Reason:
    near = difflib.get_close_matches(name[:64], FIELDS, n=1, cutoff=0.6)
    hint = f"; the nearest is {near[0]}" if near else ""
    return Reason(code="UNKNOWN_FIELD", sentence=f"a proposal has no field {name[:64]!a}{hint}")


def _missing(name: str) -> Reason:
    return Reason(code="FIELD_MISSING", sentence=f"{name} is missing")


def _text_or(value: Json | None, form: re.Pattern[str]) -> str | None:
    return value if isinstance(value, str) and form.fullmatch(value) else None


def _known_id(fields: JsonObject, task_id: str) -> str | None:
    said = fields.get("id")
    if said is not None:
        return said if isinstance(said, str) and is_uuid7(said) else None
    return task_id if is_uuid7(task_id) else None


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
        return _missing("arguments")
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
        return _missing("id")
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
    return Proposal(
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


# --- signatures ----------------------------------------------------------------------------------


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

"""Celery messages as items of a Redis list: writes the smallest that Celery accepts, reads protocols 1 and 2.

Pure: bytes in, words out. Keyword arguments are cut out as the raw text they came as, so that whoever reads
them strictly sees a NaN or a key twice; options that nobody would honour are named, never dropped.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from interlock.canonical import Json, JsonObject, parse_json
from interlock.decision import Reason
from interlock.errors import NotJsonError
from interlock.fragment import elements, members
from interlock.proposal import REPLY_PREFIX, TEXT_MAX

ITEM_SIZE_MAX = 4_194_304
"""Bytes of one queue item; a larger one is never decoded."""
BODY_SIZE_MAX = ITEM_SIZE_MAX
BODY_DEPTH_MAX = 32

_BODY_HEAD, _BODY_TAIL = b"[[],", b",{}]"
# What Celery's own producers put around the keyword arguments of a call without positional ones.
_CELERY_HEAD = b"[[], "
_CELERY_TAIL = b', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
# The same without the options that a plain message leaves out.
_PLAIN_TAIL = b", {}]"
_USUAL = ((_CELERY_HEAD, _CELERY_TAIL), (_CELERY_HEAD, _PLAIN_TAIL), (_BODY_HEAD, _BODY_TAIL))
_SHOWN_ONLY = ("argsrepr", "kwargsrepr", "shadow")
"""Headers for people, which nobody here reads."""
_CANVAS = ("callbacks", "errbacks", "chain", "chord")
_OPTION_NAMES: Mapping[str, str] = {
    "callbacks": "link",
    "errbacks": "link_error",
    "timelimit": "time_limit",
    "expiration": "expires",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """One Celery message, as far as it concerns us."""

    task: str
    task_id: str
    kwargs_json: bytes
    """Raw text of the keyword arguments, not yet looked at."""
    reply_to: str | None
    """The reply list that the message names, None where it is none of ours."""
    wants_result: bool
    """Whether its producer may wait for a Celery result."""
    refused_options: tuple[str, ...] = ()
    """Options that nobody would honour, by the names a producer knows them by."""

    def refusal(self) -> Reason | None:
        """Why the message is refused as a whole; None for one that asks nothing we do not do."""
        if not self.refused_options:
            return None
        names = ", ".join(self.refused_options)
        return Reason(code="OPTION_UNSUPPORTED", sentence=f"not honoured here: {names}")


@dataclass(frozen=True, slots=True)
class NotAnEnvelope:
    """What is no Celery message at all; there is nobody to answer."""

    reason: Reason


# --- writing -------------------------------------------------------------------------------------


def encode_task(
    task: str,
    kwargs_json: bytes,
    *,
    queue: str,
    task_id: str,
    reply_to: str | None = None,
    ignore_result: bool = True,
) -> bytes:
    """The list item of one task message (protocol 2); the same arguments give the same bytes."""
    text = json.dumps
    body = (_BODY_HEAD + kwargs_json + _BODY_TAIL).decode()
    quoted_id = text(task_id)
    reply = f',"reply_to":{text(reply_to)}' if reply_to else ""
    return (
        f'{{"body":{text(body)},"content-encoding":"utf-8","content-type":"application/json",'
        f'"headers":{{"lang":"py","task":{text(task)},"id":{quoted_id},'
        f'"ignore_result":{"true" if ignore_result else "false"}}},'
        f'"properties":{{"correlation_id":{quoted_id}{reply},"delivery_mode":2,"priority":0,'
        f'"delivery_tag":{quoted_id},"delivery_info":{{"exchange":"","routing_key":{text(queue)}}}}}}}'
    ).encode()


# --- reading -------------------------------------------------------------------------------------


def decode_task(item: bytes) -> Envelope | NotAnEnvelope:
    """The Celery message in a list item, or why it is none. Never raises, whatever the item holds."""
    if len(item) > ITEM_SIZE_MAX:
        return _none("JSON_SIZE", f"the item has {len(item)} bytes, more than {ITEM_SIZE_MAX}")
    try:
        return _decoded(item)
    except NotJsonError as error:
        return _none("NOT_AN_ENVELOPE", f"{error.code}: {error.detail}")
    except _NotAnEnvelopeError as error:
        return _none("NOT_AN_ENVELOPE", str(error))


class _NotAnEnvelopeError(ValueError):
    """What is missing or wrong in an item."""


def _none(code: str, sentence: str) -> NotAnEnvelope:
    return NotAnEnvelope(Reason(code=code, sentence=sentence[:512]))


def _decoded(item: bytes) -> Envelope:
    outer = _outer(item)
    headers, properties = _object(outer, "headers"), _object(outer, "properties")
    if "task" in headers:
        return _protocol_2(outer, headers, properties)
    return _protocol_1(outer, properties)


def _outer(item: bytes) -> JsonObject:
    try:
        outer = parse_json(item, size_bytes_max=ITEM_SIZE_MAX)
    except NotJsonError as error:
        if error.code not in ("JSON_NUL", "JSON_UNICODE"):
            raise
        return _outer_in_pieces(item)
    if not isinstance(outer, dict):
        raise _NotAnEnvelopeError("the item is no object")
    return outer


def _outer_in_pieces(item: bytes) -> JsonObject:
    """Celery shows the arguments in headers of its own, where their NULs and half characters stand again."""
    pieces = members(item)
    shown = members(pieces.pop("headers", b"{}"))
    headers = {name: parse_json(raw) for name, raw in shown.items() if name not in _SHOWN_ONLY}
    outer: JsonObject = {name: parse_json(raw, size_bytes_max=ITEM_SIZE_MAX) for name, raw in pieces.items()}
    return outer | {"headers": headers}


def _object(outer: JsonObject, name: str) -> JsonObject:
    value = outer.get(name)
    if not isinstance(value, dict):
        raise _NotAnEnvelopeError(f"{name} is no object")
    return value


def _protocol_2(outer: JsonObject, headers: JsonObject, properties: JsonObject) -> Envelope:
    unread = () if _is_plain_json(outer, headers) else tuple(_encodings(outer, headers))
    options = _refused(headers, ("eta", "expires", "group", "timelimit"))
    kwargs_json = b"{}"
    if not unread:
        kwargs_json, inner = _cut_body_2(_body(outer, properties))
        options += inner
    ignore = headers.get("ignore_result")
    return Envelope(
        task=_text(headers, "task"),
        task_id=_text(headers, "id"),
        kwargs_json=kwargs_json,
        reply_to=_reply_to(properties),
        wants_result=ignore is not True,
        refused_options=_once(unread + options, properties),
    )


def _cut_body_2(body: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Raw keyword arguments, and the refused options among what surrounds them.

    The usual forms are cut without being read: where the middle is no single value, reading it fails.
    """
    for head, tail in _USUAL:
        if body.startswith(head) and body.endswith(tail) and len(body) > len(head) + len(tail):
            return body[len(head) : -len(tail)], ()
    pieces = elements(body)
    if len(pieces) != 3:
        raise _NotAnEnvelopeError(f"the body has {len(pieces)} elements, not 3")
    positional, kwargs_json, embedded = pieces
    inner = parse_json(embedded, depth_max=BODY_DEPTH_MAX)
    canvas = _refused(inner, _CANVAS) if isinstance(inner, dict) else ()
    return kwargs_json, _positional(parse_json(positional)) + canvas


def _protocol_1(outer: JsonObject, properties: JsonObject) -> Envelope:
    headers = _object(outer, "headers")
    if any(True for _ in _encodings(outer, headers)):
        raise _NotAnEnvelopeError("the body is not plain JSON, and nothing beside it says what it is")
    pieces = members(_body(outer, properties))
    kwargs_json = pieces.pop("kwargs", b"{}")
    body = {name: parse_json(raw, depth_max=BODY_DEPTH_MAX) for name, raw in pieces.items()}
    options = _refused(body, ("eta", "expires", "group", "taskset", "timelimit", *_CANVAS))
    return Envelope(
        task=_text(body, "task"),
        task_id=_text(body, "id"),
        kwargs_json=kwargs_json,
        reply_to=_reply_to(properties),
        wants_result=True,
        refused_options=_once(_positional(body.get("args")) + options, properties),
    )


def _is_plain_json(outer: JsonObject, headers: JsonObject) -> bool:
    """Whether `_encodings` finds nothing, for what nearly every message says."""
    return (
        outer.get("content-type") == "application/json"
        and outer.get("content-encoding") == "utf-8"
        and not headers.get("compression")
    )


def _encodings(outer: JsonObject, headers: JsonObject) -> Iterator[str]:
    """Names of what makes the body unreadable here."""
    if outer.get("content-type") != "application/json":
        yield "serializer"
    if str(outer.get("content-encoding")).lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        yield "content-encoding"
    if headers.get("compression"):
        yield "compression"


def _body(outer: JsonObject, properties: JsonObject) -> bytes:
    body, encoding = outer.get("body"), properties.get("body_encoding")
    if not isinstance(body, str):
        raise _NotAnEnvelopeError("body is no text")
    if encoding is None:
        return body.encode()
    if encoding != "base64":
        raise _NotAnEnvelopeError(f"body_encoding is {encoding!a:.64}, not base64")
    try:
        return binascii.a2b_base64(body, strict_mode=True)
    except ValueError:
        return _body_padded_oddly(body)


def _body_padded_oddly(body: str) -> bytes:
    """What the strict reading refuses for its padding alone is read all the same."""
    try:
        return base64.b64decode(body, validate=True)
    except ValueError:
        raise _NotAnEnvelopeError("body is not base64") from None


def _refused(said: JsonObject, names: tuple[str, ...]) -> tuple[str, ...]:
    """The options among these that ask for something."""
    told = [name for name in names if said.get(name) is not None]
    return tuple(_refused_told(said, told)) if told else ()


def _refused_told(said: JsonObject, names: list[str]) -> Iterator[str]:
    for name in names:
        value = said[name]
        empty = value == [] or value == [None, None] or value is False
        if not empty and not (name == "taskset" and value == said.get("group")):
            yield _OPTION_NAMES.get(name, name)


def _positional(value: Json) -> tuple[str, ...]:
    return () if value in (None, []) else ("args",)


def _once(options: tuple[str, ...], properties: JsonObject) -> tuple[str, ...]:
    expiration = _refused(properties, ("expiration",))
    return tuple(dict.fromkeys((*options, *expiration))) if options or expiration else ()


def _text(said: JsonObject, name: str) -> str:
    value: Any = said.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX or not value.isprintable():
        raise _NotAnEnvelopeError(f"{name} must be 1 to {TEXT_MAX} printable characters")
    return value


def _reply_to(properties: JsonObject) -> str | None:
    value = properties.get("reply_to")
    ours = isinstance(value, str) and value.startswith(REPLY_PREFIX) and len(value) <= TEXT_MAX
    return str(value) if ours else None

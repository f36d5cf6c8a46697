"""The fields of a proposal on the wire: which there are, and what each of them may hold.

Looks at one value at a time and refuses by name; never mends what it finds, and never reads text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from interlock.canonical import INTEGER_MAX, Json, JsonObject
from interlock.decision import Reason
from interlock.identifier import is_uuid7
from interlock.proposal import REPLY_PREFIX, TEXT_MAX
from interlock.tier import SessionMode

DEADLINE_MS_MAX = 365 * 86_400_000
REPEAT_MAX = 1_000_000

_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REPLY = re.compile(re.escape(REPLY_PREFIX) + r"[A-Za-z0-9._-]{1,128}")
_HEX_SIGNATURE = re.compile(r"[0-9a-f]{128}")


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


def first_fault(fields: JsonObject) -> Reason | None:
    """Why these are no fields of a proposal, by the first that is at fault; None where every one is good."""
    for name, value in fields.items():
        check = _CHECKS.get(name)
        if check is None:
            return _unknown(name)
        wrong = check(value) if value is not None else None
        if wrong:
            code = "ID_NOT_UUID7" if name == "id" else "FIELD_INVALID"
            return Reason(code=code, sentence=f"{name} {wrong}")
    return missing("tool") if fields.get("tool") is None else None


def _unknown(name: str) -> Reason:
    near = difflib.get_close_matches(name[:64], FIELDS, n=1, cutoff=0.6)
    hint = f"; the nearest is {near[0]}" if near else ""
    return Reason(code="UNKNOWN_FIELD", sentence=f"a proposal has no field {name[:64]!a}{hint}")


def missing(name: str) -> Reason:
    """The reason that names a field which had to be said."""
    return Reason(code="FIELD_MISSING", sentence=f"{name} is missing")


def reply_list(value: Json | None) -> str | None:
    """The value where it is the name of a reply list of ours, None where it is anything else."""
    return _text_or(value, _REPLY)


def _text_or(value: Json | None, form: re.Pattern[str]) -> str | None:
    return value if isinstance(value, str) and form.fullmatch(value) else None

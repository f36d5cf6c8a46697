"""Says in words what the form of a contract has against it. Pure; judges nothing by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from interlock.contract import Effects, Limits, SandboxNeeds, Tool
from interlock.decision import Reason

_SET_HERE = frozenset(("catalogue", "executor"))
_PARTS: Mapping[str, Any] = MappingProxyType(
    {"": Tool, "effects": Effects, "sandbox": SandboxNeeds, "limits": Limits}
)
_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "bool_type": "true or false",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "string_type": "a string",
        "tuple_type": "a list",
        "list_type": "a list",
        "dict_type": "an object",
        "model_type": "an object",
        "model_attributes_type": "an object",
    }
)


def form_reasons(called: str, error: ValidationError) -> Iterator[Reason]:
    """One reason for each fault of a contract's form, by the name of its tool and the place within it."""
    for fault in error.errors(include_url=False):
        loc = [str(part) for part in fault["loc"]]
        said = _words(fault, loc)
        pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in loc)
        yield Reason(code="CATALOGUE_INVALID", sentence=f"tool {called}: {said}"[:1_000], pointer=pointer)


def _words(fault: Any, loc: list[str]) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    at = ".".join(loc) or "the contract"
    match kind:
        case "missing":
            return f"{at} is missing"
        case "extra_forbidden":
            return f"there is no field {at}; known are {_known(loc)}"
        case "enum" | "literal_error":
            return f"{at} is {context['expected']}, not {_short(fault['input'])}"
        case "string_pattern_mismatch":
            return f"{at} is {_short(fault['input'])}, which does not match {context['pattern']}"
        case "greater_than_equal":
            return f"{at} is at least {context['ge']}, not {_short(fault['input'])}"
        case "less_than_equal":
            return f"{at} is at most {context['le']}, not {_short(fault['input'])}"
        case "string_too_long":
            return f"{at} has at most {context['max_length']} characters"
        case "string_too_short":
            return f"{at} has at least {context['min_length']} characters"
        case _ if kind in _KINDS:
            return f"{at} is {_KINDS[kind]}, not {_short(fault['input'])}"
        case _:
            return f"{at} cannot be used: {fault['msg']}"


def _known(loc: list[str]) -> str:
    part = _PARTS.get(loc[0] if len(loc) > 1 else "", Tool)
    return ", ".join(name for name in part.model_fields if name not in _SET_HERE)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"

"""Sensitive parameters: sealed at rest, masked where shown. `governance.secrecy` says which they are.

The hash of the arguments is always taken over their true values. Holds no key; sealing is a port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from interlock.canonical import Json, JsonObject, canonical, parse_json

SEALED = "$sealed"
MASK = "[masked]"


class Sealer(Protocol):
    """Encryption under a key of the installation."""

    def seal(self, plain: bytes, context: bytes) -> str:
        """Sealed text; opens only with the same context."""
        ...

    def open(self, sealed: str, context: bytes) -> bytes:
        """What was sealed; raises ValueError when it was changed or the context differs."""
        ...


@dataclass(slots=True)
class _Tree:
    """Places to change: by step, or here."""

    steps: dict[str, _Tree] = field(default_factory=dict)
    here: str | None = None


def _tree(pointers: Sequence[str]) -> _Tree:
    """Shorter pointers first: what lies below a changed value is part of it and never changed by itself."""
    root = _Tree()
    for pointer in sorted(pointers, key=len):
        node = root
        for step in _steps(pointer):
            if node.here is not None:
                break
            node = node.steps.setdefault(step, _Tree())
        else:
            node.here = pointer
    return root


def _steps(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _changed(value: Any, tree: _Tree, change: Callable[[str, Any], Any]) -> Any:
    """A copy of JSON with the values at these places changed; places that it lacks are passed over."""
    if tree.here is not None:
        return change(tree.here, value)
    if not tree.steps:
        return value
    if isinstance(value, list):
        parts = [tree.steps.get(str(index)) for index in range(len(value))]
        return [
            item if part is None else _changed(item, part, change)
            for item, part in zip(value, parts, strict=True)
        ]
    if isinstance(value, dict):
        return {
            key: _changed(item, tree.steps[key], change) if key in tree.steps else item
            for key, item in value.items()
        }
    return value


def sealed_arguments(
    arguments: JsonObject, pointers: Sequence[str], sealer: Sealer, invocation_id: str
) -> JsonObject:
    """The arguments as they are stored: each sensitive value sealed for this invocation and place."""

    def seal(pointer: str, value: Json) -> Json:
        return {SEALED: sealer.seal(canonical(value), f"{invocation_id}{pointer}".encode())}

    stored: JsonObject = _changed(arguments, _tree(pointers), seal)
    return stored


def opened_arguments(
    stored: JsonObject, pointers: Sequence[str], sealer: Sealer, invocation_id: str
) -> JsonObject:
    """The true arguments of a stored invocation; raises ValueError when a seal does not open."""

    def opened(pointer: str, value: Any) -> Json:
        sealed = value.get(SEALED) if isinstance(value, dict) else None
        if not isinstance(sealed, str):
            raise ValueError(f"there is no seal at {pointer!r}")
        return parse_json(sealer.open(sealed, f"{invocation_id}{pointer}".encode()))

    arguments: JsonObject = _changed(stored, _tree(pointers), opened)
    return arguments


def masked_arguments(stored: JsonObject, pointers: Sequence[str]) -> JsonObject:
    """The arguments as people see them."""
    # All of them sealed together still are shown as an object.
    masked = _changed(stored, _tree(pointers), lambda pointer, _value: MASK if pointer else {SEALED: MASK})
    shown: JsonObject = masked
    return shown

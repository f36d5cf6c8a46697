"""Judges values by a schema that is ready, and says what is wrong in words that can be acted on.

Faults name places and keys, never the values found there, which may be secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol

from interlock.adapters.json_schema import EngineFault
from interlock.canonical import FrozenJson, Json, JsonObject, thaw
from interlock.subschema import Document, edges, pointer_of, thawed

FAULTS_MAX = 20
VALUE_DEPTH_MAX = 128


@dataclass(frozen=True, slots=True, order=True)
class SchemaFault:
    """What is wrong with one place of a value; `pointer` is its JSON Pointer in the value.

    For a key that is missing it is the pointer of the object. `known_nearest` is the known key that
    looks most like an unknown one.
    """

    pointer: str
    keyword: str
    message: str
    known_nearest: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Valid:
    """The value fits its schema."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """The value does not fit: at least one fault, at most twenty, in order of their pointers."""

    errors: tuple[SchemaFault, ...]


Validity = Valid | Invalid


class CompiledEngine(Protocol):
    """A schema that an engine holds ready."""

    def is_valid(self, value: Any) -> bool: ...

    def faults(self, value: Any) -> Iterator[EngineFault]: ...


class SchemaEngine(Protocol):
    """What the rules need of a validator: 2020-12, formats asserted, nothing fetched, linear patterns."""

    def compile(self, schema: dict[str, Any]) -> CompiledEngine: ...

    def is_pattern(self, pattern: str) -> bool: ...


class CompiledSchema:
    """A schema ready to judge values; immutable, safe to use from several threads."""

    def __init__(self, schema: JsonObject, engines: tuple[CompiledEngine, ...]) -> None:
        self._document = Document(schema)
        self._engines = engines

    @property
    def schema(self) -> JsonObject:
        """A fresh copy of the schema as it judges: closed, where it was closed."""
        return thawed(self._document.root)

    def validate(self, value: Json | FrozenJson) -> Validity:
        """Whether the value fits, with its faults (at most twenty) where not; never raises for JSON."""
        if not within_depth(value, VALUE_DEPTH_MAX):
            return Invalid((SchemaFault("", "depth", f"nested deeper than {VALUE_DEPTH_MAX}"),))
        # Where anything is frozen, the top is.
        frozen = isinstance(value, (MappingProxyType, tuple))
        plain: Any = thaw(value) if frozen else value
        if all(engine.is_valid(plain) for engine in self._engines):
            return Valid()
        return Invalid(self._faults(plain))

    def _faults(self, value: Any) -> tuple[SchemaFault, ...]:
        found = [
            fault for engine in self._engines for fault in _flat(islice(engine.faults(value), _FOUND_MAX))
        ]
        faults = {fault for raw in found for fault in self._told(raw, found)}
        if not faults:
            faults = {SchemaFault("", "schema", "the value does not fit its schema")}
        return tuple(sorted(faults)[:FAULTS_MAX])

    def _told(self, raw: EngineFault, found: list[EngineFault]) -> Iterator[SchemaFault]:
        if not raw.unexpected:
            yield SchemaFault(pointer_of(raw.place), raw.keyword, raw.message)
            return
        known = self._known_keys(raw.place)
        for name in raw.unexpected[:FAULTS_MAX]:
            place = (*raw.place, name)
            if name not in known:
                yield _unknown_key(place, raw.keyword, known)
            elif not any(other.place[: len(place)] == place for other in found):
                # It is known, but only to an alternative that the value does not fit.
                yield SchemaFault(pointer_of(place), raw.keyword, f"key {_shown(name)} does not belong here")

    def _known_keys(self, path: tuple[str | int, ...]) -> list[str]:
        """The names that any schema lists for the object at this place, sorted."""
        members = self._document.members([self._document.root])
        for step in path:
            members = self._document.members(_schemas_at(members, step))
        names: set[str] = set()
        for member in members:
            listed = member.get("properties")
            names.update(listed if isinstance(listed, dict) else ())
        return sorted(names)


_FOUND_MAX = 1_000


def _schemas_at(members: list[JsonObject], step: str | int) -> list[JsonObject]:
    """Schemas for a child; those for any child only where none names it."""
    exact = [
        c for member in members for edge, c in edges(member) if edge[0] != "wild" and edge[1] == str(step)
    ]
    wild = [
        c for member in members for edge, c in edges(member) if edge[0] == "wild" or edge == ("item", "*")
    ]
    wanted = exact if isinstance(step, str) and exact else [*exact, *wild]
    return [child for child in wanted if isinstance(child, dict)]


def _flat(faults: Iterable[EngineFault]) -> Iterator[EngineFault]:
    """Faults with those of the alternative that came closest, where a choice failed."""
    pending = list(faults)
    while pending:
        fault = pending.pop()
        yield fault
        branches = [branch for branch in fault.branches if branch]
        if branches:
            pending.extend(min(branches, key=_distance))


def _distance(branch: Iterable[EngineFault]) -> tuple[bool, int]:
    """A branch of another type is farthest; then the one with fewer faults is closer."""
    faults = list(branch)
    shallowest = min(len(fault.place) for fault in faults)
    other_type = any(
        fault.keyword in ("type", "const") and len(fault.place) == shallowest for fault in faults
    )
    return other_type, len(faults)


def _unknown_key(place: tuple[str | int, ...], keyword: str, known: list[str]) -> SchemaFault:
    name = str(place[-1])
    message = f"unknown key {_shown(name)}"
    nearest = _nearest(name, known)
    if nearest is not None:
        message += f"; the nearest known one is {_shown(nearest)}"
    return SchemaFault(pointer_of(place), keyword, message, nearest)


def _nearest(name: str, known: list[str]) -> str | None:
    if not known:
        return None
    bare = {_bare(candidate): candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(_bare(name[:128]), bare, n=1, cutoff=0.5)
    if close:
        return bare[close[0]]
    return known[0] if len(known) == 1 else None


def _bare(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 64 else name[:61] + "...")


def within_depth(value: object, depth: int) -> bool:
    if isinstance(value, (str, int, float)) or value is None:
        return True
    if isinstance(value, Mapping):
        return depth > 0 and all(within_depth(item, depth - 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return depth > 0 and all(within_depth(item, depth - 1) for item in value)
    return True

"""Judges schemas at registration, closes them, and judges values by them.

A schema is JSON Schema 2020-12 that stands on its own; nothing is ever fetched. Formats are asserted.
Faults name places and keys, never the values found there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from interlock import closing
from interlock.adapters.json_schema import EngineRefusedError, RustSchemaEngine
from interlock.canonical import FrozenJson, JsonObject, canonical
from interlock.errors import NotJsonError, SchemaError
from interlock.subschema import REFERENCES, Document, escaped, pointer_of, thawed
from interlock.validity import (
    CompiledEngine,
    CompiledSchema,
    Invalid,
    SchemaEngine,
    SchemaFault,
    Valid,
    Validity,
    within_depth,
)

__all__ = [
    "FORMATS",
    "CompiledEngine",
    "CompiledSchema",
    "Invalid",
    "Patterns",
    "Refusal",
    "SchemaEngine",
    "SchemaFault",
    "Valid",
    "Validity",
    "check_schema",
    "close_schema",
    "compile_schema",
    "self_check",
    "unknown_formats",
]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SIZE_BYTES_MAX = 262_144
DEPTH_MAX = 64
PLACES_MAX = 10_000
# How many schemas may apply to one value at once, counted along every path of references.
APPLIED_MAX = 10_000

FORMATS = frozenset(
    (
        "date-time",
        "date",
        "time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "uri",
        "uri-reference",
        "iri",
        "iri-reference",
        "uuid",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    )
)
"""The formats that are asserted; any other is a note."""

# Where a stricter part would make the whole laxer, the open schema is asked as well.
_TURNS_AROUND = frozenset(("oneOf", "not", "if", "contains"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schema is not registered: a stable code, one sentence, the JSON Pointer in the schema."""

    code: str
    message: str
    pointer: str = ""


class Patterns:
    """Patterns of one schema, matched as its validator matches them."""

    def __init__(self, engine: SchemaEngine | None = None) -> None:
        self._engine = engine or RustSchemaEngine()
        self._compiled: dict[str, CompiledEngine | None] = {}

    def matches(self, pattern: str, name: str) -> bool:
        """Whether a name fits; a pattern that the validator does not take fits every name."""
        if pattern not in self._compiled:
            try:
                self._compiled[pattern] = self._engine.compile({"pattern": pattern})
            except EngineRefusedError:
                self._compiled[pattern] = None
        compiled = self._compiled[pattern]
        return compiled is None or compiled.is_valid(name)


def close_schema(
    schema: Mapping[str, FrozenJson] | JsonObject, *, engine: SchemaEngine | None = None
) -> JsonObject:
    """A closed copy: `interlock.closing` says what is closed and what stays open."""
    return closing.close_schema(schema, matches=Patterns(engine).matches)


def check_schema(
    schema: Mapping[str, FrozenJson] | JsonObject,
    *,
    role: Literal["parameters", "output"],
    engine: SchemaEngine | None = None,
) -> list[Refusal]:
    """Why this schema may not be registered; an empty list where it may.

    `parameters` must be of `type: object` at the top; an output may be of any type.
    """
    refusal = _size_refusal(schema)
    if refusal is not None:
        return [refusal]
    document = Document(thawed(schema))
    refusals = [*_dialect_refusals(document), *_bound_refusals(document)]
    if role == "parameters" and document.root.get("type") != "object":
        refusals.append(Refusal("SCHEMA_NOT_OBJECT", "the schema does not say type: object at the top"))
    refusals.extend(_reference_refusals(document))
    # The engine is asked last and only about what is bounded and leads nowhere else.
    return refusals or _engine_refusals(document, engine or RustSchemaEngine())


def _size_refusal(schema: Mapping[str, FrozenJson] | JsonObject) -> Refusal | None:
    if not within_depth(schema, DEPTH_MAX):
        return Refusal("SCHEMA_UNBOUNDED", f"the schema is nested deeper than {DEPTH_MAX}")
    try:
        size_bytes = len(canonical(schema))
    except NotJsonError as error:
        return Refusal("SCHEMA_BAD", f"the schema is not JSON: {error.detail}")
    if size_bytes > SIZE_BYTES_MAX:
        return Refusal("SCHEMA_UNBOUNDED", f"the schema has {size_bytes} bytes, more than {SIZE_BYTES_MAX}")
    return None


def _dialect_refusals(document: Document) -> Iterator[Refusal]:
    for place in document.places.values():
        dialect = place.schema.get("$schema")
        if not isinstance(dialect, str) or dialect.removesuffix("#") == DIALECT:
            continue
        if place.schema is document.root or "//json-schema.org/" in dialect:
            yield Refusal("SCHEMA_DIALECT", f"$schema names {dialect[:200]}", f"{place.pointer}/$schema")


def _reference_refusals(document: Document) -> Iterator[Refusal]:
    for place in list(document.places.values()):
        for keyword in REFERENCES:
            if isinstance(place.schema.get(keyword), str):
                named, pointer = str(place.schema[keyword])[:200], f"{place.pointer}/{keyword}"
                if document.is_foreign(place.schema, keyword):
                    yield Refusal("SCHEMA_REMOTE_REF", f"{named} lies outside the document", pointer)
                elif document.is_dangling(place.schema, keyword):
                    yield Refusal("SCHEMA_BAD", f"{named} leads to no schema", pointer)


def _bound_refusals(document: Document) -> list[Refusal]:
    if len(document.places) > PLACES_MAX:
        return [Refusal("SCHEMA_UNBOUNDED", f"the schema has more than {PLACES_MAX} parts")]
    weights: dict[int, int] = {}
    for place in document.places.values():
        refusal = _weigh(document, place.schema, weights)
        if refusal is not None:
            return [refusal]
    return []


@dataclass(slots=True)
class _Step:
    schema: JsonObject
    parts: list[JsonObject]
    done: int = 0
    weight: int = 1


def _weigh(document: Document, start: JsonObject, weights: dict[int, int]) -> Refusal | None:
    """Count how many schemas apply to one value from here; a way back to itself never ends."""
    if id(start) in weights:
        return None
    path = [_Step(start, document.judged_with(start))]
    on_path = {id(start)}
    while path:
        step = path[-1]
        pointer = document.places[id(step.schema)].pointer
        if step.weight > APPLIED_MAX:
            return Refusal("SCHEMA_UNBOUNDED", f"more than {APPLIED_MAX} schemas apply at once", pointer)
        if step.done == len(step.parts):
            weights[id(step.schema)] = step.weight
            on_path.discard(id(step.schema))
            path.pop()
            continue
        part = step.parts[step.done]
        if id(part) in on_path:
            return Refusal("SCHEMA_SELF_REFERENCE", "the schema leads back to itself", pointer)
        if id(part) in weights:
            step.weight += weights[id(part)]
            step.done += 1
        else:
            on_path.add(id(part))
            path.append(_Step(part, document.judged_with(part)))
    return None


def _engine_refusals(document: Document, engine: SchemaEngine) -> list[Refusal]:
    try:
        engine.compile(document.root)
        engine.compile(close_schema(document.root, engine=engine))
    except EngineRefusedError as error:
        patterns = list(_pattern_refusals(document, engine))
        return patterns or [Refusal("SCHEMA_BAD", error.message, pointer_of(error.place))]
    except SchemaError as error:
        return [Refusal(error.code, error.message, error.pointer)]
    return []


def _pattern_refusals(document: Document, engine: SchemaEngine) -> Iterator[Refusal]:
    for place in document.places.values():
        pattern = place.schema.get("pattern")
        if isinstance(pattern, str) and not engine.is_pattern(pattern):
            yield Refusal("SCHEMA_PATTERN", _PATTERN.format(pattern[:100]), f"{place.pointer}/pattern")
        named = place.schema.get("patternProperties")
        for name in named if isinstance(named, dict) else ():
            if not engine.is_pattern(name):
                pointer = f"{place.pointer}/patternProperties/{escaped(name)}"
                yield Refusal("SCHEMA_PATTERN", _PATTERN.format(name[:100]), pointer)


_PATTERN = "the pattern {!r} is wrong, too large, or needs look-around or back-references"


def unknown_formats(schema: Mapping[str, FrozenJson] | JsonObject) -> tuple[tuple[str, str], ...]:
    """(JSON Pointer, name) of every `format` that is a note only, since its name is not asserted."""
    found = [
        (f"{place.pointer}/format", name)
        for place in Document(thawed(schema)).places.values()
        if isinstance(name := place.schema.get("format"), str) and name not in FORMATS
    ]
    return tuple(sorted(found))


def compile_schema(
    schema: Mapping[str, FrozenJson] | JsonObject, closed: bool, *, engine: SchemaEngine | None = None
) -> CompiledSchema:
    """A registered schema made ready, closed or as it stands. Raises `SchemaError` where it cannot be."""
    used = engine or RustSchemaEngine()
    plain = thawed(schema)
    try:
        if not closed:
            return CompiledSchema(plain, (used.compile(plain),))
        stricter = close_schema(plain, engine=used)
        engines = [used.compile(stricter)]
        if _turns_around(Document(plain)):
            # A stricter part can make `not` or `oneOf` laxer: closing must never accept more.
            engines.append(used.compile(plain))
    except EngineRefusedError as error:
        raise SchemaError("SCHEMA_BAD", error.message, pointer_of(error.place)) from None
    return CompiledSchema(stricter, tuple(engines))


def _turns_around(document: Document) -> bool:
    return any(_TURNS_AROUND & place.schema.keys() for place in document.places.values())


_ASSERTED = (
    ("date-time", "2026-01-01t00:00:00z", "tomorrow"),
    ("date-time", "2026-12-31T23:59:60Z", "2026-03-08T02:30:00"),
    ("date-time", "2026-12-31T15:59:60-08:00", "2026-02-30T00:00:00Z"),
    ("date", "2024-02-29", "2026-02-29"),
    ("time", "12:00:00Z", "25:00:00Z"),
    ("duration", "P1D", "1 day"),
    ("email", "a@example.org", "a"),
    ("hostname", "example.org", "-a-.example"),
    ("ipv4", "192.0.2.1", "192.0.2.256"),
    ("ipv6", "2001:db8::1", "2001:db8::g"),
    ("uri", "https://example.org/a", "a b"),
    ("uuid", "01a22dc3-21b0-727d-8888-7468387798f9", "01a22dc3"),
    ("json-pointer", "/a~1b", "a"),
    ("regex", "^a+$", "["),
)


def self_check(engine: SchemaEngine | None = None) -> list[str]:
    """What is wrong with the validator of this installation; empty where formats and bounds hold."""
    used = engine or RustSchemaEngine()
    wrong: list[str] = []
    for name, good, bad in _ASSERTED:
        compiled = used.compile({"format": name})
        if not compiled.is_valid(good):
            wrong.append(f"format {name} refuses {good}")
        if compiled.is_valid(bad):
            wrong.append(f"format {name} is not asserted: it accepts {bad}")
    wrong.extend(f"pattern {text} is not refused" for text in ("[", "(?=a)b") if used.is_pattern(text))
    try:
        used.compile({"$ref": "file:///dev/null"})
    except EngineRefusedError:
        return wrong
    return [*wrong, "a reference to a file was followed"]

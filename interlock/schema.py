"""Judges schemas at registration, closes them, and judges values by them.

A schema is JSON Schema 2020-12 that stands on its own; nothing is ever fetched. Formats are asserted.
Faults name places and keys, never the values found there.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, Protocol
from urllib.parse import quote, unquote, urldefrag, urljoin

from interlock.adapters.json_schema import EngineFault, EngineRefusedError, RustSchemaEngine
from interlock.canonical import FrozenJson, Json, JsonObject, canonical, thaw
from interlock.errors import NotJsonError, SchemaError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SIZE_BYTES_MAX = 262_144
DEPTH_MAX = 64
PLACES_MAX = 10_000
# How many schemas may apply to one value at once, counted along every path of references.
APPLIED_MAX = 10_000
FAULTS_MAX = 20
VALUE_DEPTH_MAX = 128

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

_METASCHEMAS = "https://json-schema.org/draft/2020-12/"
_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef")
_IN_PLACE = frozenset((*_ALTERNATIVES, *_CONDITIONS, *_REFERENCES, "dependentSchemas"))
_SINGLE = (
    "if",
    "then",
    "else",
    "not",
    "items",
    "contains",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
# Where a stricter part would make the whole laxer, the open schema is asked as well.
_TURNS_AROUND = frozenset(("oneOf", "not", "if", "contains"))


# --- answers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schema is not registered: a stable code, one sentence, the JSON Pointer in the schema."""

    code: str
    message: str
    pointer: str = ""


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


# --- the parts of a schema and their references --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    schema: JsonObject
    pointer: str
    base: str


class _Document:
    """All subschemas of one schema, with what every reference in it leads to."""

    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self.places: dict[int, _Place] = {}
        self.resources: dict[str, JsonObject] = {"": root}
        self.anchors: dict[str, JsonObject] = {}
        self.dynamic: dict[str, list[JsonObject]] = {}
        self.has_ids = False
        self._walk(root, "", "")
        # What a reference leads to may lie where no keyword expects a schema.
        for place in list(self.places.values()):
            for keyword in _REFERENCES:
                self.target(place.schema, keyword)

    def _walk(self, schema: Json, pointer: str, base: str) -> None:
        pending = [(schema, pointer, base)]
        while pending:
            item, at, inherited = pending.pop()
            if not isinstance(item, dict) or id(item) in self.places:
                continue
            here = self._named(item, inherited)
            self.places[id(item)] = _Place(item, at, here)
            pending.extend((child, at + step, here) for step, child in _children(item))

    def _named(self, schema: JsonObject, inherited: str) -> str:
        base = inherited
        identity = schema.get("$id")
        if isinstance(identity, str):
            base = urldefrag(urljoin(inherited, identity))[0]
            self.resources[base] = schema
            self.has_ids = True
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self.anchors.setdefault(f"{base}#{anchor}", schema)
                if keyword == "$dynamicAnchor":
                    self.dynamic.setdefault(anchor, []).append(schema)
        return base

    def target(self, schema: JsonObject, keyword: str) -> JsonObject | None:
        """What the reference under this keyword leads to; None for nothing, a bool, or a metaschema."""
        reference = schema.get(keyword)
        if not isinstance(reference, str):
            return None
        uri, fragment = self._address(schema, reference)
        found: Json
        if fragment and not fragment.startswith("/"):
            found = self.anchors.get(f"{uri}#{fragment}")
        else:
            found = _at_pointer(self.resources.get(uri), fragment)
        if not isinstance(found, dict):
            return None
        if id(found) not in self.places:
            self._walk(found, self._pointer_of(uri) + fragment, uri)
        return found

    def _address(self, schema: JsonObject, reference: str) -> tuple[str, str]:
        base = self.places[id(schema)].base
        if reference.startswith("#"):
            return base, unquote(reference[1:])
        uri, fragment = urldefrag(urljoin(base, reference))
        return uri, unquote(fragment)

    def _pointer_of(self, uri: str) -> str:
        return self.places[id(self.resources[uri])].pointer

    def reference_refusal(self, place: _Place, keyword: str) -> Refusal | None:
        reference = place.schema.get(keyword)
        if not isinstance(reference, str) or self.target(place.schema, keyword) is not None:
            return None
        uri, fragment = self._address(place.schema, reference)
        pointer = f"{place.pointer}/{keyword}"
        if uri in self.resources:
            if isinstance(_at_pointer(self.resources[uri], fragment), bool):
                return None
            return Refusal("SCHEMA_BAD", f"{reference[:200]} leads to no schema", pointer)
        if uri.startswith(_METASCHEMAS):
            return None
        return Refusal("SCHEMA_REMOTE_REF", f"{reference[:200]} lies outside the document", pointer)

    def applied_with(self, schema: JsonObject) -> Iterator[JsonObject]:
        """What may apply to the same value and tell of its keys: combinators and references, one step."""
        yield from self._combined_with(schema)
        yield from self._dynamic_targets(schema)

    def judged_with(self, schema: JsonObject) -> list[JsonObject]:
        """What is surely asked about the same value, what stands under `not` included; one step."""
        return [*self._combined_with(schema), *_objects([schema.get("not")])]

    def _combined_with(self, schema: JsonObject) -> Iterator[JsonObject]:
        for keyword in _ALTERNATIVES:
            yield from _objects(schema.get(keyword))
        for keyword in _CONDITIONS:
            yield from _objects([schema.get(keyword)])
        dependent = schema.get("dependentSchemas")
        if isinstance(dependent, dict):
            yield from _objects(list(dependent.values()))
        for keyword in _REFERENCES:
            target = self.target(schema, keyword)
            if target is not None:
                yield target

    def _dynamic_targets(self, schema: JsonObject) -> Iterator[JsonObject]:
        reference = schema.get("$dynamicRef")
        if isinstance(reference, str):
            yield from self.dynamic.get(reference.rpartition("#")[2], ())

    def members(self, seeds: Iterable[JsonObject]) -> list[JsonObject]:
        """The seeds and all that applies with them to the same value, in a fixed order."""
        found: dict[int, JsonObject] = {}
        pending = list(seeds)
        while pending:
            schema = pending.pop(0)
            if id(schema) not in found:
                found[id(schema)] = schema
                pending.extend(self.applied_with(schema))
        return list(found.values())


def _children(schema: JsonObject) -> Iterator[tuple[str, Json]]:
    for keyword in _SINGLE:
        if keyword in schema:
            yield f"/{keyword}", schema[keyword]
    for keyword in _LISTS:
        items = schema.get(keyword)
        if isinstance(items, list):
            for index, item in enumerate(items):
                yield f"/{keyword}/{index}", item
    for keyword in _MAPS:
        named = schema.get(keyword)
        if isinstance(named, dict):
            for name, item in named.items():
                yield f"/{keyword}/{_escaped(name)}", item


def _objects(items: Json) -> Iterator[JsonObject]:
    if isinstance(items, list):
        for item in items:
            if isinstance(item, dict):
                yield item


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _pointer(path: Iterable[str | int]) -> str:
    return "".join(f"/{_escaped(str(step))}" for step in path)


def _at_pointer(value: Json, pointer: str) -> Json:
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and name.isascii() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


# --- closing -------------------------------------------------------------------------------------


def close_schema(
    schema: Mapping[str, FrozenJson] | JsonObject, *, engine: SchemaEngine | None = None
) -> JsonObject:
    """A copy in which object schemas that list keys and say nothing of further ones refuse those.

    A place is closed once, outside its combinators, so that parts which only together describe an object
    still accept it. Where several parts of a composition describe the same property, that property is
    closed by what all of them list. Left open are: what stands under `not`, `if`, `contains` and
    `propertyNames`; the top of a schema that is also a part of a larger composition; and what a pattern or
    `additionalProperties` of one part may describe together with another part.
    """
    root = _thawed(schema)
    _Closer(_Document(root), engine or RustSchemaEngine()).close()
    return root


def _thawed(schema: Mapping[str, FrozenJson] | JsonObject) -> JsonObject:
    copy = thaw(schema)
    if not isinstance(copy, dict):
        raise SchemaError("SCHEMA_BAD", "a schema is an object here")
    return copy


_Edge = tuple[str, str]  # ("key", name), ("wild", pattern or "*"), ("item", index or "*")
# Which branches of which alternatives lead to a member: pairs of (identity of the owner, branch).
_Route = frozenset[tuple[int, int]]


@dataclass(slots=True)
class _Source:
    """A schema for children of a place, and how the member that holds it is reached."""

    schema: JsonObject
    member: int
    routes: list[_Route]

    def may_join(self, other: _Source) -> bool:
        """Whether both can apply at once: not where they stand in different branches of one choice."""
        return any(_compatible(one, two) for one in self.routes for two in other.routes)


def _compatible(one: _Route, other: _Route) -> bool:
    taken = dict(one)
    return all(taken.get(owner, branch) == branch for owner, branch in other)


@dataclass(slots=True)
class _Group:
    """The schemas that apply to one place of a value, from the seeds on which the others hang."""

    seeds: list[JsonObject]
    members: list[tuple[JsonObject, list[_Route]]]
    children: list[tuple[_Edge, _Group]] = field(default_factory=list)

    @property
    def marks(self) -> frozenset[int]:
        return frozenset(id(seed) for seed in self.seeds)

    @property
    def lists_keys(self) -> bool:
        return any("properties" in member or "patternProperties" in member for member, _ in self.members)

    @property
    def is_silent(self) -> bool:
        """Whether no seed says what becomes of further keys."""
        return not any(
            "additionalProperties" in seed or "unevaluatedProperties" in seed for seed in self.seeds
        )


class _Closer:
    """Finds which schemas apply together at every place, then closes each place once; used once."""

    def __init__(self, document: _Document, engine: SchemaEngine) -> None:
        self._document = document
        self._engine = engine
        self._groups: dict[frozenset[int], _Group] = {}
        self._shared: set[int] = set()
        self._open: set[int] = set()
        self._written: dict[frozenset[int], JsonObject] = {}
        self._to_wrap: list[tuple[_Group, JsonObject]] = []

    def close(self) -> None:
        for place in self._document.places.values():
            _list_keys_of_condition(place.schema)
        self._explore()
        self._find_shared()
        closable = [group for group in self._groups.values() if self._may_close_itself(group)]
        for group in closable:
            seed = group.seeds[0]
            seed["unevaluatedProperties" if _IN_PLACE & seed.keys() else "additionalProperties"] = False
        self._close_shared()

    # Which schemas apply together.

    def _explore(self) -> None:
        pending = [self._group([self._document.root])]
        done: set[frozenset[int]] = set()
        while pending:
            group = pending.pop()
            if group.marks in done or len(done) >= PLACES_MAX:
                continue
            done.add(group.marks)
            for edge, seeds in self._child_seeds(group):
                child = self._group(seeds)
                group.children.append((edge, child))
                pending.append(child)

    def _group(self, seeds: list[JsonObject]) -> _Group:
        marks = frozenset(id(seed) for seed in seeds)
        if marks not in self._groups:
            self._groups[marks] = _Group(seeds, self._members(seeds))
        return self._groups[marks]

    def _members(self, seeds: list[JsonObject]) -> list[tuple[JsonObject, list[_Route]]]:
        found: dict[int, tuple[JsonObject, list[_Route]]] = {}
        pending: list[tuple[JsonObject, _Route]] = [(seed, frozenset()) for seed in seeds]
        while pending:
            schema, route = pending.pop(0)
            _, routes = found.setdefault(id(schema), (schema, []))
            if route in routes or len(routes) >= _ROUTES_MAX:
                continue
            routes.append(route)
            pending.extend(self._steps(schema, route))
        return list(found.values())

    def _steps(self, schema: JsonObject, route: _Route) -> Iterator[tuple[JsonObject, _Route]]:
        branches = [*_objects(schema.get("oneOf"))]
        exclusive = {id(branch): index for index, branch in enumerate(branches)}
        for index, keyword in enumerate(("then", "else")):
            branch = schema.get(keyword)
            if isinstance(branch, dict):
                exclusive[id(branch)] = -1 - index
        for part in self._document.applied_with(schema):
            index_of = exclusive.get(id(part))
            if index_of is None:
                yield part, route
            else:
                owner = id(schema) if index_of >= 0 else -id(schema)
                yield part, route | {(owner, index_of)}

    def _child_seeds(self, group: _Group) -> list[tuple[_Edge, list[JsonObject]]]:
        sources: dict[_Edge, list[_Source]] = {}
        for member, routes in group.members:
            for edge, child in _edges(member):
                if isinstance(child, dict) and not _is_inert(child):
                    sources.setdefault(edge, []).append(_Source(child, id(member), routes))
        self._leave_vague_open(sources)
        seeds: list[tuple[_Edge, list[JsonObject]]] = []
        for edge, found in sources.items():
            seeds.extend((edge, joined) for joined in _joined(found))
        return seeds

    def _leave_vague_open(self, sources: dict[_Edge, list[_Source]]) -> None:
        for edge, found in sources.items():
            for other, others in sources.items():
                if edge[0] != "key" and edge != other:
                    for one, two in ((one, two) for one in found for two in others):
                        if one.may_join(two) and self._may_meet(edge, other, one.member == two.member):
                            self._open |= {id(one.schema), id(two.schema)}

    def _may_meet(self, edge: _Edge, other: _Edge, same_member: bool) -> bool:
        """Whether a wild or item edge leads to the same value as another edge of its group."""
        if (edge[0] == "item") != (other[0] == "item"):
            return False
        if edge[0] == "item":
            return "*" in (edge[1], other[1]) and not same_member
        if "*" in (edge[1], other[1]) and (edge[1] == "*" or other[0] == "wild"):
            return not same_member
        return other[0] == "wild" or self._matches(edge[1], other[1])

    def _matches(self, pattern: str, name: str) -> bool:
        try:
            return self._engine.compile({"pattern": pattern}).is_valid(name)
        except EngineRefusedError:
            return True

    # Which of them may be closed where they stand.

    def _find_shared(self) -> None:
        """Seeds that must not be closed by themselves, since elsewhere they apply beside others."""
        seeds = {id(seed) for group in self._groups.values() for seed in group.seeds}
        for group in self._groups.values():
            own = group.marks
            if len(own) > 1:
                self._shared |= own
            listing = [member for member, _ in group.members if "properties" in member]
            if len(listing) > 1:
                self._shared |= {id(member) for member, _ in group.members} & seeds - own

    def _may_close_itself(self, group: _Group) -> bool:
        marks = group.marks
        return (
            len(marks) == 1
            and not marks & (self._shared | self._open)
            and group.lists_keys
            and group.is_silent
        )

    # The others are closed from outside, in the schema above.

    def _close_shared(self) -> None:
        if self._document.has_ids:
            return  # pointers across resources would lead elsewhere
        root = self._document.root
        for group in self._groups.values():
            if len(group.seeds) == 1 and (group.seeds[0] is root or not group.marks & self._shared):
                self._to_wrap.append((group, group.seeds[0]))
        while self._to_wrap:
            self._wrap_children(*self._to_wrap.pop())

    def _wrap_children(self, group: _Group, owner: JsonObject) -> None:
        for edge, child in group.children:
            marks = child.marks
            if marks & self._open or not (len(marks) > 1 or marks & self._shared):
                continue
            if edge[0] == "key":
                _add_part(owner, {"properties": {edge[1]: self._wrapper(child)}})
            elif edge == ("item", "*"):
                _add_part(owner, {"items": self._wrapper(child)})

    def _wrapper(self, group: _Group) -> JsonObject:
        """A reference to the one definition that closes this group, made where there is none yet."""
        if group.marks in self._written:
            return dict(self._written[group.marks])
        name = f"interlock.closed.{len(self._written)}"
        self._written[group.marks] = {"$ref": f"#/$defs/{name}"}
        pointers = [self._document.places[id(seed)].pointer for seed in group.seeds]
        # Each part judges where it stands already; here it only says which keys it knows.
        parts: list[Json] = [{"$ref": "#" + _in_fragment(at)} for at in pointers]
        closed: JsonObject = {"anyOf": [*parts, True]}
        if group.lists_keys and group.is_silent:
            closed["unevaluatedProperties"] = False
        definitions = self._document.root.setdefault("$defs", {})
        if isinstance(definitions, dict):
            definitions[name] = closed
        self._to_wrap.append((group, closed))
        return dict(self._written[group.marks])


_ROUTES_MAX = 32


def _joined(sources: list[_Source]) -> Iterator[list[JsonObject]]:
    """Sources of one edge as groups of those that may apply together."""
    unlike = all(
        one.schema is two.schema or not one.may_join(two)
        for index, one in enumerate(sources)
        for two in sources[:index]
    )
    distinct = list({id(source.schema): source.schema for source in sources}.values())
    if unlike:
        yield from ([schema] for schema in distinct)
    else:
        yield distinct


def _list_keys_of_condition(schema: JsonObject) -> None:
    """A key that only `if` names is known all the same; without this it would be so while `if` holds."""
    condition = schema.get("if")
    named = condition.get("properties") if isinstance(condition, dict) else None
    if isinstance(named, dict):
        listed = schema.setdefault("properties", {})
        if isinstance(listed, dict):
            for name in named:
                listed.setdefault(name, True)


def _add_part(owner: JsonObject, part: JsonObject) -> None:
    parts = owner.setdefault("allOf", [])
    if isinstance(parts, list):
        parts.append(part)


def _in_fragment(pointer: str) -> str:
    return quote(pointer, safe="/~!$&'()*+,;=:@?-._")


def _edges(schema: JsonObject) -> Iterator[tuple[_Edge, Json]]:
    for keyword, kind in (("properties", "key"), ("patternProperties", "wild")):
        named = schema.get(keyword)
        if isinstance(named, dict):
            yield from (((kind, name), child) for name, child in named.items())
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            yield ("wild", "*"), schema[keyword]
    prefix = schema.get("prefixItems")
    if isinstance(prefix, list):
        yield from ((("item", str(index)), child) for index, child in enumerate(prefix))
    for keyword in ("items", "unevaluatedItems"):
        if keyword in schema:
            yield ("item", "*"), schema[keyword]


_DESCRIBES_CHILDREN = frozenset(
    (
        "properties",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "prefixItems",
        "items",
        "unevaluatedItems",
    )
)


def _is_inert(schema: JsonObject) -> bool:
    """Whether a schema neither lists keys nor leads to one that could."""
    return not (_IN_PLACE | _DESCRIBES_CHILDREN) & schema.keys()


# --- registration --------------------------------------------------------------------------------


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
    document = _Document(_thawed(schema))
    refusals = [*_dialect_refusals(document), *_bound_refusals(document)]
    if role == "parameters" and document.root.get("type") != "object":
        refusals.append(Refusal("SCHEMA_NOT_OBJECT", "the schema does not say type: object at the top"))
    references = [
        document.reference_refusal(place, keyword)
        for place in document.places.values()
        for keyword in _REFERENCES
    ]
    refusals.extend(found for found in references if found is not None)
    # The engine is asked last and only about what is bounded and leads nowhere else.
    return refusals or _engine_refusals(document, engine or RustSchemaEngine())


def _size_refusal(schema: Mapping[str, FrozenJson] | JsonObject) -> Refusal | None:
    if not _within_depth(schema, DEPTH_MAX):
        return Refusal("SCHEMA_UNBOUNDED", f"the schema is nested deeper than {DEPTH_MAX}")
    try:
        size_bytes = len(canonical(schema))
    except NotJsonError as error:
        return Refusal("SCHEMA_BAD", f"the schema is not JSON: {error.detail}")
    if size_bytes > SIZE_BYTES_MAX:
        return Refusal("SCHEMA_UNBOUNDED", f"the schema has {size_bytes} bytes, more than {SIZE_BYTES_MAX}")
    return None


def _within_depth(value: object, depth: int) -> bool:
    if isinstance(value, (str, int, float)) or value is None:
        return True
    if isinstance(value, Mapping):
        return depth > 0 and all(_within_depth(item, depth - 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return depth > 0 and all(_within_depth(item, depth - 1) for item in value)
    return True


def _dialect_refusals(document: _Document) -> Iterator[Refusal]:
    for place in document.places.values():
        dialect = place.schema.get("$schema")
        if not isinstance(dialect, str) or dialect.removesuffix("#") == DIALECT:
            continue
        if place.schema is document.root or "//json-schema.org/" in dialect:
            yield Refusal("SCHEMA_DIALECT", f"$schema names {dialect[:200]}", f"{place.pointer}/$schema")


def _bound_refusals(document: _Document) -> list[Refusal]:
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


def _weigh(document: _Document, start: JsonObject, weights: dict[int, int]) -> Refusal | None:
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


def _engine_refusals(document: _Document, engine: SchemaEngine) -> list[Refusal]:
    try:
        engine.compile(document.root)
    except EngineRefusedError as error:
        patterns = list(_pattern_refusals(document, engine))
        return patterns or [Refusal("SCHEMA_BAD", error.message, _pointer(error.place))]
    return []


def _pattern_refusals(document: _Document, engine: SchemaEngine) -> Iterator[Refusal]:
    for place in document.places.values():
        pattern = place.schema.get("pattern")
        if isinstance(pattern, str) and not engine.is_pattern(pattern):
            yield Refusal("SCHEMA_PATTERN", _PATTERN.format(pattern[:100]), f"{place.pointer}/pattern")
        named = place.schema.get("patternProperties")
        for name in named if isinstance(named, dict) else ():
            if not engine.is_pattern(name):
                pointer = f"{place.pointer}/patternProperties/{_escaped(name)}"
                yield Refusal("SCHEMA_PATTERN", _PATTERN.format(name[:100]), pointer)


_PATTERN = "the pattern {!r} is wrong, too large, or needs look-around or back-references"


def unknown_formats(schema: Mapping[str, FrozenJson] | JsonObject) -> tuple[tuple[str, str], ...]:
    """(JSON Pointer, name) of every `format` that is a note only, since its name is not asserted."""
    found = [
        (f"{place.pointer}/format", str(place.schema["format"]))
        for place in _Document(_thawed(schema)).places.values()
        if "format" in place.schema and place.schema["format"] not in FORMATS
    ]
    return tuple(sorted(found))


# --- judging values ------------------------------------------------------------------------------


class CompiledSchema:
    """A schema ready to judge values; immutable, safe to use from several threads."""

    def __init__(self, schema: JsonObject, engines: tuple[CompiledEngine, ...]) -> None:
        self._document = _Document(schema)
        self._engines = engines

    @property
    def schema(self) -> JsonObject:
        """A fresh copy of the schema as it judges: closed, where it was closed."""
        return _thawed(self._document.root)

    def validate(self, value: Json | FrozenJson) -> Validity:
        """Whether the value fits, with every fault (at most twenty) where it does not. Never raises."""
        if not _within_depth(value, VALUE_DEPTH_MAX):
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
            yield SchemaFault(_pointer(raw.place), raw.keyword, raw.message)
            return
        known = self._known_keys(raw.place)
        for name in raw.unexpected[:FAULTS_MAX]:
            place = (*raw.place, name)
            if name not in known:
                yield _unknown_key(place, raw.keyword, known)
            elif not any(other.place[: len(place)] == place for other in found):
                # It is known, but only to an alternative that the value does not fit.
                yield SchemaFault(_pointer(place), raw.keyword, f"key {_shown(name)} does not belong here")

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
        c for member in members for edge, c in _edges(member) if edge[0] != "wild" and edge[1] == str(step)
    ]
    wild = [
        c for member in members for edge, c in _edges(member) if edge[0] == "wild" or edge == ("item", "*")
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
    return SchemaFault(_pointer(place), keyword, message, nearest)


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


def compile_schema(
    schema: Mapping[str, FrozenJson] | JsonObject, closed: bool, *, engine: SchemaEngine | None = None
) -> CompiledSchema:
    """A registered schema made ready, closed or as it stands. Raises `SchemaError` where it cannot be."""
    used = engine or RustSchemaEngine()
    plain = _thawed(schema)
    try:
        if not closed:
            return CompiledSchema(plain, (used.compile(plain),))
        stricter = close_schema(plain, engine=used)
        engines = [used.compile(stricter)]
        if _turns_around(_Document(plain)):
            # A stricter part can make `not` or `oneOf` laxer: closing must never accept more.
            engines.append(used.compile(plain))
    except EngineRefusedError as error:
        raise SchemaError("SCHEMA_BAD", error.message, _pointer(error.place)) from None
    return CompiledSchema(stricter, tuple(engines))


def _turns_around(document: _Document) -> bool:
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

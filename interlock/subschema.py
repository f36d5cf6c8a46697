"""The parts of one JSON Schema document, what its references lead to, and what applies together.

Reads only: it judges nothing and never leaves the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urldefrag, urljoin

from interlock.canonical import FrozenJson, Json, JsonObject, thaw
from interlock.errors import SchemaError

_METASCHEMAS = "https://json-schema.org/draft/2020-12/"
_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else")
REFERENCES = ("$ref", "$dynamicRef")
IN_PLACE = frozenset((*_ALTERNATIVES, *_CONDITIONS, *REFERENCES, "dependentSchemas"))
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
SUBSCHEMAS = frozenset((*_SINGLE, *_LISTS, *_MAPS))
"""Every keyword that holds schemas."""


@dataclass(frozen=True, slots=True)
class Place:
    schema: JsonObject
    pointer: str
    base: str


class Document:
    """All subschemas of one schema, with what every reference in it leads to."""

    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self.places: dict[int, Place] = {}
        self.resources: dict[str, JsonObject] = {"": root}
        self.anchors: dict[str, JsonObject] = {}
        self.dynamic: dict[str, list[JsonObject]] = {}
        self.has_ids = False
        self._walk(root, "", "")
        # What a reference leads to may lie where no keyword expects a schema.
        for place in list(self.places.values()):
            for keyword in REFERENCES:
                self.target(place.schema, keyword)

    def _walk(self, schema: Json, pointer: str, base: str) -> None:
        pending = [(schema, pointer, base)]
        while pending:
            item, at, inherited = pending.pop()
            if not isinstance(item, dict) or id(item) in self.places:
                continue
            here = self._named(item, inherited)
            self.places[id(item)] = Place(item, at, here)
            pending.extend((child, at + step, here) for step, child in _children(item))

    def _named(self, schema: JsonObject, inherited: str) -> str:
        base = inherited
        identity = schema.get("$id")
        if isinstance(identity, str):
            base = _joined(inherited, identity)[0]
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
        uri, fragment = _joined(base, reference)
        return uri, unquote(fragment)

    def _pointer_of(self, uri: str) -> str:
        return self.places[id(self.resources[uri])].pointer

    def is_foreign(self, schema: JsonObject, keyword: str) -> bool:
        """Whether the reference leads out of the document, where nothing is ever fetched."""
        uri, _ = self._address(schema, str(schema[keyword]))
        return uri not in self.resources and not uri.startswith(_METASCHEMAS)

    def is_dangling(self, schema: JsonObject, keyword: str) -> bool:
        """Whether the reference leads to a place of the document where no schema is."""
        uri, fragment = self._address(schema, str(schema[keyword]))
        if uri not in self.resources or self.target(schema, keyword) is not None:
            return False
        return not isinstance(_at_pointer(self.resources[uri], fragment), bool)

    def applied_with(self, schema: JsonObject) -> Iterator[JsonObject]:
        """What may apply to the same value and tell of its keys: combinators and references, one step."""
        yield from self._combined_with(schema)
        yield from self._dynamic_targets(schema)

    def judged_with(self, schema: JsonObject) -> list[JsonObject]:
        """What is surely asked about the same value, what stands under `not` included; one step."""
        return [*self._combined_with(schema), *objects([schema.get("not")])]

    def _combined_with(self, schema: JsonObject) -> Iterator[JsonObject]:
        for keyword in _ALTERNATIVES:
            yield from objects(schema.get(keyword))
        for keyword in _CONDITIONS:
            yield from objects([schema.get(keyword)])
        dependent = schema.get("dependentSchemas")
        if isinstance(dependent, dict):
            yield from objects(list(dependent.values()))
        for keyword in REFERENCES:
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


def _joined(base: str, reference: str) -> tuple[str, str]:
    """Address and fragment of a reference; what is no address at all stands for itself, known to nobody."""
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        uri, _, fragment = reference.partition("#")
    return uri, fragment


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
                yield f"/{keyword}/{escaped(name)}", item


def objects(items: Json) -> Iterator[JsonObject]:
    if isinstance(items, list):
        for item in items:
            if isinstance(item, dict):
                yield item


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def pointer_of(path: Iterable[str | int]) -> str:
    return "".join(f"/{escaped(str(step))}" for step in path)


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


def thawed(schema: Mapping[str, FrozenJson] | JsonObject) -> JsonObject:
    copy = thaw(schema)
    if not isinstance(copy, dict):
        raise SchemaError("SCHEMA_BAD", "a schema is an object here")
    return copy


Edge = tuple[str, str]
"""("key", name), ("wild", pattern or "*"), ("item", index or "*"): how a place leads to its children."""


def edges(schema: JsonObject) -> Iterator[tuple[Edge, Json]]:
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

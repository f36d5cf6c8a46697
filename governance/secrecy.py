"""What a parameter schema marks `sensitive: true`: which places of a value, and which marks cannot be kept.

Never judges whether a part of the schema applies: every part that may apply to a value counts, so that too
much is sealed rather than too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from interlock.canonical import FrozenJson, Json, JsonObject
from interlock.decision import Reason
from interlock.schema import Patterns
from interlock.subschema import SUBSCHEMAS, Document, edges, escaped, objects, thawed

POINTERS_MAX = 1_000
"""More sensitive values than this are sealed as one: all arguments together."""
STEPS_MAX = 200_000
"""Schemas looked at for one value; what is left then is sealed whole."""

_BLURRED = ("not", "propertyNames", "contentSchema")
"""What stands below marks no value of its own: the whole value is sealed, and registration refuses it."""
_DATA = frozenset(("default", "const", "enum", "examples"))


class Secrecy:
    """The marks of one schema, ready to be asked about many values."""

    def __init__(self, schema: Mapping[str, FrozenJson] | JsonObject) -> None:
        self._document = Document(thawed(schema))
        self._patterns = Patterns()
        self._live = self._find_live()

    @property
    def is_any(self) -> bool:
        """Whether a mark can be reached from the top: if not, no value is ever sensitive."""
        return id(self._document.root) in self._live

    def pointers(self, value: Json) -> tuple[str, ...]:
        """JSON Pointers to the sensitive values, sorted, none below another; "" is the whole value."""
        if not self.is_any:
            return ()
        found = tuple(sorted(_Walk(self).places([self._document.root], value, "")))
        return found if len(found) <= POINTERS_MAX else ("",)

    def _find_live(self) -> set[int]:
        """Which schemas are marked or lead to a marked one."""
        above: dict[int, list[int]] = {}
        marked: list[int] = []
        pending = [place.schema for place in self._document.places.values()]
        seen = set(map(id, pending))
        while pending:
            schema = pending.pop()
            if is_marked(schema):
                marked.append(id(schema))
            for part in self._parts(schema):
                above.setdefault(id(part), []).append(id(schema))
                if id(part) not in seen:
                    seen.add(id(part))
                    pending.append(part)
        live: set[int] = set()
        while marked:
            at = marked.pop()
            if at not in live:
                live.add(at)
                marked.extend(above.get(at, ()))
        return live

    def _parts(self, schema: JsonObject) -> Iterator[JsonObject]:
        yield from self._document.applied_with(schema)
        yield from objects([child for _, child in edges(schema)])
        yield from objects([schema.get(keyword) for keyword in ("contains", *_BLURRED)])

    def is_live(self, schema: Json) -> bool:
        """Whether this part of the schema is marked or leads to a mark."""
        return id(schema) in self._live

    def together(self, seeds: Iterable[JsonObject]) -> list[JsonObject]:
        """The live schemas that may apply to the same value as these."""
        return [schema for schema in self._document.members(seeds) if id(schema) in self._live]

    def marks_whole(self, schema: JsonObject) -> bool:
        """Whether the value that this applies to is sensitive as a whole."""
        return is_marked(schema) or any(self.is_live(schema.get(keyword)) for keyword in _BLURRED)

    def below_key(self, schema: JsonObject, key: str) -> Iterator[Json]:
        """What this schema may ask of the value under a key."""
        listed = schema.get("properties")
        is_told = isinstance(listed, dict) and key in listed
        if isinstance(listed, dict) and is_told:
            yield listed[key]
        patterned = schema.get("patternProperties")
        for pattern, child in patterned.items() if isinstance(patterned, dict) else ():
            if self._patterns.matches(pattern, key):
                is_told = True
                yield child
        if not is_told:
            # What another part has evaluated is not told apart here: it is sealed rather than missed.
            yield schema.get("additionalProperties", schema.get("unevaluatedProperties"))

    def below_item(self, schema: JsonObject, index: int) -> Iterator[Json]:
        """What this schema may ask of an item."""
        prefix = schema.get("prefixItems")
        if isinstance(prefix, list) and index < len(prefix):
            yield prefix[index]
        else:
            yield schema.get("items", schema.get("unevaluatedItems"))
        yield schema.get("contains")

    def reasons(self, role: Literal["parameters", "output"]) -> Iterator[Reason]:
        """Every mark that could not be kept: registration refuses the schema."""
        for place in list(self._document.places.values()):
            schema, pointer = place.schema, place.pointer
            if "sensitive" in schema and not isinstance(schema["sensitive"], bool):
                yield _reason("the mark is neither true nor false", f"{pointer}/sensitive")
            elif is_marked(schema) and role == "output":
                yield _reason("only parameters can be marked", f"{pointer}/sensitive")
            for keyword in _BLURRED:
                if self.is_live(schema.get(keyword)):
                    yield _reason(f"a mark under {keyword} marks no value", f"{pointer}/{keyword}")
            for keyword in schema.keys() - SUBSCHEMAS - _DATA:
                if self._hides_mark(schema[keyword]):
                    said = f"a mark under {keyword[:100]!r}, where no schema applies"
                    yield _reason(said, f"{pointer}/{escaped(keyword)}")

    def _hides_mark(self, value: Json) -> bool:
        if isinstance(value, dict):
            if id(value) in self._document.places:
                return False
            return value.get("sensitive") is True or any(map(self._hides_mark, value.values()))
        return isinstance(value, list) and any(map(self._hides_mark, value))


class _Walk:
    """One way through one value; used once."""

    def __init__(self, secrecy: Secrecy) -> None:
        self._secrecy = secrecy
        self._steps_left = STEPS_MAX

    def places(self, seeds: list[JsonObject], value: Json, pointer: str) -> Iterator[str]:
        """Pointers to what is sensitive in a value that these schemas apply to."""
        members = self._secrecy.together(seeds)
        self._steps_left -= len(members)
        if self._steps_left < 0 or any(map(self._secrecy.marks_whole, members)):
            yield pointer
            return
        for step, child, below in self._children(members, value):
            found = [schema for schema in below if isinstance(schema, dict) and self._secrecy.is_live(schema)]
            if found:
                yield from self.places(found, child, f"{pointer}/{step}")

    def _children(self, members: list[JsonObject], value: Json) -> Iterator[tuple[str, Json, Iterator[Json]]]:
        if isinstance(value, dict):
            for key, child in value.items():
                below = (part for schema in members for part in self._secrecy.below_key(schema, key))
                yield escaped(key), child, below
        elif isinstance(value, list):
            for index, child in enumerate(value):
                below = (part for schema in members for part in self._secrecy.below_item(schema, index))
                yield str(index), child, below


def is_marked(schema: JsonObject) -> bool:
    """Whether a schema carries the mark; one that says something else than false counts as well."""
    return schema.get("sensitive", False) is not False


def _reason(sentence: str, pointer: str) -> Reason:
    return Reason(code="SENSITIVE_MISPLACED", sentence=sentence, pointer=pointer)

"""Closes object schemas: what lists its keys and says nothing of further ones refuses those.

A place is closed once, outside its combinators, so that parts which describe an object together still
accept it. The original is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from interlock.canonical import FrozenJson, Json, JsonObject
from interlock.errors import SchemaError
from interlock.subschema import IN_PLACE, Document, Edge, edges, objects, thawed


def close_schema(
    schema: Mapping[str, FrozenJson] | JsonObject, *, matches: Callable[[str, str], bool]
) -> JsonObject:
    """A copy in which object schemas that list keys and say nothing of further ones refuse those.

    A place is closed once, outside its combinators, so that parts which only together describe an object
    still accept it. Where several parts of a composition describe the same property, that property is
    closed by what all of them list. Left open are: what stands under `not`, `if`, `contains` and
    `propertyNames`; the top of a schema that is also a part of a larger composition; and what a pattern or
    `additionalProperties` of one part may describe together with another part.
    """
    root = thawed(schema)
    _Closer(Document(root), matches).close()
    return root


GROUPS_MAX = 2_000
_ROUTES_MAX = 32
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
    children: list[tuple[Edge, _Group]] = field(default_factory=list)

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

    def __init__(self, document: Document, matches: Callable[[str, str], bool]) -> None:
        self._document = document
        self._matches = matches
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
            seed["unevaluatedProperties" if IN_PLACE & seed.keys() else "additionalProperties"] = False
        self._close_shared()

    # Which schemas apply together.

    def _explore(self) -> None:
        pending = [self._group([self._document.root])]
        done: set[frozenset[int]] = set()
        while pending:
            group = pending.pop()
            if group.marks in done:
                continue
            if len(done) == GROUPS_MAX:
                raise SchemaError("SCHEMA_UNBOUNDED", f"parts combine in more than {GROUPS_MAX} ways")
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
        branches = [*objects(schema.get("oneOf"))]
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

    def _child_seeds(self, group: _Group) -> list[tuple[Edge, list[JsonObject]]]:
        sources: dict[Edge, list[_Source]] = {}
        for member, routes in group.members:
            for edge, child in edges(member):
                if isinstance(child, dict) and not _is_inert(child):
                    sources.setdefault(edge, []).append(_Source(child, id(member), routes))
        self._leave_vague_open(sources)
        seeds: list[tuple[Edge, list[JsonObject]]] = []
        for edge, found in sources.items():
            seeds.extend((edge, joined) for joined in _joined(found))
        return seeds

    def _leave_vague_open(self, sources: dict[Edge, list[_Source]]) -> None:
        for edge, found in sources.items():
            for other, others in sources.items():
                if edge[0] != "key" and edge != other:
                    for one, two in ((one, two) for one in found for two in others):
                        if one.may_join(two) and self._may_meet(edge, other, one.member == two.member):
                            self._open |= {id(one.schema), id(two.schema)}

    def _may_meet(self, edge: Edge, other: Edge, same_member: bool) -> bool:
        """Whether a wild or item edge leads to the same value as another edge of its group."""
        if (edge[0] == "item") != (other[0] == "item"):
            return False
        if edge[0] == "item":
            return "*" in (edge[1], other[1]) and not same_member
        if "*" in (edge[1], other[1]) and (edge[1] == "*" or other[0] == "wild"):
            return not same_member
        return other[0] == "wild" or self._matches(edge[1], other[1])

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
    return not (IN_PLACE | _DESCRIBES_CHILDREN) & schema.keys()

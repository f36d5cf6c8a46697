"""Catalogues: what a contract must satisfy to be registered, and how it comes into the ledger.

Contracts are data; nothing here imports or runs a tool. A contract that breaks a rule is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from governance.contract_form import form_reasons
from governance.ledger import Append, Head, Ledger, LedgerTransaction, LedgerView
from governance.secrecy import Secrecy
from interlock.canonical import Json, JsonObject, canonical, parse_json
from interlock.contract import BUILTIN_CATALOGUE, NAME_PATTERN, EffectScope, Executor, Strength, Tool
from interlock.decision import Reason
from interlock.errors import NotJsonError
from interlock.event import Stream, StreamKind, ToolRegistered, new_event
from interlock.schema import check_schema
from interlock.tier import Tier, floor_of

CATALOGUE_BYTES_MAX = 64 * 1_048_576
BUILTIN_OURS = f"the catalogue {BUILTIN_CATALOGUE} belongs to the product"
_STRENGTH_TIER: Mapping[Strength, Tier] = {Strength.NONE: Tier.T0, Strength.K: Tier.T1, Strength.N: Tier.T1}


def tool_stream(contract: Tool) -> Stream:
    """The stream of one tool's contracts."""
    return Stream(StreamKind.TOOL.value, contract.qualified_name)


def contract_reasons(contract: Tool) -> tuple[Reason, ...]:
    """Every rule of registration that a contract breaks."""
    return (*_tier_reasons(contract), *_schema_reasons(contract), *_output_reasons(contract))


def _tier_reasons(contract: Tool) -> Iterable[Reason]:
    name, tier = contract.qualified_name, contract.tier
    floor = floor_of(contract.capabilities, contract.risk)
    if tier < floor:
        sentence = (
            f"{name} declares {tier.value}, below {floor.value}, the floor of its capabilities and risk"
        )
        yield Reason(code="TIER_BELOW_FLOOR", sentence=sentence)
    if tier is Tier.T0 and contract.effect_scope is not EffectScope.NONE:
        yield Reason(code="TIER_BELOW_FLOOR", sentence=f"{name} declares T0 and an effect")
    if tier < _STRENGTH_TIER[contract.sandbox.strength] or (tier < Tier.T3 and contract.sandbox.hosts):
        sentence = f"{name} needs a sandbox that {tier.value} does not have"
        yield Reason(code="SANDBOX_ABOVE_TIER", sentence=sentence)
    if tier < Tier.T2 and contract.sandbox.write:
        yield Reason(code="SANDBOX_ABOVE_TIER", sentence=f"{name} wants to write, which {tier.value} may not")


def _schema_reasons(contract: Tool) -> Iterable[Reason]:
    schemas: tuple[tuple[Literal["parameters", "output"], Any], ...]
    schemas = (("parameters", contract.parameters), ("output", contract.output))
    for role, schema in schemas:
        if schema is None:
            continue
        refusals = check_schema(schema, role=role)
        # What is no schema, or an endless one, has no places that could be marked.
        reasons = [
            Reason(code=refusal.code, sentence=refusal.message, pointer=refusal.pointer)
            for refusal in refusals
        ] or Secrecy(schema).reasons(role)
        for reason in reasons:
            sentence = f"{contract.qualified_name}: {role}: {reason.sentence}"
            yield reason.model_copy(update={"sentence": sentence})


def _output_reasons(contract: Tool) -> Iterable[Reason]:
    """Raw text alone is never a result: an output whose only required property is a string is refused."""
    schema = contract.output
    if schema is None:
        return
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    only = properties.get(required[0], {}) if len(required) == 1 else None
    free = schema.get("type") == "string" or (isinstance(only, Mapping) and only.get("type") == "string")
    if free or not required:
        sentence = f"{contract.qualified_name}: its output must require more than one free string"
        yield Reason(code="OUTPUT_SCHEMA_FREE_STRING", sentence=sentence)


def read_contract(
    value: Mapping[str, Any], catalogue: str, executor: Executor, *, tier: Tier | None = None
) -> Tool | list[Reason]:
    """A contract from its file form, or everything that its form has against it, with pointers into it.

    A contract says its tier, or `tier` says it for those that do not: one that says nothing of what it may
    touch would else run unasked.
    """
    reasons = [] if tier is not None or "tier" in value else [_without_tier(value)]
    given = {} if tier is None else {"tier": tier}
    try:
        contract = Tool.model_validate({**given, **value, "catalogue": catalogue, "executor": executor})
    except ValidationError as error:
        return [*reasons, *form_reasons(_called(value), error)]
    return reasons or contract


def _called(value: Mapping[str, Any]) -> str:
    named = value.get("name")
    return named[:128] if isinstance(named, str) else "without a name"


def _without_tier(value: Mapping[str, Any]) -> Reason:
    known = ", ".join(tier.value for tier in Tier)
    sentence = f"tool {_called(value)}: it does not say its tier: one of {known}"
    return Reason(code="CATALOGUE_INVALID", sentence=sentence, pointer="/tier")


def read_catalogue(
    raw: bytes, catalogue: str, *, tier: Tier | None = None
) -> tuple[list[Tool], list[Reason]]:
    """The contracts of a catalogue file (a JSON list, or an object with `tools`), and what was refused.

    Tools of such a file have no code here: they are answered by the deterministic mock. `tier` is that of
    contracts which do not say theirs. Raises NotJsonError.
    """
    value = parse_json(raw, size_bytes_max=CATALOGUE_BYTES_MAX)
    return _read_tools(value.get("tools") if isinstance(value, dict) else value, catalogue, tier)


class Bundled(NamedTuple):
    """One line of a bundle: a catalogue's name, its contracts, and what is against them."""

    catalogue: str
    tools: list[Tool]
    refused: list[Reason]


def read_bundled(line: bytes, *, tier: Tier | None = None) -> Bundled:
    """One catalogue of a bundle: an object with `catalogue` and `tools`. Raises NotJsonError."""
    value = parse_json(line, size_bytes_max=CATALOGUE_BYTES_MAX)
    if not isinstance(value, dict) or value.keys() != {"catalogue", "tools"}:
        raise NotJsonError("JSON_TYPE", "a line of a bundle is an object with catalogue and tools")
    name = value["catalogue"]
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        sentence = f"catalogue is {name!a:.80}, which does not match {NAME_PATTERN}"
        return Bundled("", [], [Reason(code="CATALOGUE_INVALID", sentence=sentence, pointer="/catalogue")])
    if name == BUILTIN_CATALOGUE:
        return Bundled(name, [], [Reason(code="CATALOGUE_INVALID", sentence=BUILTIN_OURS)])
    return Bundled(name, *_read_tools(value["tools"], name, tier))


def _read_tools(items: Json, catalogue: str, tier: Tier | None) -> tuple[list[Tool], list[Reason]]:
    if not isinstance(items, list):
        return [], [Reason(code="CATALOGUE_INVALID", sentence="a catalogue is a list of tools")]
    tools: list[Tool] = []
    reasons: list[Reason] = []
    for position, item in enumerate(items):
        if not isinstance(item, dict):
            sentence = f"tool number {position + 1} is no object"
            reasons.append(Reason(code="CATALOGUE_INVALID", sentence=sentence, pointer=f"/{position}"))
            continue
        read = read_contract(item, catalogue, Executor.MOCK, tier=tier)
        if isinstance(read, Tool):
            tools.append(read)
        else:
            reasons.extend(_within(read, f"/{position}"))
    for tool in tools:
        reasons.extend(contract_reasons(tool))
    reasons.extend(_duplicates(tools))
    return tools, reasons


def _within(reasons: Iterable[Reason], place: str) -> Iterable[Reason]:
    """The same, with pointers from the top of the file."""
    for reason in reasons:
        yield reason.model_copy(update={"pointer": place + (reason.pointer or "")})


def _duplicates(tools: Sequence[Tool]) -> Iterable[Reason]:
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            sentence = f"{tool.qualified_name} stands in the catalogue twice"
            yield Reason(code="DUPLICATE_TOOL", sentence=sentence)
        seen.add(tool.name)


def builtin_tools() -> list[Tool]:
    """The contracts that ship with the product."""
    folder = files("interlock") / "builtins"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    tools: list[Tool] = []
    for name in names:
        value = parse_json((folder / name).read_bytes())
        assert isinstance(value, dict)
        contract = read_contract(value, BUILTIN_CATALOGUE, Executor.BUILTIN)
        if not isinstance(contract, Tool):
            raise ValueError(f"{name}: {contract[0].sentence}")
        tools.append(contract)
    return tools


class Added(NamedTuple):
    """What became of one catalogue."""

    names: list[str]
    """The tools that are new or changed."""
    replaced: list[str]
    """Those of them under whose name another contract stood."""
    refused: list[Reason]


def add_tools(
    ledger: Ledger, tools: Sequence[Tool], *, added_by: str, replace: bool = False
) -> tuple[list[str], list[Reason]]:
    """Record contracts, all or none; returns the names that are new or changed, and what was refused.

    The same contract again changes nothing; another one under a taken name is refused unless `replace`.
    """
    [added] = add_catalogues(ledger, [tools], added_by=added_by, replace=replace)
    return added.names, added.refused


def has_tools(view: LedgerView, tools: Sequence[Tool]) -> bool:
    """Whether each of these is recorded with exactly this contract."""
    heads = view.heads([tool_stream(tool) for tool in tools])
    return all(_digest_of(heads.get(tool_stream(tool))) == tool.digest for tool in tools)


def add_catalogues(
    ledger: Ledger, catalogues: Sequence[Sequence[Tool]], *, added_by: str, replace: bool = False
) -> list[Added]:
    """The same for several catalogues in one transaction, each of them all or none by itself.

    No name stands in two of them: ValueError, with nothing recorded.
    The ledger is held for all of them together: a caller with many sends a few hundred tools at a time.
    """
    with ledger.write(["catalogue"], control=True) as transaction:
        heads = transaction.heads([tool_stream(tool) for tools in catalogues for tool in tools])
        appends: list[Append] = []
        added = [_add(transaction, tools, heads, appends, added_by, replace) for tools in catalogues]
        if appends:
            transaction.append(appends)
            transaction.raise_epoch()
    return added


def _add(
    transaction: LedgerTransaction,
    tools: Sequence[Tool],
    heads: Mapping[Stream, Head],
    appends: list[Append],
    added_by: str,
    replace: bool,
) -> Added:
    fresh = [
        (tool_stream(tool), tool, digest)
        for tool in tools
        if _digest_of(heads.get(tool_stream(tool))) != (digest := tool.digest)
    ]
    taken = [tool.qualified_name for stream, tool, _ in fresh if stream in heads]
    if taken and not replace:
        sentence = "{} is registered already with another contract"
        return Added(
            [], [], [Reason(code="DUPLICATE_TOOL", sentence=sentence.format(name)) for name in taken]
        )
    for stream, tool, digest in fresh:
        body = tool.to_json()
        transaction.put_contract(digest, canonical(body))
        appends.append(_append(stream, heads.get(stream), tool, body, digest, added_by))
    return Added([tool.qualified_name for _, tool, _ in fresh], taken, [])


def _digest_of(head: Head | None) -> str | None:
    return None if head is None else head.contract_digest


def _append(
    stream: Stream, before: Head | None, tool: Tool, body: JsonObject, digest: str, added_by: str
) -> Append:
    payload = ToolRegistered(contract=body, contract_digest=digest)
    event = new_event(payload, cause=f"operator:{added_by}", actor=added_by)
    head = Head(stream.kind, stream.id, tool=tool.qualified_name, contract_digest=digest, phase="registered")
    return Append(stream, before.version if before else 0, [event], head=head)

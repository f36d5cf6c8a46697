"""`tools`: the contracts that are registered, and files of contracts: checked, and added without any code."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.file import open_named, read_named
from gateway.cli.option import AsJson, Data
from gateway.cli.output import Output, complain, standard_output
from gateway.cli.place import enter, enter_running, require_owner
from gateway.cli.verdict import Exit
from gateway.cli.visible import visible, visible_json
from interlock.errors import InterlockError, NotFoundError, UsageError

if TYPE_CHECKING:
    from gateway.embedded.directory import DataDirectory
    from governance.catalogue import Added
    from interlock.contract import Tool
    from interlock.decision import Reason
    from interlock.tier import Tier

TOOLS_MAX = 100_000


class _TierName(StrEnum):
    """What a call may touch, from nothing to what cannot be undone."""

    T0 = "T0"
    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T4 = "T4"


EMPTY = "nothing was in it: no contract, so nothing was done"
CHECKED_AS = "checked"
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The tool: `name`, or `catalogue/name`.")]
_File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A JSON list of contracts, or - for standard input.")
]
_Catalogue = Annotated[str, typer.Option("--catalogue", metavar="NAME", help="Where the names belong.")]
_OwnCatalogue = Annotated[
    str | None, typer.Option("--catalogue", metavar="NAME", help="Where the names belong.")
]
_Bundle = Annotated[
    bool, typer.Option("--bundle", help="FILE is a bundle: a line for each of many catalogues.")
]
_Tier = Annotated[
    _TierName | None, typer.Option("--tier", help="The tier of contracts that do not say theirs.")
]
_Replace = Annotated[bool, typer.Option("--replace", help="Let a new contract stand under a taken name.")]


def list_tools(data: Data = None, as_json: AsJson = False) -> None:
    """Every registered tool."""
    output = standard_output(as_json)
    contracts = _registered(data)
    if as_json:
        output.json({"tools": [_summary(contract) for contract in contracts]})
        return
    rows = [
        (
            contract.qualified_name,
            contract.version,
            contract.tier.value,
            contract.pool.value,
            contract.executor.value,
            contract.description.split("\n")[0][:60],
        )
        for contract in contracts
    ]
    output.table(("tool", "version", "tier", "pool", "answered by", "does"), rows)


def _registered(data: Path | None, name: str | None = None) -> list[Tool]:
    """All that are registered, or the one of a name."""
    directory = enter(data)
    from gateway.reading import open_reading
    from interlock.canonical import read_stored
    from interlock.contract import Tool
    from interlock.event import Stream, StreamKind

    kind = StreamKind.TOOL.value
    with open_reading(directory) as reading, reading.ledger.read() as view:
        if name is None:
            heads = view.heads_of(kind, limit=TOOLS_MAX)
        else:
            heads = list(view.heads([Stream(kind, name)]).values())
        bodies = view.contracts([head.contract_digest for head in heads])
    return [Tool.model_validate(read_stored(bodies[head.contract_digest])) for head in heads]


def _summary(contract: Tool) -> dict[str, Any]:
    return {
        "tool": contract.qualified_name,
        "version": contract.version,
        "tier": contract.tier.value,
        "pool": contract.pool.value,
        "executor": contract.executor.value,
        "capabilities": [capability.value for capability in contract.capabilities],
        "description": contract.description,
        "contract_digest": contract.digest,
    }


def show_tool(name: _Name, data: Data = None, as_json: AsJson = False) -> None:
    """One tool's whole contract, with the digest that pins it."""
    output = standard_output(as_json)
    found = next(iter(_registered(data, name)), None)
    if found is None:
        raise NotFoundError("tool", name)
    if as_json:
        output.json({"contract": found.to_json(), "contract_digest": found.digest})
    else:
        output.text(visible_json(found.to_json()))
        output.text(f"contract digest {found.digest}")


def check(
    file: _File, catalogue: _Catalogue = CHECKED_AS, tier: _Tier = None, as_json: AsJson = False
) -> int:
    """Look for everything that registration would refuse; changes nothing."""
    output = standard_output(as_json)
    tools, refused = _read(read_named(file), catalogue, tier)
    if as_json:
        names = [tool.qualified_name for tool in tools]
        output.json({"ok": not refused, "tools": names, "tiers": _tiers(tools), "refused": _json(refused)})
    _complain(refused)
    if not refused:
        for tool in tools:
            output.text(visible(f"{tool.qualified_name}  {tool.tier.value}"))
        output.text(f"{len(tools)} contracts, nothing against them" if tools else EMPTY)
    return Exit.ERROR if refused else Exit.OK


def add(
    file: _File,
    catalogue: _OwnCatalogue = None,
    tier: _Tier = None,
    replace: _Replace = False,
    bundle: _Bundle = False,
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Register contracts that have no code here: the deterministic mock answers for them. All or none."""
    output = standard_output(as_json)
    if bundle == (catalogue is not None):
        raise UsageError("tools add needs --catalogue NAME, or --bundle for a file that names its catalogues")
    stream = open_named(file)  # before root is given up: the file belongs to whoever called
    directory = enter_running(data)
    require_owner(directory)
    if catalogue is None:
        from gateway.cli.bundle import add_bundle

        return add_bundle(directory, stream, _tier(tier), replace, output)
    return _add_one(directory, stream.read(), catalogue, tier, replace, output)


def _add_one(
    directory: DataDirectory,
    raw: bytes,
    catalogue: str,
    tier: _TierName | None,
    replace: bool,
    output: Output,
) -> int:
    tools, refused = _read(raw, catalogue, tier)
    added: list[str] = []
    replaced: list[str] = []
    if not refused:
        added, replaced, refused = _record(directory, tools, replace)
    if output.as_json:
        tiers = {name: said for name, said in _tiers(tools).items() if name in added}
        said = {"ok": not refused, "added": added, "replaced": replaced, "tiers": tiers}
        output.json({**said, "refused": _json(refused)})
    _complain(refused)
    _print_added(output, added, replaced, tools, bool(refused))
    return Exit.ERROR if refused else Exit.OK


def _record(directory: DataDirectory, tools: list[Tool], replace: bool) -> Added:
    from gateway.reading import open_for_writing
    from gateway.wiring import wake_relay
    from governance.catalogue import add_catalogues
    from governance.principal import LOCAL_OPERATOR

    with open_for_writing(directory) as ledger:
        [result] = add_catalogues(ledger, [tools], added_by=LOCAL_OPERATOR, replace=replace)
    wake_relay(directory)
    return result


def _tier(name: _TierName | None) -> Tier | None:
    from interlock.tier import Tier

    return None if name is None else Tier(name.value)


def _tiers(tools: list[Tool]) -> dict[str, str]:
    return {tool.qualified_name: tool.tier.value for tool in tools}


def _read(raw: bytes, catalogue: str, tier: _TierName | None) -> tuple[list[Tool], list[Reason]]:
    from governance.catalogue import BUILTIN_OURS, read_catalogue
    from interlock.contract import BUILTIN_CATALOGUE
    from interlock.decision import Reason
    from interlock.errors import NotJsonError

    if catalogue == BUILTIN_CATALOGUE:
        return [], [Reason(code="CATALOGUE_INVALID", sentence=BUILTIN_OURS)]
    try:
        return read_catalogue(raw, catalogue, tier=_tier(tier))
    except NotJsonError as error:
        return [], [Reason(code=error.code, sentence=error.message)]


def _json(reasons: list[Reason]) -> list[dict[str, Any]]:
    return [dict(reason.to_json()) for reason in reasons]


def _complain(reasons: list[Reason]) -> None:
    for reason in reasons:
        at = f" at {reason.pointer}" if reason.pointer else ""
        complain(str(InterlockError(reason.code, f"{reason.sentence}{at}")))


def _print_added(
    output: Output, added: list[str], replaced: list[str], tools: list[Tool], refused: bool
) -> None:
    tiers = _tiers(tools)
    if not tools and not refused:
        output.text(EMPTY)
    for name in added:
        output.text(visible(f"{'replaced' if name in replaced else 'added'} {name}  {tiers[name]}"))
    if not refused and len(added) < len(tools):
        output.text(f"{len(tools) - len(added)} were registered already, unchanged")

"""`tools`: the contracts that are registered, and files of contracts: checked, and added without any code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.option import AsJson, Data
from gateway.cli.output import Output, complain, standard_output
from gateway.cli.place import enter, enter_running, require_owner
from gateway.cli.verdict import Exit
from gateway.cli.visible import visible, visible_json
from interlock.errors import InterlockError, NotFoundError

if TYPE_CHECKING:
    from interlock.contract import Tool
    from interlock.decision import Reason

TOOLS_MAX = 100_000
CHECKED_AS = "checked"
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The tool: `name`, or `catalogue/name`.")]
_File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A JSON list of contracts, or - for standard input.")
]
_Catalogue = Annotated[str, typer.Option("--catalogue", metavar="NAME", help="Where the names belong.")]
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


def _registered(data: Path | None) -> list[Tool]:
    directory = enter(data)
    from gateway.reading import open_reading
    from interlock.canonical import read_stored
    from interlock.contract import Tool
    from interlock.event import StreamKind

    with open_reading(directory) as reading, reading.ledger.read() as view:
        heads = view.heads_of(StreamKind.TOOL.value, limit=TOOLS_MAX)
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
    found = next((contract for contract in _registered(data) if contract.qualified_name == name), None)
    if found is None:
        raise NotFoundError("tool", name)
    if as_json:
        output.json({"contract": found.to_json(), "contract_digest": found.digest})
    else:
        output.text(visible_json(found.to_json()))
        output.text(f"contract digest {found.digest}")


def check(file: _File, catalogue: _Catalogue = CHECKED_AS, as_json: AsJson = False) -> int:
    """Look for everything that registration would refuse; changes nothing."""
    output = standard_output(as_json)
    tools, refused = _read(_content(file), catalogue)
    if as_json:
        output.json(
            {"ok": not refused, "tools": [tool.qualified_name for tool in tools], "refused": _json(refused)}
        )
    _complain(refused)
    if not refused:
        output.text(f"{len(tools)} contracts, nothing against them")
    return Exit.ERROR if refused else Exit.OK


def add(
    file: _File, catalogue: _Catalogue, replace: _Replace = False, data: Data = None, as_json: AsJson = False
) -> int:
    """Register contracts that have no code here: the deterministic mock answers for them. All or none."""
    output = standard_output(as_json)
    raw = _content(file)  # before root is given up: the file belongs to whoever called
    directory = enter_running(data)
    require_owner(directory)
    tools, refused = _read(raw, catalogue)
    added: list[str] = []
    if not refused:
        added, refused = _record(directory, tools, replace)
    if as_json:
        output.json({"ok": not refused, "added": added, "refused": _json(refused)})
    _complain(refused)
    _print_added(output, added, len(tools), bool(refused))
    return Exit.ERROR if refused else Exit.OK


def _record(directory: Any, tools: list[Tool], replace: bool) -> tuple[list[str], list[Reason]]:
    from gateway.reading import open_for_writing
    from gateway.wiring import wake_relay
    from governance.catalogue import add_tools
    from governance.principal import LOCAL_OPERATOR

    with open_for_writing(directory) as ledger:
        result = add_tools(ledger, tools, added_by=LOCAL_OPERATOR, replace=replace)
    wake_relay(directory)
    return result


def _content(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError("file", str(file)) from error


def _read(raw: bytes, catalogue: str) -> tuple[list[Tool], list[Reason]]:
    from governance.catalogue import read_catalogue
    from interlock.contract import BUILTIN_CATALOGUE
    from interlock.decision import Reason
    from interlock.errors import NotJsonError

    if catalogue == BUILTIN_CATALOGUE:
        sentence = f"the catalogue {BUILTIN_CATALOGUE} belongs to the product"
        return [], [Reason(code="CATALOGUE_INVALID", sentence=sentence)]
    try:
        return read_catalogue(raw, catalogue)
    except NotJsonError as error:
        return [], [Reason(code=error.code, sentence=error.message)]


def _json(reasons: list[Reason]) -> list[dict[str, Any]]:
    return [dict(reason.to_json()) for reason in reasons]


def _complain(reasons: list[Reason]) -> None:
    for reason in reasons:
        at = f" at {reason.pointer}" if reason.pointer else ""
        complain(str(InterlockError(reason.code, f"{reason.sentence}{at}")))


def _print_added(output: Output, added: list[str], total: int, refused: bool) -> None:
    for name in added:
        output.text(visible(f"added {name}"))
    if not refused and len(added) < total:
        output.text(f"{total - len(added)} were registered already, unchanged")

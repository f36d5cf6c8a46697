"""The tools that run inside the pool itself: plain functions of their arguments, no effect, a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.supervisor.port import Completed, Failed

PURE_TOOLS = ("echo",)


def echo(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The value that was given."""
    return {"value": arguments["value"]}


def run_pure(tool: str, arguments: Mapping[str, Any]) -> Completed | Failed:
    """The outcome of a tool of `PURE_TOOLS`; takes no time worth measuring and touches nothing."""
    match tool:
        case "echo":
            return Completed(0, echo(arguments))
        case _:
            return Failed("TOOL_UNAVAILABLE", f"{tool!r} is no pure tool of this version", began=False)

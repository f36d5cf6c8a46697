"""What a registry of tools answers, and what a tool with code adds to its contract.

Contracts are data: looking one up never imports a tool's code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, runtime_checkable

from interlock.contract import Tool
from interlock.request import ToolRequest


@runtime_checkable
class ToolExecutor(Protocol):
    """A tool with code: plain or async."""

    @property
    def contract(self) -> Tool:
        """What it promised."""
        ...

    def execute(self, request: ToolRequest) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        """Run it once; the structured output."""
        ...


@runtime_checkable
class FileAffectingTool(Protocol):
    """A tool that tells which files it would touch before it runs."""

    def affected_paths(self, request: ToolRequest) -> tuple[str, ...]:
        """Paths below the workspace, as the request names them."""
        ...


class ToolRegistry(Protocol):
    """Contracts by name, and by the digest that pinned them."""

    def find(self, qualified_name: str) -> Tool | None:
        """The contract that stands under this name now."""
        ...

    def pinned(self, contract_digest: str) -> Tool | None:
        """The contract with exactly this digest."""
        ...

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        ...


def affected_paths(contract: Tool, request: ToolRequest) -> tuple[str, ...]:
    """The paths a contract's pointers name in a request: data, so no tool code is needed to judge them."""
    found = (_resolve(request.arguments, pointer) for pointer in contract.paths)
    return tuple(path for path in found if isinstance(path, str))


def _resolve(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value

"""One invocation's tool name and arguments, canonical and frozen.

Never coerces: what was sent is what is hashed, approved and run.
"""

from __future__ import annotations

from typing import Any

from interlock.canonical import canonical, sha256_hex, thaw
from interlock.word import FrozenValue, Word


class ToolRequest(Word):
    """What is to be run with what."""

    tool: str
    arguments: FrozenValue

    @property
    def arguments_bytes(self) -> bytes:
        """Canonical bytes of the arguments."""
        return canonical(thaw(self.arguments))

    @property
    def arguments_hash(self) -> str:
        """Hex SHA-256 of the canonical arguments."""
        return sha256_hex(self.arguments_bytes)

    def thawed(self) -> dict[str, Any]:
        """A fresh copy a tool may do with as it likes."""
        value = thaw(self.arguments)
        assert isinstance(value, dict)
        return value

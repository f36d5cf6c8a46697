"""The registry over the ledger: contracts by name as they stand under one control epoch, ready to judge with.

Reads contracts as data; never imports a tool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from governance.ledger import Ledger, LedgerView
from governance.secrecy import Secrecy
from interlock.canonical import JsonObject, read_stored, sha256_hex
from interlock.contract import Tool
from interlock.decision import Reason
from interlock.event import Stream, StreamKind
from interlock.schema import CompiledSchema, Valid, compile_schema


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A contract with its digest and its compiled parameter schema."""

    contract: Tool
    digest: str
    parameters: CompiledSchema
    secrecy: Secrecy | None
    """Which parameters are sensitive; None where none ever is."""
    said: Mapping[str, Any]
    """What a recorded request says of its contract."""
    is_batchable: bool
    guards_twins: bool

    def sensitive(self, arguments: JsonObject) -> tuple[str, ...]:
        """JSON Pointers to the arguments that are sensitive."""
        return () if self.secrecy is None else self.secrecy.pointers(arguments)

    def faults(self, arguments: JsonObject) -> tuple[Reason, ...]:
        """What the parameter schema has against these arguments."""
        verdict = self.parameters.validate(arguments)
        if isinstance(verdict, Valid):
            return ()
        return tuple(
            Reason(code="SCHEMA_INVALID", sentence=fault.message, pointer=fault.pointer)
            for fault in verdict.errors
        )


class Toolbox:
    """Known tools by name, forgotten whenever the control epoch moves."""

    def __init__(self, ledger: Ledger, compiled_max: int = 4_096) -> None:
        self._ledger = ledger
        self._epoch = -1
        self._names: dict[str, str | None] = {}
        self._compiled: OrderedDict[str, KnownTool] = OrderedDict()
        self._compiled_max = compiled_max

    def find_all(self, names: Iterable[str]) -> tuple[int, dict[str, KnownTool | None]]:
        """The control epoch, and what stands under each name in it."""
        wanted = set(names)
        with self._ledger.read() as view:
            epoch = view.epoch()
            if epoch != self._epoch:
                self._names.clear()
                self._epoch = epoch
            digests = self._digests(view, wanted)
            tools = self._tools(view, {digest for digest in digests.values() if digest is not None})
        return epoch, {
            name: None if digest is None else tools.get(digest) for name, digest in digests.items()
        }

    def pinned(self, contract_digest: str) -> KnownTool | None:
        """The tool with exactly this contract, whether or not a name still points at it."""
        known = self._compiled.get(contract_digest)
        if known is not None:
            return known
        with self._ledger.read() as view:
            return self._tools(view, {contract_digest}).get(contract_digest)

    def _digests(self, view: LedgerView, names: set[str]) -> dict[str, str | None]:
        """Name → digest of its contract, None for a name that nobody registered."""
        if len(self._names) > 4 * self._compiled_max:
            self._names.clear()
        missing = names - self._names.keys()
        if missing:
            heads = view.heads([Stream(StreamKind.TOOL.value, name) for name in missing])
            found = {stream.id: head.contract_digest for stream, head in heads.items()}
            self._names.update({name: found.get(name) for name in missing})
        return {name: self._names[name] for name in names}

    def _tools(self, view: LedgerView, digests: set[str]) -> dict[str, KnownTool]:
        """Digest → tool; what made room for others is compiled anew, for a name outlives its schema."""
        tools = {digest: self._compiled[digest] for digest in digests & self._compiled.keys()}
        for digest in tools:
            self._compiled.move_to_end(digest)
        missing = digests - tools.keys()
        if not missing:
            return tools
        for digest, body in view.contracts(missing).items():
            # Bytes without their digest are no contract: whoever wrote them there registered nothing.
            if sha256_hex(body) == digest:
                tools[digest] = self._compiled[digest] = _compile(digest, body)
        while len(self._compiled) > self._compiled_max:
            self._compiled.popitem(last=False)
        return tools


def _compile(digest: str, body: bytes) -> KnownTool:
    contract = Tool.model_validate(read_stored(body))
    parameters = compile_schema(contract.parameters, closed=not contract.open_parameters)
    secrecy = Secrecy(contract.parameters)
    said = {
        "tool_version": contract.version,
        "contract_digest": digest,
        "tier": contract.tier.value,
        "capability_pool": contract.pool.value,
        "may_repeat": contract.may_repeat,
        "effect_scope": contract.effect_scope.value,
        "timeout_ms": contract.timeout_ms,
    }
    return KnownTool(
        contract,
        digest,
        parameters,
        secrecy if secrecy.is_any else None,
        MappingProxyType(said),
        contract.is_batchable,
        contract.guards_twins,
    )

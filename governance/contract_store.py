"""Contracts by the digest that pinned them, read from the ledger and kept in a bounded cache.

Bytes that do not have the digest they were asked by are no contract. Never registers one.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pydantic import ValidationError

from governance.ledger import Ledger
from interlock.canonical import read_stored, sha256_hex
from interlock.contract import Tool

CONTRACTS_MAX = 1_024


class ContractStore:
    """Pinned contracts. Safe for threads."""

    def __init__(self, ledger: Ledger, contracts_max: int = CONTRACTS_MAX) -> None:
        self._ledger = ledger
        self._contracts_max = contracts_max
        self._known: OrderedDict[str, Tool] = OrderedDict()
        self._lock = Lock()

    def pinned(self, contract_digest: str) -> Tool | None:
        """The contract with exactly this digest, None where the ledger has none that this version can read.

        Raises LedgerUnavailableError.
        """
        with self._lock:
            known = self._known.get(contract_digest)
            if known is not None:
                self._known.move_to_end(contract_digest)
                return known
        found = self._read(contract_digest)
        if found is not None:
            self._remember(contract_digest, found)
        return found

    def _read(self, contract_digest: str) -> Tool | None:
        with self._ledger.read() as view:
            body = view.contracts([contract_digest]).get(contract_digest)
        if body is None or sha256_hex(body) != contract_digest:
            return None
        try:
            return Tool.model_validate(read_stored(body))
        except ValidationError:
            return None

    def _remember(self, contract_digest: str, contract: Tool) -> None:
        with self._lock:
            self._known[contract_digest] = contract
            if len(self._known) > self._contracts_max:
                self._known.popitem(last=False)

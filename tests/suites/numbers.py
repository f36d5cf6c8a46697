"""RFC 8785: the arguments that the ledger holds and hashes are, byte for byte, the vectors' output."""

from __future__ import annotations

import random
from typing import Any

from interlock.canonical import canonical, sha256_hex
from tests.suites.outside import canonical_documents, canonical_numbers, chosen
from tests.suites.producer import Producer, call

TOGETHER = 250


def prove_canonical(producer: Producer, rng: random.Random | None, count: int) -> dict[str, Any]:
    """The six documents, and numbers in portions, each written with more digits than it needs."""
    numbers = canonical_numbers()
    assert len(numbers) == 10_000
    assert [canonical(number).decode() for number, _ in numbers] == [written for _, written in numbers]
    sent = chosen(numbers, rng, count)
    pairs = [(given, written) for _, given, written in canonical_documents()]
    assert len(pairs) == 6
    for start in range(0, len(sent), TOGETHER):
        together = sent[start : start + TOGETHER]
        given = ",".join(f"{number:.17e}" for number, _ in together)
        pairs.append((f"[{given}]".encode(), f"[{','.join(written for _, written in together)}]".encode()))
    calls = [(call("echo", b'{"value":' + given + b"}"), written) for given, written in pairs]
    told = producer.carry([one for one, _ in calls])
    for one, written in calls:
        arguments = b'{"value":' + written + b"}"
        found = told[one.id]
        assert found.end == "ToolExecutionCompleted", found.code
        assert found.requested["arguments_hash"] == sha256_hex(arguments)
        assert b'"arguments":' + arguments + b"," in found.request_bytes
        assert b'"structured_output":' + arguments in found.events[-1].payload
    return {"documents": 6, "numbers": len(sent)}

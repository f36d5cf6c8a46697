"""The function calling leaderboard: one catalogue a row, every ground-truth call through the queue."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from tests.suites.outside import chosen, disagreements, golden, leaderboard
from tests.suites.producer import Call, Producer, Told, call, contract, register


def prove_leaderboard(producer: Producer, rng: random.Random | None, count: int) -> dict[str, Any]:
    """Closed, which is the default, and opted out: all but those on record are accepted, and complete."""
    rows = leaderboard()
    named = disagreements() | {tuple(pair) for pair in golden("bfcl")["refused_when_closed"]}
    if rng is not None:
        # What is on record is always there, and a sample of the others.
        known = [row for row in rows if row["id"] in {name for name, _ in named}]
        rows = [*known, *chosen([row for row in rows if row not in known], rng, count)]
    began = time.monotonic()
    tools = {row["id"]: [contract(tool["name"], tool["parameters"]) for tool in row["tools"]] for row in rows}
    opened = {
        f"open.{name}": [{**tool, "open_parameters": True} for tool in each] for name, each in tools.items()
    }
    assert register(producer.live, {**tools, **opened}) == {}
    registered_s = time.monotonic() - began
    refused, completed = _run(producer, rows, "")
    refused_open, completed_open = _run(producer, rows, "open.")
    ids = {row["id"] for row in rows}
    assert refused_open == sorted(pair for pair in disagreements() if pair[0] in ids)
    extra = {tuple(pair) for pair in golden("bfcl")["refused_when_closed"]}
    assert sorted(set(refused) - set(refused_open)) == sorted(extra)
    assert set(refused_open) <= set(refused)
    figures = {
        "tools": 2 * sum(map(len, tools.values())),
        "registered_s": round(registered_s, 1),
        "closed": [completed, len(refused)],
        "opted_out": [completed_open, len(refused_open)],
    }
    if rng is None:
        assert sum(map(len, tools.values())) == 6_226
        assert (figures["closed"], figures["opted_out"]) == ([3_125, 27], [3_128, 24])
    return figures


def _run(producer: Producer, rows: list[Any], prefix: str) -> tuple[list[tuple[str, str]], int]:
    """(row, tool) of each refused call, and how many completed."""
    calls: dict[str, tuple[str, str]] = {}
    sent: list[Call] = []
    for row in rows:
        for said in row["calls"]:
            one = call(f"{prefix}{row['id']}/{said['tool']}", json.dumps(said["arguments"]).encode())
            calls[one.id] = (row["id"], said["tool"])
            sent.append(one)
    told = producer.carry(sent)
    refused = sorted(calls[name] for name, one in told.items() if _is_refused(one))
    completed = sum(one.end == "ToolExecutionCompleted" for one in told.values())
    assert completed + len(refused) == len(sent)
    return refused, completed


def _is_refused(told: Told) -> bool:
    """Refused by its schema, and by nothing else."""
    if told.end != "ToolExecutionRejected":
        return False
    assert told.code == "SCHEMA_INVALID", told.code
    return True

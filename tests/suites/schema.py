"""The JSON Schema test suite: each schema a registered tool, each test's data a call through the queue."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from interlock.canonical import INTEGER_MAX
from tests.suites.outside import SchemaGroup, SchemaTest, chosen, golden, schema_groups
from tests.suites.producer import Call, Producer, Told, call, contract, register


def prove_schemas(producer: Producer, rng: random.Random | None, count: int) -> dict[str, Any]:
    """Accepted and refused as `valid` says, but for what is on record by name."""
    known = golden("schema")
    groups = schema_groups()
    if rng is not None:
        titles = {title for kind in known.values() for title in kind}
        named = [group for group in groups if any(test.title in titles for test in group.tests)]
        groups = [*named, *chosen([group for group in groups if group not in named], rng, count)]
    refused = register(producer.live, {group.catalogue: [tool_of(group)] for group in groups})
    found: dict[str, list[SchemaTest]] = {}
    sent: list[tuple[Call, SchemaTest]] = []
    for group in groups:
        codes = refused.get(group.catalogue)
        if codes is None:
            sent += [(_call(group, test), test) for test in group.tests]
        else:
            found.setdefault("registration " + codes[0], []).extend(group.tests)
    told = producer.carry([one for one, _ in sent])
    for one, test in sent:
        found.setdefault(_verdict(told[one.id], test.valid), []).append(test)
    return _compared(found, known, whole=rng is None)


def tool_of(group: SchemaGroup) -> dict[str, Any]:
    """The tool that takes what the group judges as its property `v`."""
    schema = group.schema
    if isinstance(schema, dict):
        # Its own references start at itself, so it stays a document of its own within the wrapper.
        schema = {"$id": "urn:example:v"} | schema
    parameters = {"type": "object", "properties": {"v": _doubled(schema)}}
    return contract("t", parameters, open_parameters=True)


def _doubled(value: Any) -> Any:
    """The same JSON, with integers beyond 2^53 written as the doubles that they are everywhere."""
    if isinstance(value, dict):
        return {key: _doubled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_doubled(item) for item in value]
    is_long = isinstance(value, int) and not isinstance(value, bool) and abs(value) > INTEGER_MAX
    return float(value) if is_long else value


def _call(group: SchemaGroup, test: SchemaTest) -> Call:
    return call(f"{group.catalogue}/t", json.dumps({"v": test.data}).encode())


def _verdict(told: Told, valid: bool) -> str:
    if told.end == "ToolExecutionCompleted":
        return "agrees" if valid else "accepted"
    assert told.end == "ToolExecutionRejected"
    if told.code == "SCHEMA_INVALID":
        return "refused" if valid else "agrees"
    return told.code


def _compared(found: dict[str, list[SchemaTest]], known: Any, *, whole: bool) -> dict[str, Any]:
    differing = {verdict: sorted(test.title for test in tests) for verdict, tests in found.items()}
    differing.pop("agrees", None)
    assert differing == {verdict: sorted(titles) for verdict, titles in known.items()}
    sums: dict[str, Counter[str]] = {"main": Counter(), "optional": Counter()}
    for verdict, tests in found.items():
        for test in tests:
            sums["optional" if test.file.startswith("optional/") else "main"][verdict] += 1
    if whole:
        assert (sums["main"].total(), sums["optional"].total()) == (1_299, 926)
        assert (sums["main"]["agrees"], sums["optional"]["agrees"]) == (1_230, 915)
    return {side: dict(counted) for side, counted in sums.items()}

"""The built-ins' contracts: words of governance, checked as any other contract would be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from interlock.contract import Tool
from interlock.tier import ToolCapability, floor_of
from tests.support.source import ROOT
from workers.tools.pure import PURE_TOOLS
from workers.tools.table import SUPERVISED_TOOLS

FILES = sorted((ROOT / "interlock" / "builtins").glob("*.json"))


def contract(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return document


def object_schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from object_schemas(value)


def test_every_tool_with_code_has_a_contract_and_no_other() -> None:
    assert {file.stem for file in FILES} == {*PURE_TOOLS, *SUPERVISED_TOOLS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_contract_is_one(file: Path) -> None:
    document = contract(file)
    tool = Tool.model_validate_json(file.read_bytes())
    assert tool.name == file.stem
    assert tool.tier >= floor_of(map(ToolCapability, document["capabilities"]))
    for schema in (document["parameters"], document["output"]):
        jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_object_is_closed_and_every_property_described(file: Path) -> None:
    document = contract(file)
    for schema in object_schemas({"p": document["parameters"], "o": document["output"]}):
        assert schema["additionalProperties"] is False
        assert [name for name, part in schema["properties"].items() if not part.get("description")] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_output_is_one_free_string(file: Path) -> None:
    output = contract(file)["output"]
    required = [output["properties"][name].get("type") for name in output["required"]]
    assert required
    assert required != ["string"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_paths_name_parameters(file: Path) -> None:
    document = contract(file)
    names = {pointer.removeprefix("/") for pointer in document["paths"]}
    assert names <= document["parameters"]["properties"].keys()
    assert names == document["parameters"]["properties"].keys() & {"path", "cwd"}

"""Pages that tell every field and every setting tell all of them, and their examples hold."""

from __future__ import annotations

import json
import re

from governance.catalogue import read_catalogue
from interlock.contract import Effects, Limits, SandboxNeeds, Tool
from tests.support.source import ROOT

CONTRACT = (ROOT / "docs/reference/contract.md").read_text("utf-8")
PARTS = {"effects": Effects, "sandbox": SandboxNeeds, "limits": Limits}


def test_the_page_of_contracts_names_every_field() -> None:
    names = [name for name in Tool.model_fields if name not in PARTS]
    names += [f"{part}.{name}" for part, word in PARTS.items() for name in word.model_fields]
    assert [name for name in names if f"`{name}`" not in CONTRACT] == []


def test_the_example_of_a_contract_is_one() -> None:
    found = re.search(r"```json\n(.*?)```", CONTRACT, re.DOTALL)
    assert found is not None
    json.loads(found[1])
    tools, reasons = read_catalogue(found[1].encode(), "mine")
    assert reasons == []
    assert [tool.name for tool in tools] == ["mail.send"]

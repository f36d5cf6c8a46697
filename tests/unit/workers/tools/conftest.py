"""The file program ends with its process, and its descriptors with it; here a test ends it instead."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


@pytest.fixture(autouse=True)
def _the_program_ends() -> Iterator[None]:
    """Close what a run of the program left open."""
    before = _descriptors()
    yield
    for descriptor in _descriptors() - before:
        try:
            os.close(descriptor)
        except OSError:
            continue  # the listing's own, gone already

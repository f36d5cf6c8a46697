"""Names the system packages that a test needs, so that their absence is said and never overlooked."""

from __future__ import annotations

import os
import shutil

import pytest


def needs_system_package(name: str, command: str | None = None) -> pytest.MarkDecorator:
    """Mark a test that needs `command` (default: of the package's name) of the Debian package `name`."""
    return pytest.mark.system_package(name, command or name)


def require_system_package(name: str, command: str) -> None:
    """Skip where the command is missing; with CI=true that is a failure, for CI installs what it needs."""
    if shutil.which(command):
        return
    missing = f"needs {command}: apt-get install {name}"
    if os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)

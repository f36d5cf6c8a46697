"""Where this checkout lies, and the environment in which its modules are found by every child."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    """This process's environment, with the checkout on the path of modules."""
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, found)]))}

"""Makes the repository that the demonstration's agent works on: a small module, its tests, and one bug.

Writes only below the workspace it is given.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

BROKEN = '''"""Prices with tax."""


def with_tax(net_cents: int, percent: int) -> int:
    return net_cents + net_cents * percent // 10
'''

MENDED = BROKEN.replace("// 10\n", "// 100\n")

TESTS = """import unittest

from prices import with_tax


class WithTax(unittest.TestCase):
    def test_adds_a_percentage(self):
        self.assertEqual(with_tax(1000, 19), 1190)

    def test_no_tax_changes_nothing(self):
        self.assertEqual(with_tax(250, 0), 250)


if __name__ == "__main__":
    unittest.main()
"""


def make_repository(workspace: Path) -> None:
    """A git repository with one commit, whose tests fail."""
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    (workspace / "prices.py").write_text(BROKEN)
    (workspace / "test_prices.py").write_text(TESTS)
    _git(workspace, "init", "--quiet", "--initial-branch=main")
    _git(workspace, "add", ".")
    _git(workspace, "commit", "--quiet", "--message=Prices with tax")


def _git(workspace: Path, *words: str) -> None:
    """Run git with nobody's configuration and a made-up author."""
    author = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    environment = {"PATH": _PATH, "HOME": str(workspace), "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8"}
    subprocess.run(["git", *author, *words], cwd=workspace, env=environment, check=True)


_PATH = "/usr/local/bin:/usr/bin:/bin"

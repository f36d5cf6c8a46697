"""A producer in a process of its own: `client.py URL ID SCRIPT` proposes one program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from interlock.client import Client
from interlock.fault import faults_from


def main(url: str, invocation_id: str, script: str) -> None:
    """Propose it, in session `one`, under this id."""
    client = Client(url, faults=faults_from(os.environ))
    said = client.submit(
        "shell.run", {"argv": ["sh", "-c", script]}, session="one", stage="client", id=invocation_id
    )
    print(said)


if __name__ == "__main__":
    main(*sys.argv[1:])

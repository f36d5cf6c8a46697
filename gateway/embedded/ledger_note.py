"""Which ledger a data directory belongs to: the file that says so, and the settings that must agree with it.

It opens no store. A directory keeps to the ledger that it was made with, by its incarnation.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.embedded.directory import DataDirectory, write_atomically
from gateway.embedded.server import is_same_server, without_password
from interlock.errors import OursToFixError


def server_of(directory: DataDirectory) -> str:
    """The address of the database that holds ledger and views; "" where they are files of the directory.

    Raises OursToFixError(CONFIG_INVALID) where the settings name another ledger than the directory's own.
    """
    noted = str(_noted(directory).get("url", ""))
    asked = directory.ledger_server
    if not asked:
        return noted
    if not noted and directory.ledger.exists():
        raise _other(directory, "in the directory itself")
    if noted and not is_same_server(noted, asked):
        raise _other(directory, noted)
    return asked


def note_server(directory: DataDirectory, incarnation: str) -> None:
    """Remember which ledger this directory belongs to; OursToFixError(CONFIG_INVALID) where it is another."""
    server = server_of(directory)
    if not server:
        return
    noted = _noted(directory)
    if noted and noted.get("incarnation") != incarnation:
        where = without_password(server)
        raise OursToFixError(
            "CONFIG_INVALID",
            f"INTERLOCK_LEDGER_URL: the ledger in {where} is {incarnation}, {directory.path} belongs to "
            f"{noted.get('incarnation')}",
        )
    if not noted:
        content = {"url": without_password(server), "incarnation": incarnation}
        write_atomically(directory.ledger_note, content)


def _noted(directory: DataDirectory) -> dict[str, Any]:
    try:
        held = json.loads(directory.ledger_note.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise OursToFixError("CONFIG_INVALID", f"{directory.ledger_note} cannot be read: {error}") from error
    return held if isinstance(held, dict) else {}


def _other(directory: DataDirectory, own: str) -> OursToFixError:
    return OursToFixError(
        "CONFIG_INVALID",
        f"INTERLOCK_LEDGER_URL names {without_password(directory.ledger_server)}, and the ledger of "
        f"{directory.path} lies {own}",
    )

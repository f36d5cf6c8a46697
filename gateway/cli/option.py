"""Options that many commands share, in one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from interlock.errors import UsageError


def _folder(said: str) -> Path:
    """A folder by its name; no name is no folder, and not the one that one stands in."""
    if not said:
        raise UsageError("--data names a directory, and nothing was named")
    return Path(said)


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data directory; else INTERLOCK_DATA, else the account's own.",
        show_default=False,
        parser=_folder,
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", metavar="T", help="The tenant whose session it is.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output, and nothing else.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Invocations.")]

"""Options that many commands share, in one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data directory; else INTERLOCK_DATA, else the account's own.",
        show_default=False,
        readable=False,  # whether it can be read is said by whoever reads it, with the code for it
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", metavar="T", help="The tenant whose session it is.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output, and nothing else.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Invocations.")]

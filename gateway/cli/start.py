"""`up`, `run`, `demo`, `bench`: what stays in the foreground; each gives up root before it imports more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.early import EarlyStop
from gateway.cli.option import AsJson, Data
from gateway.cli.place import named_directory
from interlock.errors import UsageError

ROLES = ("governor", "scheduler", "projector")
POOLS = ("pure", "fs", "shell", "network")

_Role = Annotated[str, typer.Argument(metavar="ROLE", help="governor, scheduler, projector or pool.")]
_Pool = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Which pool: pure, fs, shell or network.")
]


def up(data: Data = None) -> int:
    """Run the whole embedded system in the foreground until it is stopped."""
    from gateway.start import run_up

    return run_up(named_directory(data), dict(os.environ))


def run(context: typer.Context, role: _Role, name: _Pool = None, data: Data = None) -> int:
    """Run one role in the foreground: governor, scheduler, projector, or pool NAME."""
    wanted = _role_name(role, name)
    from gateway.start import run_role

    stop = context.obj if isinstance(context.obj, EarlyStop) else EarlyStop()
    return run_role(wanted, named_directory(data), dict(os.environ), stop.is_set)


def _role_name(role: str, name: str | None) -> str:
    if role == "pool":
        if name not in POOLS:
            raise UsageError(f"a pool is one of {', '.join(POOLS)}")
        return f"pool-{name}"
    if role not in ROLES or name is not None:
        raise UsageError(f"a role is one of {', '.join(ROLES)}, or pool NAME")
    return role


def demo(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where to keep it; else it goes.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """A governed agent session on a real repository, from start to finish."""
    from gateway.demo.play import main

    return main(as_json=as_json, data=data)


def bench(
    n: Annotated[
        int | None, typer.Option("--n", metavar="N", min=1, help="Invocations a measurement.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", min=1, help="Pairs of measurements.")
    ] = None,
    producers: Annotated[
        int | None,
        typer.Option("--producers", metavar="K", min=1, help="How many submit at once, on each side."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="S", help="sqlite, postgresql or both; else what can be measured."),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Put other queues beside it, as far as they are installed.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="On which disk; else /var/tmp.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Measure this machine against plain Celery."""
    try:
        from benchmarks.bench import main
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("benchmarks"):
            raise
        raise UsageError("the benchmarks are part of a checkout, not of an installation") from error
    return main(
        as_json=as_json, n=n, rounds=rounds, producers=producers, store=store, peers=peers, folder=folder
    )

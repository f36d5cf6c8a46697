"""`interlock up` with every thread of every role under cProfile, for shares rather than rates.

`python -m benchmarks.profiled up --data DIR`: each process leaves DIR/profile/<role>.pstats when it stops.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gateway import start
from gateway.cli.main import main
from gateway.embedded.role import Role, RoleContext


def profiled(role: Role) -> Role:
    """The same role, which writes down what it spent its time on."""

    def begin(context: RoleContext) -> int:
        profiles: list[cProfile.Profile] = []
        _profile_threads(profiles)
        own = cProfile.Profile()
        try:
            return int(own.runcall(role.start, context))
        finally:
            _write([own, *profiles], context.directory.path / "profile" / f"{context.name}.pstats")

    return replace(role, start=begin)


def _profile_threads(profiles: list[cProfile.Profile]) -> None:
    run = threading.Thread.run

    def run_profiled(thread: threading.Thread) -> None:
        profile = cProfile.Profile()
        profiles.append(profile)
        profile.runcall(run, thread)

    setattr(threading.Thread, "run", run_profiled)  # noqa: B010 - replaced on purpose, in this process only


def _write(profiles: list[cProfile.Profile], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    merged: pstats.Stats | None = None
    for profile in profiles:
        profile.create_stats()
        if profile.stats:
            merged = pstats.Stats(profile) if merged is None else merged.add(profile)
    if merged is not None:
        merged.dump_stats(path)


def profile_roles() -> None:
    """Let the next `up` of this process start profiled roles."""
    plain: Callable[..., tuple[Role, ...]] = start.roles
    setattr(start, "roles", lambda environment: tuple(map(profiled, plain(environment))))  # noqa: B010 - as above


if __name__ == "__main__":
    profile_roles()
    sys.exit(main())

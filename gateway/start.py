"""Starts the embedded system, or one role of it in the foreground.

Light by design: whatever holds a store is imported only after root was given up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from gateway.embedded.account import settle_account
from gateway.embedded.directory import DataDirectory, prepare
from gateway.embedded.role import STOP_FIRST, STOP_POOLS, STOP_PROJECTOR, Role, RoleContext, Stopping
from gateway.embedded.up import up
from interlock import __version__

POOL_DRAIN_SECONDS = 16.0  # for what runs, for its end where it takes too long, and for its outcome
POOLS = ("pure", "fs", "shell", "network")


def run_up(directory: DataDirectory, environment: Mapping[str, str]) -> int:
    """Run everything until stopped; the exit status. Raises what `up` raises, with nothing started."""

    def preload() -> None:
        from gateway.parts import Parts
        from gateway.preload import import_shared
        from gateway.roles import set_up

        set_up(Parts.of(directory, environment))
        import_shared()

    def count_running() -> int:
        from gateway.reading import count_running

        return count_running(directory)

    return up(
        directory, roles(environment), preload, environment, version=__version__, count_running=count_running
    )


def run_role(name: str, directory: DataDirectory, environment: Mapping[str, str]) -> int:
    """Run one role in the foreground until SIGTERM or SIGINT; returns its exit status.

    `name` is `governor`, `scheduler`, `projector` or `pool-NAME`; raises KeyError for any other.
    """
    wanted = {role.name: role for role in roles(environment)}[name]
    settle_account(directory, environment)
    prepare(directory)
    from gateway.parts import Parts
    from gateway.roles import set_up

    set_up(Parts.of(directory, environment))
    return wanted.start(_foreground(name, directory))


def _foreground(name: str, directory: DataDirectory) -> RoleContext:
    import signal

    stopping = Stopping()
    stopping.listen(signal.SIGTERM, signal.SIGINT)
    return RoleContext(name, directory, stopping, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))


def roles(environment: Mapping[str, str]) -> tuple[Role, ...]:
    """Every role but the broker."""
    return (
        Role("governor", _start("run_governor", environment), stop_stage=STOP_FIRST),
        Role("scheduler", _start("run_scheduler", environment), stop_stage=STOP_FIRST),
        Role("projector", _start("run_projector", environment), stop_stage=STOP_PROJECTOR),
        *(
            Role(
                f"pool-{name}",
                _start_pool(name, environment),
                stop_stage=STOP_POOLS,
                drain_seconds=POOL_DRAIN_SECONDS,
            )
            for name in POOLS
        ),
    )


def _start(function: str, environment: Mapping[str, str]) -> Callable[[RoleContext], int]:
    def start(context: RoleContext) -> int:
        from gateway import roles as composed
        from gateway.parts import Parts

        status: int = getattr(composed, function)(context, Parts.of(context.directory, environment))
        return status

    return start


def _start_pool(name: str, environment: Mapping[str, str]) -> Callable[[RoleContext], int]:
    def start(context: RoleContext) -> int:
        from gateway.parts import Parts
        from gateway.roles import run_pool_role
        from interlock.tier import Pool

        parts = Parts.of(context.directory, environment)
        return run_pool_role(context, parts, Pool(name), environment)

    return start

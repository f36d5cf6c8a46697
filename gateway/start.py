"""Starts the embedded system, or one role of it in the foreground.

Light by design: whatever holds a store is imported only after root was given up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from gateway.embedded.account import settle_account
from gateway.embedded.directory import DataDirectory, prepare
from gateway.embedded.ledger_note import server_of
from gateway.embedded.member import BACKOFF_SECONDS_MAX
from gateway.embedded.role import STOP_FIRST, STOP_POOLS, STOP_PROJECTOR, Role, RoleContext, Stopping
from gateway.embedded.server import BROKER_URL
from gateway.embedded.up import up
from gateway.replicas import replica_names, replicas_from
from interlock import __version__
from interlock.clock import clock_from
from interlock.errors import OursToFixError
from interlock.fault import faults_from
from interlock.settings import settings_from

POOL_DRAIN_SECONDS = 16.0  # for what runs, for its end where it takes too long, and for its outcome
BACKOFF_NAME = "INTERLOCK_BACKOFF_MAX_MS"
POOLS = ("pure", "fs", "shell", "network")


def run_up(directory: DataDirectory, environment: Mapping[str, str]) -> int:
    """Run everything until stopped; the exit status. Raises what `up` raises, with nothing started."""

    if directory.broker_server:
        raise OursToFixError(
            "CONFIG_INVALID",
            f"{BROKER_URL}: `up` runs its own broker; unset it, or start roles by `run`",
        )
    _require_readable(environment)
    directory = replace(directory, ledger_server=server_of(directory))

    def preload() -> None:
        from gateway.parts import Parts
        from gateway.preload import import_shared
        from gateway.roles import set_up

        set_up(Parts.of(directory, environment))
        import_shared(with_postgres=bool(directory.ledger_server))

    def count_running() -> int:
        from gateway.reading import count_running

        return count_running(directory)

    return up(
        directory,
        roles(environment),
        preload,
        environment,
        version=__version__,
        count_running=count_running,
        backoff_seconds_max=backoff_seconds_max(environment),
    )


def _never() -> bool:
    return False


def run_role(
    name: str,
    directory: DataDirectory,
    environment: Mapping[str, str],
    was_told_to_stop: Callable[[], bool] = _never,
) -> int:
    """Run one role in the foreground until SIGTERM or SIGINT; returns its exit status.

    `was_told_to_stop` says whether that came before the role listened by itself; then none is started.
    `name` is `governor`, `scheduler`, `projector` or `pool-NAME`, of a replica also with its number; raises
    KeyError for any other.
    """
    wanted = {role.name: role for role in roles(environment)}[name]
    _require_readable(environment)
    directory = replace(directory, ledger_server=server_of(directory))
    settle_account(directory, environment)
    prepare(directory)
    from gateway.parts import Parts
    from gateway.roles import set_up

    set_up(Parts.of(directory, environment))
    context = _foreground(name, directory)
    return 0 if was_told_to_stop() else wanted.start(context)


def _require_readable(environment: Mapping[str, str]) -> None:
    """OursToFixError(CONFIG_INVALID) with the setting that cannot be read."""
    try:
        settings_from(environment)
        clock_from(environment)
        faults_from(environment)
    except ValueError as error:
        raise OursToFixError("CONFIG_INVALID", str(error)) from error


def _foreground(name: str, directory: DataDirectory) -> RoleContext:
    import signal

    stopping = Stopping()
    stopping.listen(signal.SIGTERM, signal.SIGINT)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup sets it
        stopping.listen(signal.SIGHUP)
    return RoleContext(name, directory, stopping, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))


def backoff_seconds_max(environment: Mapping[str, str]) -> float:
    """The longest wait before a role that keeps ending is started again.

    Only a test may set it; OursToFixError(CONFIG_INVALID) where somebody else does.
    """
    text = environment.get(BACKOFF_NAME)
    if text is None:
        return BACKOFF_SECONDS_MAX
    if environment.get("INTERLOCK_TESTING") != "1":
        raise OursToFixError("CONFIG_INVALID", f"{BACKOFF_NAME} is for tests: it needs INTERLOCK_TESTING=1")
    if not (text.isascii() and text.isdecimal()):
        raise OursToFixError("CONFIG_INVALID", f"{BACKOFF_NAME} must be a whole number, not {text!r}")
    return int(text) / 1_000


def roles(environment: Mapping[str, str]) -> tuple[Role, ...]:
    """Every role but the broker, as many of each as the environment says; raises OursToFixError."""
    counts = replicas_from(environment)
    kinds = (
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
    return tuple(
        replace(role, name=name, replica_of=role.name)
        for role in kinds
        for name in replica_names(role.name, counts[role.name])
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

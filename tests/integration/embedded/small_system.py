"""A small real system for tests: real forks, a real broker, roles that do nothing but live and end.

Run as a program: `small_system.py DIR [variation …]`; a variation adds or changes one role.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from gateway.embedded.directory import DataDirectory
from gateway.embedded.role import STOP_POOLS, STOP_PROJECTOR, Role, RoleContext
from gateway.embedded.up import up
from interlock.errors import InterlockError

ROLES = (
    ("governor", 0),
    ("scheduler", 0),
    ("pool-pure", STOP_POOLS),
    ("pool-fs", STOP_POOLS),
    ("pool-shell", STOP_POOLS),
    ("pool-network", STOP_POOLS),
    ("projector", STOP_PROJECTOR),
)
#: Stands for the heavy modules that roles share: nothing else here imports it.
SHARED_MODULE = "sqlite3"


def live(context: RoleContext) -> int:
    print(f"{context.name} shares {SHARED_MODULE}: {SHARED_MODULE in sys.modules}", file=sys.stderr)
    context.ready()
    context.stopping.wait()
    note_end(context)
    return 0


def live_with_children(context: RoleContext) -> int:
    """Leaves a child behind, and one that has a session of its own."""
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return live(context)


def ignore_the_stop(context: RoleContext) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.ready()
    threading.Event().wait()
    return 0


def never_be_ready(context: RoleContext) -> int:
    context.stopping.wait()
    return 0


def crash(context: RoleContext) -> int:
    raise RuntimeError(f"{context.name} crashed as it was told to")


def note_end(context: RoleContext) -> None:
    with open(context.directory.run / "ended", "a", encoding="utf-8") as file:
        file.write(f"{context.name}\n")


VARIATIONS = {
    "children": Role("children", live_with_children, stop_stage=STOP_POOLS),
    "stubborn": Role("stubborn", ignore_the_stop, drain_seconds=0.2, stop_stage=STOP_POOLS),
    "patient": Role("patient", ignore_the_stop, drain_seconds=100, stop_stage=STOP_POOLS),
    "never-ready": Role("never-ready", never_be_ready),
    "crashing": Role("crashing", crash),
    "crashing-aside": Role("crashing-aside", crash, essential=False),
}


def preload() -> None:
    __import__(SHARED_MODULE)
    if "bad-preload" in sys.argv:
        raise RuntimeError("an import failed as it was told to")
    if "threaded-preload" in sys.argv:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


def main(folder: str, *variations: str) -> int:
    if "import-first" in variations:
        __import__(SHARED_MODULE)
    roles = [Role(name, live, stop_stage=stage) for name, stage in ROLES]
    roles += [VARIATIONS[name] for name in variations if name in VARIATIONS]
    try:
        return up(
            DataDirectory.at(folder),
            roles,
            preload,
            os.environ,
            version="0.0.test",
            ready_seconds=1.0 if "never-ready" in variations else 20.0,
        )
    except InterlockError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

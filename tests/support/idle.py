"""I11: what a hurt system holds once it is quiet is what it held before: descriptors, memory, broker bytes.

Bounds leave room for what a process keeps by design: pools of connections, allocated arenas, the stream.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from gateway.embedded.control import ask
from interlock.adapters.redis_client import connect
from interlock.stream import PROJECTED, READERS, STREAM
from tests.support.running import RunningSystem
from tests.support.wait import until

DESCRIPTORS_MORE_MAX = 24
"""A process opens connections as it needs them: 4 kept to a database, 2 or 3 to the broker, a pipe and a line
to a supervisor a slot. One leaked a kill or call would be many more."""
BROKER_MORE_MAX = 64
"""It holds the other end of every connection: up to four more for each of more than a dozen processes."""
PARENT_MORE_MAX = 2
"""The parent of all roles forks them and holds a descriptor a start: one leaked a restart shows at once."""
MEMORY_MORE_MAX = 1.35
MEMORY_MORE_KB = 60_000
"""Arenas and caches that fill with traffic, measured at 20 % after some thousand calls."""
BROKER_MORE_BYTES = 2 * 2**20
"""Beside the stream, and what ends by itself."""


class Held(NamedTuple):
    """What a system holds at one moment."""

    parent_descriptors: int
    descriptors: Counter[str]
    """By role."""
    pss_kb: int
    broker_bytes: int
    """Without the stream of events, and without what ends by itself."""
    lasting_lists: tuple[str, ...]
    """Lists in the broker that hold something and would for ever."""


def baseline(system: RunningSystem) -> Held:
    """What it holds now; every role is ready."""
    until(system.all_ready, 30, "all roles serve")
    return held(system)


def held(system: RunningSystem) -> Held:
    """What it holds now."""
    status: Any = ask(system.directory, {"do": "status"})
    roles = {role["name"]: role["pid"] for role in status["roles"] if role["pid"]}
    parent = int(status["parent_pid"])
    used, lasting = _broker(system)
    pids = {parent, *system.descendants(parent)}
    return Held(
        parent_descriptors=_descriptors(parent),
        descriptors=Counter({name: _descriptors(pid) for name, pid in roles.items()}),
        pss_kb=sum(map(_pss_kb, pids)),
        broker_bytes=used,
        lasting_lists=lasting,
    )


def grown(system: RunningSystem, before: Held) -> list[str]:
    """What is more than it may be, in words, after some time for what ends by itself."""
    found: list[str] = []

    def is_as_before() -> bool:
        found[:] = _differences(held(system), before)
        return not found

    with contextlib.suppress(AssertionError):
        until(is_as_before, 20, "it holds what it held before")
    return found


def _differences(now: Held, before: Held) -> list[str]:
    said = []
    if now.parent_descriptors > before.parent_descriptors + PARENT_MORE_MAX:
        count = now.parent_descriptors
        said.append(f"I11: the parent holds {count} descriptors, {before.parent_descriptors} before")
    for role, count in now.descriptors.items():
        more_max = BROKER_MORE_MAX if role == "broker" else DESCRIPTORS_MORE_MAX
        if count > before.descriptors[role] + more_max:
            said.append(f"I11: {role} holds {count} descriptors, {before.descriptors[role]} before")
    if now.pss_kb > before.pss_kb * MEMORY_MORE_MAX + MEMORY_MORE_KB:
        said.append(f"I11: {now.pss_kb} kB of memory, {before.pss_kb} before")
    if now.broker_bytes > before.broker_bytes + BROKER_MORE_BYTES:
        said.append(f"I11: {now.broker_bytes} bytes in the broker, {before.broker_bytes} before")
    said += [f"I11: the broker keeps {name}" for name in now.lasting_lists]
    return said


def _broker(system: RunningSystem) -> tuple[int, tuple[str, ...]]:
    """Bytes of the keys that last, and the lists among them that are not empty."""
    used, lasting = 0, []
    with closing(connect(system.directory.broker_client_url)) as client:
        for key in client.scan_iter(count=1_000):
            name = key.decode(errors="replace")
            if name in (STREAM, READERS, PROJECTED) or client.ttl(key) >= 0:
                continue
            used += int(client.memory_usage(key) or 0)
            if client.type(key) == b"list":
                lasting.append(name)
    return used, tuple(sorted(lasting))


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _pss_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)

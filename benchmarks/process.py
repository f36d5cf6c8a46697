"""What processes cost: CPU time and memory, as the kernel counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.figure import MEASURING
from gateway.embedded.kernel import descendants, resident_share_bytes

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def ticks_of_stat(text: str) -> int:
    """Clock ticks in user and system mode, of one /proc/<pid>/stat; the name in it may hold brackets."""
    fields = text.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def cpu_seconds(pids: Mapping[int, str]) -> dict[int, tuple[str, float]]:
    """Process → the name it was given and the CPU seconds it used so far; what has ended is left out."""
    found: dict[int, tuple[str, float]] = {}
    for pid, name in pids.items():
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found[pid] = name, ticks_of_stat(text) / TICKS_A_SECOND
    return found


def spent(
    before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]]
) -> dict[str, float]:
    """Name → CPU seconds used in between; processes of one name are added up."""
    used: dict[str, float] = {}
    for pid, (name, seconds) in after.items():
        used[name] = used.get(name, 0.0) + seconds - before.get(pid, (name, 0.0))[1]
    return used


class Meter:
    """Measures the CPU time of trees of processes, and of this one, which only looks on."""

    def __init__(self, roots: Mapping[int, str]) -> None:
        """`roots` name processes; what is below one of them and has no name of its own has its name."""
        self._roots = dict(roots)
        self._before: dict[int, tuple[str, float]] = {}

    def begin(self) -> None:
        """From now on."""
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """Name → CPU seconds since `begin`."""
        return spent(self._before, self._now())

    def _now(self) -> dict[int, tuple[str, float]]:
        named = {below: name for root, name in self._roots.items() for below in descendants(root)}
        return cpu_seconds({**named, **self._roots, os.getpid(): MEASURING})


def idle_cost(
    roots: Iterable[int], seconds: float, wait: Callable[[float], object] = time.sleep
) -> tuple[float, float]:
    """(CPU in percent of one core, PSS in megabytes) of whole trees while nobody asks them anything."""
    pids = {pid: "" for root in roots for pid in (root, *descendants(root))}
    before, began = cpu_seconds(pids), time.monotonic()
    wait(seconds)
    used = sum(spent(before, cpu_seconds(pids)).values())
    taken = time.monotonic() - began
    memory = sum(_share(pid) for pid in pids)
    return used / taken * 100, memory / 1_000_000


def _share(pid: int) -> int:
    try:
        return resident_share_bytes(pid)
    except OSError:
        return 0

"""What processes cost: CPU time and memory, as the kernel counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gateway.embedded.kernel import descendants, resident_share_bytes

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_of_stat(text: str) -> tuple[str, int]:
    """(name, clock ticks in user and system mode) of one /proc/<pid>/stat; the name may hold brackets."""
    before, _, rest = text.rpartition(")")
    fields = rest.split()
    return before.partition("(")[2], int(fields[11]) + int(fields[12])


def cpu_seconds(pids: Iterable[int], names: Mapping[int, str]) -> dict[int, tuple[str, float]]:
    """Process → its name and the CPU seconds that it used so far; what has ended is left out.

    `names` are names for those whose own name says too little.
    """
    found: dict[int, tuple[str, float]] = {}
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        name, ticks = cpu_of_stat(text)
        found[pid] = names.get(pid, name), ticks / TICKS_A_SECOND
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
    """Measures the CPU time of trees of processes, and of this one as the producer."""

    def __init__(self, roots: Iterable[int], names: Mapping[int, str] | None = None) -> None:
        self._roots = tuple(roots)
        self._names = {os.getpid(): "producer", **(names or {})}
        self._before: dict[int, tuple[str, float]] = {}

    def begin(self) -> None:
        """From now on."""
        self._before = self._now()

    def microseconds(self, n: int) -> dict[str, float]:
        """Name → microseconds of CPU for each of `n`, since `begin`."""
        used = spent(self._before, self._now())
        return {name: seconds * 1_000_000 / n for name, seconds in used.items() if seconds}

    def _now(self) -> dict[int, tuple[str, float]]:
        return cpu_seconds([os.getpid(), *tree_of(self._roots)], self._names)


def tree_of(roots: Iterable[int]) -> set[int]:
    """These processes and all below them."""
    return set().union(*({root, *descendants(root)} for root in roots))


def idle_cost(root: int, seconds: float, wait: Callable[[float], object] = time.sleep) -> tuple[float, float]:
    """(CPU in percent of one core, PSS in megabytes) of a whole tree while nobody asks it anything."""
    pids = tree_of([root])
    before, began = cpu_seconds(pids, {}), time.monotonic()
    wait(seconds)
    used = sum(spent(before, cpu_seconds(pids, {})).values())
    taken = time.monotonic() - began
    memory = sum(_share(pid) for pid in pids)
    return used / taken * 100, memory / 1_000_000


def _share(pid: int) -> int:
    try:
        return resident_share_bytes(pid)
    except OSError:
        return 0

"""How often a process of ours looks for garbage in cycles.

Nearly everything that a short command makes lives as long as it does, and a batch makes tens of thousands of
objects that live for a moment. At Python's own pace they are looked through for a tenth of all the time.
"""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 100)
"""More new objects than a usual batch holds at once; of what is in cycles no more can pile up than that."""


def collect_seldom() -> None:
    """From now on, in this process and those that it forks. For a composition root."""
    gc.set_threshold(*THRESHOLDS)

"""Every role is replaced under load: nothing is lost, doubled or uncertain."""

from __future__ import annotations

import random
import time

import pytest

from tests.support.crashing import ONE, settle
from tests.support.renewing import loaded_system, uncertain
from tests.support.store import LEDGER_URL, store_settings


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_every_role_replaced_under_load_leaves_nothing_lost_doubled_or_uncertain(
    store: str, rng: random.Random
) -> None:
    with (
        store_settings(store) as settings,
        loaded_system(rng, ledger_url=settings.get(LEDGER_URL, ""), replicas=ONE) as load,
    ):
        began = time.monotonic()
        steps = load.restart()
        print(f"{len(steps)} processes replaced in {time.monotonic() - began:.1f} s")
        print(f"longest time without an answer: {load.pulse.gap_ms(began)} ms")
        assert {step["state"] for step in steps} == {"done"}
        load.closing.set()
        assert settle(load.system, load.traffic) == []
        assert uncertain(load.system.directory) == set()
        assert load.system.faulted_pids() == set()

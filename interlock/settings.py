"""The numbers a deployment may turn: times, sizes, slots. Read once by a composition root and handed on.

Holds no secret and no address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from interlock.tier import Pool, Tier


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults are those of the embedded system. Each may be set by `INTERLOCK_<NAME>`."""

    lease_ms: int = 15_000
    """A claim whose beat counter stood still this long, as one sweeper saw it, has run out."""
    beat_ms: int = 3_000
    """How often a process that claims moves its counter: at least four times a lease."""
    start_by_ms: int = 10_000
    """An effect begins only this long after its claim was committed."""
    permit_ms: int = 600_000
    """Validity of a permit, minted at release."""
    release_again_ms: int = 5_000
    """A published hint that nobody claimed is published again after this, then twice this, and so on."""
    look_again_ms: int = 30_000
    """The safety net under whatever waits for a wake-up."""
    poll_ms: int = 1_000
    """How often an idle role looks without being woken."""
    intake_max: int = 512
    """Most items in one batch of the governor."""
    envelope_max: int = 256
    """Most ids in one hint of the pure pool. It carries what is ready: only load makes it this long."""
    stop_check_ms: int = 250
    """How often a supervisor looks whether it is to end what it runs."""
    attempt_wait_ms: int = 1_000
    """First wait before another attempt; doubles."""
    """Most invocations of one session."""
    slots_pure: int = 1
    """Executions that the pure pool runs at once."""
    slots_fs: int = 2
    """Executions that the fs pool runs at once."""
    slots_shell: int = 2
    """Executions that the shell pool runs at once."""
    slots_network: int = 2
    """Executions that the network pool runs at once."""

    def slots(self, pool: str) -> int:
        """Executions a pool runs at once."""
        value: int = getattr(self, f"slots_{Pool(pool).value}")
        return value

    def window(self, pool: str) -> int:
        """Ids of a pool that may be published and unclaimed at once."""
        return 4 * self.envelope_max if pool == Pool.PURE.value else 2 * self.slots(pool)

    def approval_us(self, tier: str) -> int:
        """How long an approval may be waited for, by tier."""
        return APPROVAL_HOURS[Tier(tier)] * 3_600_000_000


APPROVAL_HOURS: Mapping[Tier, int] = MappingProxyType(
    {Tier.T0: 72, Tier.T1: 72, Tier.T2: 48, Tier.T3: 24, Tier.T4: 8}
)
"""The more a call may do, the sooner an unanswered question about it is stale."""


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Settings with what the environment overrides; a ValueError names a variable that is no whole number."""
    given = {field.name: environment.get(f"INTERLOCK_{field.name.upper()}") for field in fields(Settings)}
    values: dict[str, int] = {}
    for name, text in given.items():
        if text is None:
            continue
        if not text.isdecimal():
            raise ValueError(f"INTERLOCK_{name.upper()} must be a whole number, not {text!r}")
        values[name] = int(text)
    return Settings(**values)

"""The contract of a tool: what it takes, gives, needs and may do, as data pinned by its digest.

Never imports or runs the tool's code.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from interlock.tier import Pool, Risk, Tier, ToolCapability, pool_of
from interlock.word import FrozenValue, Word

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.\-]{0,127}$"
BUILTIN_CATALOGUE = "builtin"


class EffectScope(StrEnum):
    """How far the effects of a tool reach."""

    NONE = "none"
    WORKSPACE = "workspace"
    EXTERNAL = "external"


class Strength(StrEnum):
    """How strongly the sandbox holds."""

    NONE = "none"
    """No sandbox: only for what runs inside the pool process (T0 built-ins and mocks)."""
    K = "K"
    """Kernel filters only."""
    N = "N"
    """Namespaces and kernel filters."""


class Executor(StrEnum):
    """Who answers a call of the tool."""

    BUILTIN = "builtin"
    MOCK = "mock"
    PLUGIN = "plugin"


class Effects(Word):
    """What running the tool twice, or not at all, would mean."""

    read_only: bool = False
    idempotent: bool = False
    deterministic: bool = False


class SandboxNeeds(Word):
    """The least strength, the globs below the workspace, and the hosts a tool needs."""

    strength: Strength = Strength.NONE
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Limits(Word):
    """What one execution may use at most."""

    output_bytes: int = Field(default=1_048_576, ge=1, le=64 * 1_048_576)
    attempts: int = Field(default=3, ge=1, le=100)
    """Attempts of an idempotent or read-only tool; anything else has one."""


class Tool(Word):
    """The contract of an executable tool."""

    name: str = Field(pattern=NAME_PATTERN)
    catalogue: str = Field(default=BUILTIN_CATALOGUE, pattern=NAME_PATTERN)
    version: str = Field(default="1", min_length=1, max_length=64)
    description: str = Field(default="", max_length=16_384)
    parameters: FrozenValue = Field(default_factory=lambda: {"type": "object", "properties": {}})
    output: FrozenValue = None
    """JSON Schema of the structured output, or None where the tool has no code here."""
    tier: Tier = Tier.T0
    capabilities: tuple[ToolCapability, ...] = ()
    risk: Risk | None = None
    effects: Effects = Effects()
    effect_scope: EffectScope = EffectScope.NONE
    sandbox: SandboxNeeds = SandboxNeeds()
    timeout_ms: int = Field(default=60_000, ge=1, le=86_400_000)
    limits: Limits = Limits()
    paths: tuple[str, ...] = ()
    """JSON Pointers to the arguments that name files below the workspace."""
    open_parameters: bool = False
    """True opts out of closing object schemas that say nothing of further keys."""
    executor: Executor = Executor.MOCK

    @property
    def qualified_name(self) -> str:
        """`name` for a built-in, `catalogue/name` elsewhere."""
        return self.name if self.catalogue == BUILTIN_CATALOGUE else f"{self.catalogue}/{self.name}"

    @property
    def pool(self) -> Pool:
        """The pool whose workers may run it."""
        return pool_of(self.capabilities)

    @property
    def may_repeat(self) -> bool:
        """Whether a second run after an unknown outcome does no harm."""
        return self.effects.read_only or self.effects.idempotent

    @property
    def attempts_max(self) -> int:
        """How often it may be begun."""
        return self.limits.attempts if self.may_repeat else 1

    @property
    def is_batchable(self) -> bool:
        """Whether it may be claimed with others: only T0, read-only and idempotent tools."""
        return self.tier is Tier.T0 and self.may_repeat and not self.capabilities

    @property
    def guards_twins(self) -> bool:
        """Whether equal calls are held while one runs or is unresolved: external, non-idempotent effects."""
        return self.effect_scope is EffectScope.EXTERNAL and not self.may_repeat

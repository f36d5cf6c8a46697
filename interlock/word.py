"""The base of every word that travels: a frozen record of plain, frozen values.

Never holds behaviour that needs a clock, a store or a network.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from interlock.canonical import JsonObject, canonical, freeze, sha256_hex, thaw

FrozenValue = Annotated[Any, BeforeValidator(freeze), PlainSerializer(thaw, return_type=Any)]
"""JSON of any shape, frozen all the way down when it is read, thawed into a fresh copy when written."""


class Word(BaseModel):
    """An immutable record; unknown fields are refused rather than dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def to_json(self) -> JsonObject:
        """A fresh, mutable JSON object of this word."""
        return self.model_dump(mode="json")

    def to_bytes(self) -> bytes:
        """The canonical bytes (RFC 8785) of this word."""
        return canonical(self.to_json())

    @property
    def digest(self) -> str:
        """Lower-case hex SHA-256 of the canonical bytes."""
        return sha256_hex(self.to_bytes())

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Read what `to_json` wrote; raises pydantic's ValidationError on anything else."""
        return cls.model_validate(value)

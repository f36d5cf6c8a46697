"""The base of every word that travels: a frozen record of plain, frozen values.

Never holds behaviour that needs a clock, a store or a network.
"""

from __future__ import annotations

from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from interlock.canonical import (
    CANONICAL_DEPTH_MAX,
    Fragment,
    JsonObject,
    canonical,
    freeze,
    plainly_written,
    quickly_written,
    sha256_hex,
    thaw,
)

FrozenValue = Annotated[Any, BeforeValidator(freeze), PlainSerializer(thaw, return_type=Any)]
"""JSON of any shape, frozen all the way down when it is read, thawed into a fresh copy when written."""
_FREE_FORM = tuple(FrozenValue.__metadata__)
_WORD_DEPTH_MAX = 16
"""How deep words stand within words at most; free JSON below them has the rest of the levels."""


def _is_plain(annotation: Any) -> bool:
    """Whether what has this type is written by orjson as JSON has it: no double, no free keys."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType, tuple):
        return all(part is Ellipsis or _is_plain(part) for part in get_args(annotation))
    if origin is Literal:
        return all(type(said) in (str, int) for said in get_args(annotation))
    return annotation in (str, int, bool, NoneType) or (
        isinstance(annotation, type) and issubclass(annotation, (Word, StrEnum))
    )


class Word(BaseModel):
    """An immutable record; unknown fields are refused rather than dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    free_fields: ClassVar[tuple[str, ...] | None] = None
    """The fields that hold free JSON; None where another field may hold something that is not plain."""
    defaults: ClassVar[dict[str, Any]] = {}
    """What stands in the fields that need not be said."""

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        free = tuple(name for name, field in cls.model_fields.items() if tuple(field.metadata) == _FREE_FORM)
        others = [field.annotation for name, field in cls.model_fields.items() if name not in free]
        cls.defaults = {
            name: field.get_default(call_default_factory=True)
            for name, field in cls.model_fields.items()
            if not field.is_required()
        }
        cls.free_fields = free if all(map(_is_plain, others)) else None

    def to_json(self) -> JsonObject:
        """A fresh, mutable JSON object of this word."""
        return self.model_dump(mode="json")

    @classmethod
    def of_checked(cls, **fields: Any) -> Self:
        """What the class makes of these fields, which passed its checks before; nothing is looked at.

        For words that are made of words. Free JSON must be frozen already.
        """
        word = cls.__new__(cls)
        _set(word, "__dict__", cls.defaults | fields)
        _set(word, "__pydantic_fields_set__", set(fields))
        _set(word, "__pydantic_extra__", None)
        _set(word, "__pydantic_private__", None)
        return word

    def to_bytes(self, **known: bytes) -> bytes:
        """The canonical bytes (RFC 8785) of this word: those of `to_json`, mostly without making it.

        `known` are fields whose canonical bytes were made before.
        """
        if self.free_fields is None:
            return canonical(self.to_json())
        whole = self._with(known) if known else self
        return plainly_written(whole, _members) or canonical(self.to_json())

    def _with(self, known: dict[str, bytes]) -> Any:
        """Its members with these bytes; the word as it is where its other free JSON has no quick way."""
        fragments = {name: Fragment(written) for name, written in known.items()}
        try:
            for name in self.free_fields or ():
                if name not in known and self.__dict__[name] is not None:
                    fragments[name] = _fragment(self.__dict__[name])
        except TypeError:
            return self
        return self.__dict__ | fragments

    @property
    def digest(self) -> str:
        """Lower-case hex SHA-256 of the canonical bytes."""
        return sha256_hex(self.to_bytes())

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Read what `to_json` wrote; raises pydantic's ValidationError on anything else."""
        return cls.model_validate(value)


_set = object.__setattr__


def _members(word: Any) -> dict[str, Any]:
    """A word's members as orjson takes them, free JSON in its canonical bytes; fails for all but words."""
    free = word.free_fields  # asked for rather than judged by `isinstance`, which pydantic makes dear
    if free is None:
        raise TypeError
    members: dict[str, Any] = word.__dict__
    return members | {name: _fragment(members[name]) for name in free} if free else members


def _fragment(value: Any) -> Fragment:
    written = quickly_written(value, CANONICAL_DEPTH_MAX - _WORD_DEPTH_MAX)
    if written is None:
        raise TypeError
    return Fragment(written)

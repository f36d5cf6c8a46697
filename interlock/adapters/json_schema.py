"""Compiles and applies JSON Schema 2020-12 with jsonschema-rs: formats asserted, nothing ever fetched.

Patterns run in linear time. Messages never repeat the value that was judged, which may be secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

Path = tuple[str | int, ...]
MASK = "the value"


@dataclass(frozen=True, slots=True)
class EngineFault:
    """One fault as the engine found it. `place` is the path of the value.

    `unexpected` names keys that are not allowed there; `branches` holds the faults of each alternative
    where none, or more than one, of several fits.
    """

    place: Path
    keyword: str
    message: str
    unexpected: tuple[str, ...] = ()
    branches: tuple[tuple[EngineFault, ...], ...] = ()


class EngineRefusedError(Exception):
    """The engine cannot use a schema. `place` is the path in the schema, where it told one."""

    def __init__(self, message: str, place: Path) -> None:
        super().__init__(message)
        self.message = message
        self.place = place


class CompiledRustSchema:
    """A schema that the engine holds ready; safe to use from several threads."""

    def __init__(self, validator: jsonschema_rs.Draft202012Validator) -> None:
        self._validator = validator

    def is_valid(self, value: Any) -> bool:
        return self._validator.is_valid(value)

    def faults(self, value: Any) -> Iterator[EngineFault]:
        return (_fault(error) for error in self._validator.iter_errors(value))


class RustSchemaEngine:
    """The engine of the product; holds no state."""

    def compile(self, schema: dict[str, Any]) -> CompiledRustSchema:
        """Raises `EngineRefusedError`."""
        try:
            validator = jsonschema_rs.Draft202012Validator(
                schema,
                offline=True,
                validate_formats=True,
                pattern_options=jsonschema_rs.RegexOptions(),
                mask=MASK,
            )
        except jsonschema_rs.ValidationError as error:
            raise EngineRefusedError(_first_line(error.message), tuple(error.instance_path)) from None
        except (jsonschema_rs.ReferencingError, ValueError) as error:
            raise EngineRefusedError(_first_line(str(error)), ()) from None
        return CompiledRustSchema(validator)

    def is_pattern(self, pattern: str) -> bool:
        """Whether the linear-time engine can run this regular expression."""
        try:
            self.compile({"pattern": pattern})
        except EngineRefusedError:
            return False
        return True


def _fault(error: jsonschema_rs.ValidationError) -> EngineFault:
    kind = error.kind
    return EngineFault(
        place=tuple(error.instance_path),
        keyword=kind.name,
        message=_first_line(error.message),
        unexpected=_unexpected(kind),
        branches=_branches(kind),
    )


def _unexpected(kind: jsonschema_rs.ValidationErrorKind) -> tuple[str, ...]:
    if isinstance(kind, (Kind.AdditionalProperties, Kind.UnevaluatedProperties)):
        return tuple(kind.unexpected)
    return ()


def _branches(kind: jsonschema_rs.ValidationErrorKind) -> tuple[tuple[EngineFault, ...], ...]:
    if isinstance(kind, (Kind.AnyOf, Kind.OneOfNotValid)):
        return tuple(tuple(_fault(error) for error in branch) for branch in kind.context)
    return ()


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:300]

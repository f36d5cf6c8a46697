"""Makes changed copies of frozen records: what `dataclasses.replace` does, at a quarter of its price.

Never changes a record, and never runs a class's own `__init__` or `__post_init__`.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

Record = TypeVar("Record")


class Variants(Generic[Record]):
    """Variants of the records of one class: a dataclass with slots and without a `__post_init__`."""

    def __init__(self, kind: type[Record]) -> None:
        """Raises TypeError for a class that has no slots of its own, or that looks at what it is made of."""
        names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]  # checked right here
        if hasattr(kind, "__post_init__") or any(name not in vars(kind) for name in names):
            raise TypeError(f"{kind.__name__} is no plain dataclass with slots")
        self._kind = kind
        self._places = {name: place for place, name in enumerate(names)}
        self._read = attrgetter(*names)
        # A slot is written past the class's own refusal: nobody else has seen the copy yet.
        self._write = tuple(vars(kind)[name].__set__ for name in names)

    def __call__(self, record: Record, /, **changes: Any) -> Record:
        """A copy with these fields changed; raises TypeError for a field that there is none of."""
        values = list(self._read(record))
        for name, value in changes.items():
            place = self._places.get(name)
            if place is None:
                raise TypeError(f"{self._kind.__name__} has no field {name!r}")
            values[place] = value
        copy = object.__new__(self._kind)
        for write, value in zip(self._write, values, strict=True):
            write(copy, value)
        return copy

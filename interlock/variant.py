"""Makes frozen records, and changed copies of them, at a fifth of what their own `__init__` costs.

Never changes a record that anybody has seen, and never runs a class's own `__post_init__`.
"""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

Record = TypeVar("Record")


class Variants(Generic[Record]):
    """Makes the records of one class: a dataclass with slots and without a `__post_init__`.

    A frozen class writes each field past its own refusal. Its twin, with the same slots and not frozen, is
    filled as any object is, and becomes a record before anybody sees it.
    """

    def __init__(self, kind: type[Record]) -> None:
        """Raises TypeError for a class that has no slots of its own, or that looks at what it is made of."""
        told = fields(kind)  # type: ignore[arg-type]  # checked right here
        names = tuple(one.name for one in told)
        if hasattr(kind, "__post_init__") or any(name not in vars(kind) for name in names):
            raise TypeError(f"{kind.__name__} is no plain dataclass with slots")
        self._kind = kind
        self._places = {name: place for place, name in enumerate(names)}
        self._read = attrgetter(*names)
        same = [
            (one.name, Any, field(default=one.default, default_factory=one.default_factory)) for one in told
        ]
        self._twin: Any = make_dataclass(kind.__name__, same, slots=True, eq=False, repr=False)

    def __call__(self, record: Record, /, **changes: Any) -> Record:
        """A copy with these fields changed; raises TypeError for a field that there is none of."""
        values = list(self._read(record))
        for name, value in changes.items():
            place = self._places.get(name)
            if place is None:
                raise TypeError(f"{self._kind.__name__} has no field {name!r}")
            values[place] = value
        return self.made(*values)

    def made(self, *values: Any, **named: Any) -> Record:
        """A record of these fields, as the class itself makes it of them; raises TypeError where it would."""
        record = self._twin(*values, **named)
        record.__class__ = self._kind
        made: Record = record
        return made

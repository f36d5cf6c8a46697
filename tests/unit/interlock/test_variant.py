"""Changed copies of frozen records are what `dataclasses.replace` makes of them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from interlock.variant import Variants


@dataclass(frozen=True, slots=True)
class Head:
    """A record of several fields, most of them with a default."""

    kind: str
    id: str
    version: int = 0
    tenant: str = ""
    phase: str = "new"
    ready: bool = False
    attempt: int = 0


def test_a_variant_is_what_replace_makes() -> None:
    head = Head("invocation", "one", version=3, tenant="default", ready=True)
    changed = Variants(Head)(head, phase="done", ready=False, attempt=2)
    assert changed == replace(head, phase="done", ready=False, attempt=2)
    assert hash(changed) == hash(replace(head, phase="done", ready=False, attempt=2))


def test_the_record_it_was_made_of_stays_as_it_was() -> None:
    head = Head("invocation", "one")
    Variants(Head)(head, phase="done")
    assert head == Head("invocation", "one")


def test_a_variant_is_as_frozen_as_its_record() -> None:
    changed = Variants(Head)(Head("invocation", "one"), phase="done")
    with pytest.raises(FrozenInstanceError):
        changed.phase = "queued"  # type: ignore[misc]  # frozen: that it raises is the point


def test_a_field_that_there_is_none_of_is_an_error() -> None:
    with pytest.raises(TypeError, match="no field 'colour'"):
        Variants(Head)(Head("invocation", "one"), colour="red")


def test_what_is_made_is_what_the_class_makes() -> None:
    values = {"version": 3, "tenant": "default", "ready": True}
    made = Variants(Head).made("invocation", "one", **values)
    usual = Head("invocation", "one", version=3, tenant="default", ready=True)
    assert (made, type(made), hash(made), repr(made)) == (usual, Head, hash(usual), repr(usual))
    with pytest.raises(FrozenInstanceError):
        made.phase = "queued"  # type: ignore[misc]  # frozen: that it raises is the point


def test_a_default_that_is_made_is_made_anew() -> None:
    @dataclass(frozen=True, slots=True)
    class Listed:
        one: int
        more: list[int] = field(default_factory=list)

    first, second = Variants(Listed).made(1), Variants(Listed).made(1)
    assert first == second == Listed(1)
    assert first.more is not second.more
    with pytest.raises(TypeError):
        Variants(Listed).made()


def test_what_it_cannot_copy_it_refuses_from_the_start() -> None:
    @dataclass(frozen=True)
    class Unslotted:
        value: int

    @dataclass(frozen=True, slots=True)
    class Watchful:
        value: int

        def __post_init__(self) -> None:
            raise ValueError

    for kind in (Unslotted, Watchful):
        with pytest.raises(TypeError):
            Variants(kind)

"""How many processes of a role are started, and what names they have."""

from __future__ import annotations

import pytest

from gateway.replicas import REPLICAS_MAX, REPLICATED, replica_names, replicas_from
from gateway.start import backoff_seconds_max, roles
from interlock.errors import OursToFixError


def test_one_of_each_where_nothing_is_said() -> None:
    assert set(replicas_from({}).values()) == {1}
    assert [role.name for role in roles({})] == list(REPLICATED)


def test_replicas_are_roles_of_one_kind_with_names_of_their_own() -> None:
    made = roles({"INTERLOCK_REPLICAS": "governor=2, pool-shell=3"})

    assert [role.name for role in made if role.kind == "pool-shell"] == list(replica_names("pool-shell", 3))
    assert [role.name for role in made if role.kind == "governor"] == ["governor", "governor-2"]
    assert len({role.name for role in made}) == len(made) == len(REPLICATED) + 3


@pytest.mark.parametrize(
    "said",
    [
        "governor",
        "governor=",
        "governor=0",
        f"governor={REPLICAS_MAX + 1}",
        "governor=two",
        "governor=-1",
        "broker=2",
        "pool=2",
        "governor-2=1",
        "governor=1,governor=2",
        "=2",
    ],
)
def test_what_cannot_be_meant_is_refused_by_a_line_that_names_it(said: str) -> None:
    with pytest.raises(OursToFixError) as caught:
        roles({"INTERLOCK_REPLICAS": said})

    assert caught.value.code == "CONFIG_INVALID"
    assert "INTERLOCK_REPLICAS" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_a_test_sets_the_wait_before_a_restart() -> None:
    assert backoff_seconds_max({}) > 1
    assert backoff_seconds_max({"INTERLOCK_BACKOFF_MAX_MS": "0", "INTERLOCK_TESTING": "1"}) == 0
    for refused in (
        {"INTERLOCK_BACKOFF_MAX_MS": "0"},
        {"INTERLOCK_BACKOFF_MAX_MS": "x", "INTERLOCK_TESTING": "1"},
    ):
        with pytest.raises(OursToFixError) as caught:
            backoff_seconds_max(refused)
        assert caught.value.code == "CONFIG_INVALID"

"""docker-compose.yml says nothing that is not so, of commands, settings, services, folders; and no secret."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer.main

from gateway.cli.app import build
from gateway.cli.start import POOLS, ROLES, _role_name
from gateway.embedded.server import BROKER_URL, LEDGER_URL, server_from
from tests.support.compose import compose_file
from tests.support.source import ROOT

SECRET = re.compile(r"\$\{[A-Z_]+:\?\}")
SETTINGS = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/reference/settings.md").read_text("utf-8"), re.M))
VOLUME = re.compile(r"(\./)?([\w/.-]+):(/[\w/.-]+)(:ro)?")
SERVICES: dict[str, Any] = compose_file()["services"]
OURS = {name: one for name, one in SERVICES.items() if one.get("command", [""])[0] == "interlock"}


def _waits_for(name: str) -> set[str]:
    """Every service that has to be there first, whether directly or not."""
    first = set(SERVICES[name].get("depends_on", {}))
    return first.union(*(_waits_for(one) for one in first))


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_one_that_the_command_line_accepts(name: str) -> None:
    _, verb, *rest = OURS[name]["command"]
    command = getattr(typer.main.get_command(build()), "commands", {})[verb]
    with command.make_context(verb, rest) as context:  # raises what wrong usage raises
        if verb == "run":
            assert _role_name(context.params["role"], context.params["name"]) == name


def test_every_role_has_a_service() -> None:
    assert OURS.keys() == {"migrate", *ROLES, *(f"pool-{pool}" for pool in POOLS)}


@pytest.mark.parametrize("name", OURS)
def test_every_setting_exists_and_its_value_is_accepted(name: str) -> None:
    said = {key: SECRET.sub("secret", value) for key, value in OURS[name]["environment"].items()}
    assert {key for key in said if key.startswith("INTERLOCK_")} <= SETTINGS
    for setting, host in ((LEDGER_URL, "@postgres/"), (BROKER_URL, "@valkey/")):
        assert host in server_from(said, setting) or (name, setting) == ("migrate", BROKER_URL)


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_waits_for_is_there_and_says_when_it_is_ready(name: str) -> None:
    for other, when in SERVICES[name].get("depends_on", {}).items():
        if when["condition"] == "service_healthy":
            assert SERVICES[other]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        else:
            assert when["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no"
    if name in OURS and name != "migrate":
        assert _waits_for(name) == {"postgres", "valkey", "migrate", "rights"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_volume_and_folder_exists(name: str) -> None:
    for said in SERVICES[name].get("volumes", []):
        volume = VOLUME.fullmatch(said)
        assert volume, said
        assert (ROOT / volume[2]).is_dir() if volume[1] else volume[2] in compose_file()["volumes"]
    if "build" in SERVICES[name]:
        assert (ROOT / SERVICES[name]["build"]["dockerfile"]).is_file()


def test_the_roles_share_the_directory_that_the_image_names() -> None:
    image = (ROOT / "deploy/Dockerfile").read_text("utf-8")
    [folder] = re.findall(r"INTERLOCK_DATA=(\S+)", image)
    assert f"--mode=0700 {folder}\n" in image
    for name, one in OURS.items():
        assert one["volumes"] == ([] if name == "migrate" else [f"data:{folder}"])


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_the_file(name: str) -> None:
    for key, value in SERVICES[name]["environment"].items():
        assert "PASSWORD" not in key or SECRET.fullmatch(value), key
        assert not re.search(r"://[^/@]*:[^/@]*@", SECRET.sub("", value).replace("://:@", "://")), key


def test_the_stores_keep_what_they_are_given() -> None:
    [locks] = [one for one in SERVICES["postgres"]["command"] if one.startswith("max_locks_per_transaction=")]
    assert int(locks.partition("=")[2]) >= 512
    assert "--appendonly yes" in SERVICES["valkey"]["command"][-1]

"""A secret given to a sensitive parameter is found in no file, no entry and no answer of a whole system."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.adapters.redis_client import connect
from interlock.identifier import new_id
from tests.support.live import FACES, Live, running
from tests.support.store import kept_rows
from tests.support.wait import until

TOKEN: dict[str, Any] = {"type": "string", "maxLength": 90, "sensitive": True, "description": "t"}
OUTPUT = {
    "type": "object",
    "properties": {name: {"type": "integer", "description": name} for name in ("n", "m")},
    "required": ["n", "m"],
}


def tool(name: str, tier: str = "T0", **parameters: Any) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1",
        "description": name,
        "parameters": {"type": "object", **parameters},
        "output": OUTPUT,
        "tier": tier,
        "effects": {"read_only": True, "idempotent": True, "deterministic": True},
    }


TOOLS = [
    tool("plain", properties={"token": TOKEN}),
    tool("pattern", patternProperties={"^tok": TOKEN}),
    tool("deep", properties={"token": TOKEN, "next": {"$ref": "#"}}),
    tool("both", properties={"a": {"properties": {"token": TOKEN}, "description": "a", "sensitive": True}}),
    tool("parked", tier="T4", properties={"token": TOKEN}),
]


def calls(secret: str) -> list[tuple[str, dict[str, Any], str]]:
    """Tool, arguments, and how it comes to rest first."""
    return [
        ("plain", {"token": secret}, "done"),
        ("pattern", {"tok1": secret}, "done"),
        ("deep", {"next": {"next": {"token": secret}}}, "done"),
        ("both", {"a": {"token": secret}}, "done"),
        ("plain", {"tokn": secret}, "done"),
        ("parked", {"token": secret}, "awaiting_approval"),
        ("nothing", {"token": secret}, "done"),
    ]


def forms(secret: str) -> Iterator[bytes]:
    """The secret as it stands in text, and inside a longer text in base64, wherever that begins."""
    yield secret.encode()
    for shift in range(3):
        # The first and last characters depend on what stands around it.
        yield b64encode(b"x" * shift + secret.encode())[4:-4]


def found(secret: str, where: bytes) -> bool:
    return any(form in where for form in forms(secret))


@pytest.fixture
def secret() -> str:
    return f"s3cret-{new_id()}"


def test_a_secret_is_found_nowhere(reachable_tmp_path: Path, secret: str) -> None:
    with running(reachable_tmp_path) as live:
        live.add_tools("vault", TOOLS, reachable_tmp_path)
        ids = [propose(live, name, arguments, rest) for name, arguments, rest in calls(secret)]
        assert not [line for line in told(live, ids) if found(secret, line.encode())]
        parked = ids[5]
        answered = live.command("approve", parked)
        assert answered.returncode == 0, answered.stderr.decode()
        until(lambda: live.phase(parked) == "done", 20, "the approved call ends")
        ends = [live.events(identifier)[-1].type for identifier in ids]
        rejected = "ToolExecutionRejected"
        assert ends == [*["ToolExecutionCompleted"] * 4, rejected, "ToolExecutionCompleted", rejected]
        assert not [line for line in told(live, ids) if found(secret, line.encode())]
        assert not found(secret, kept_by_broker(live))
        rows = kept_rows(live.directory)
        assert not found(secret, rows)
        folder = live.directory.path
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert (folder / "ledger.db" in files) == (not rows)
    # The queue's own log on disk still holds what producers sent, as they sent it.
    ours = [file for file in files if folder / "broker" not in file.parents]
    assert not [str(file) for file in ours if found(secret, file.read_bytes())]


def propose(live: Live, name: str, arguments: dict[str, Any], rest: str) -> str:
    owner = "builtin" if name == "nothing" else "vault"
    verdict = FACES["queue"].submit(
        live, f"{owner}/{name}", json.dumps(arguments), session="s", stage=new_id()
    )
    assert verdict.invocation_id is not None
    assert live.rest(verdict.invocation_id) == rest
    return verdict.invocation_id


def told(live: Live, ids: list[str]) -> list[str]:
    """Every line that any command that reads says."""
    lines = [("log",), ("inbox",), ("inbox", "--json"), ("state", "s"), ("state", "s", "--json")]
    lines += [("sessions", "show", "s"), ("verify",), ("rebuild",), ("replay", "s", "--json"), ("doctor",)]
    lines += [("show", identifier, *more) for identifier in ids for more in ((), ("--json",))]
    said: list[str] = []
    for line in lines:
        done = live.command(*line)
        assert done.returncode in (0, 1), (line, done.stderr.decode())
        assert b"INTERNAL" not in done.stderr, (line, done.stderr.decode())
        said += (done.stdout + done.stderr).decode().splitlines()
    assert any("[masked]" in line for line in said)
    return said


def kept_by_broker(live: Live) -> bytes:
    """Everything that the broker holds by now: stream entries, results, replies, queues."""
    client = connect(live.directory.broker_client_url)
    try:
        keys = list(client.scan_iter())
        assert b"interlock:events" in keys
        return b"\n".join(repr(read(client, key)).encode() for key in keys)
    finally:
        client.close()


def read(client: Any, key: bytes) -> Any:
    match client.type(key):
        case b"stream":
            return client.xrange(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"hash":
            return client.hgetall(key)
        case b"string":
            return client.get(key)
        case _:
            return None

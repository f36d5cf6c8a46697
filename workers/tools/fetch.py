"""`http.fetch`: GET or HEAD by a client of ours in a process of its own, to listed hosts only.

Decides where it may go before anything is resolved, resolves once, and connects to what was judged.
Follows no redirect: the next URL is the caller's next request.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from workers.supervisor.capture import text_or_bytes
from workers.supervisor.launch import OwnFunction
from workers.supervisor.port import AffectedEntity, Call
from workers.supervisor.profile import EgressEntry
from workers.supervisor.report import to_bytes
from workers.supervisor.watch import Ran
from workers.tools.egress import Target, choose_address, entry_for, parse_url
from workers.tools.plan import Answer, Refusal

BODY_BYTES_DEFAULT = 262_144
HEADERS_MAX = 64
HEADER_BYTES_MAX = 1_024

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One response: `body` holds at most the limit; size and digest cover what was read of it."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    sha256: str
    is_cut: bool


class Fetch(Protocol):
    """One request to an address that was judged; never another, whatever the response says."""

    def __call__(
        self, target: Target, address: str, method: str, limit_bytes: int, timeout_ms: int
    ) -> Fetched | Refusal:
        """The response, or why there is none."""
        ...


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """One `http.fetch`."""

    launch: OwnFunction
    wall_limit_ms: int

    def conclude(self, ran: Ran) -> Answer | Refusal:
        """The response, whatever its status, or the refusal of the process that asked for it."""
        if ran.exit_code != 0 or ran.stdout.truncated:
            said = ran.stderr.kept[-500:].decode(errors="replace")
            return Refusal("OUTPUT_INVALID", f"the client ended without an answer: {said}", began=True)
        answer = json.loads(ran.stdout.kept)
        if "error" in answer:
            return Refusal(**answer["error"])
        output = answer["output"]
        flags = ("body",) if output["truncated"] else ()
        return Answer(0, output, (), {"status": output["status"]}, flags)

    def affected(self) -> tuple[AffectedEntity, ...]:
        """A read of another system changes nothing that could be named here."""
        return ()


def plan_fetch(call: Call, entries: Sequence[EgressEntry], fetch: Fetch) -> FetchPlan | Refusal:
    """The plan of one call; what is not listed is refused before anything is resolved."""
    target = parse_url(call.arguments["url"])
    if isinstance(target, Refusal):
        return target
    entry = entry_for(target, entries)
    if isinstance(entry, Refusal):
        return entry
    method = call.arguments.get("method", "GET")
    if method not in ("GET", "HEAD"):
        return Refusal("SCHEMA_INVALID", f"{method!r}: only GET and HEAD")
    limit_bytes = min(call.arguments.get("limit_bytes", BODY_BYTES_DEFAULT), call.output_limit_bytes // 2)

    def run() -> bytes:
        return to_bytes(_carry_out(target, entry, method, limit_bytes, call.wall_limit_ms, fetch, resolve))

    return FetchPlan(OwnFunction(run), call.wall_limit_ms)


def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of `host`, from one look-up."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _carry_out(
    target: Target,
    entry: EgressEntry,
    method: str,
    limit_bytes: int,
    timeout_ms: int,
    fetch: Fetch,
    look_up: Resolve,
) -> dict[str, Any]:
    try:
        addresses = look_up(target.host, target.port)
    except OSError as error:
        return _error(Refusal("UPSTREAM_UNREACHABLE", f"{target.host}: {error.strerror}"))
    address = choose_address(entry, addresses)
    if isinstance(address, Refusal):
        return _error(address)
    fetched = fetch(target, address, method, limit_bytes, timeout_ms)
    if isinstance(fetched, Refusal):
        return _error(fetched)
    return {"output": _described(fetched, address)}


def _described(fetched: Fetched, address: str) -> dict[str, Any]:
    return {
        "status": fetched.status,
        "address": address,
        "headers": [_header(name, value) for name, value in fetched.headers[:HEADERS_MAX]],
        "body": text_or_bytes(fetched.body, fetched.is_cut),
        "size_bytes": len(fetched.body),
        "sha256": fetched.sha256,
        "truncated": fetched.is_cut,
    }


def _header(name: bytes, value: bytes) -> dict[str, str]:
    return {"name": name.decode("latin-1").lower(), "value": value[:HEADER_BYTES_MAX].decode("latin-1")}


def _error(refusal: Refusal) -> dict[str, Any]:
    return {"error": {"code": refusal.code, "message": refusal.message, "began": refusal.began}}

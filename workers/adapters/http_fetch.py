"""One HTTP request through httpx2: pinned to an address, no proxy, no redirect, bounded in size and time.

Decides nothing about where it may go; it reads no environment and keeps no connection.
"""

from __future__ import annotations

import hashlib
import ssl
import time

import httpx2

from workers.tools.egress import Target
from workers.tools.fetch import Fetched
from workers.tools.plan import Refusal


def fetch(target: Target, address: str, method: str, limit_bytes: int, timeout_ms: int) -> Fetched | Refusal:
    """The response of `target` at `address`; a refusal says whether the request may have left."""
    deadline = time.monotonic() + timeout_ms / 1000
    verify: ssl.SSLContext | bool = ssl.create_default_context() if target.scheme == "https" else False
    try:
        with (
            httpx2.Client(
                verify=verify, trust_env=False, follow_redirects=False, timeout=timeout_ms / 1000
            ) as client,
            client.stream(
                method,
                _pinned(target, address),
                headers={
                    "host": _host_header(target),
                    "accept-encoding": "identity",
                    "user-agent": "interlock",
                },
                # Name and certificate of the handshake are the host's, although we connect by address.
                extensions={"sni_hostname": target.host},
            ) as response,
        ):
            return _read(response, limit_bytes, deadline)
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        return Refusal("UPSTREAM_UNREACHABLE", f"{target.host}:{target.port}: {error}")
    except httpx2.HTTPError as error:
        return Refusal("UPSTREAM_ERROR", f"{target.host}:{target.port}: {error}", began=True)


def _read(response: httpx2.Response, limit_bytes: int, deadline: float) -> Fetched | Refusal:
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > limit_bytes:
            break
        if time.monotonic() > deadline:
            return Refusal("WALL_LIMIT", "the response did not end in time", began=True)
    kept = bytes(body[:limit_bytes])
    headers = tuple(response.headers.raw)
    digest = hashlib.sha256(kept).hexdigest()
    return Fetched(response.status_code, headers, kept, digest, len(body) > limit_bytes)


def _pinned(target: Target, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{target.scheme}://{host}:{target.port}{target.target}"


def _host_header(target: Target) -> str:
    is_default = target.port == {"http": 80, "https": 443}[target.scheme]
    return target.host if is_default else f"{target.host}:{target.port}"

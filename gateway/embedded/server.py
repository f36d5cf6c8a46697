"""Addresses of servers that a directory may use in place of its own files and broker. Connects to none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit, urlunsplit

from interlock.errors import OursToFixError

LEDGER_URL = "INTERLOCK_LEDGER_URL"
BROKER_URL = "INTERLOCK_BROKER_URL"
SERVER_SCHEMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        LEDGER_URL: ("postgresql://",),
        BROKER_URL: ("redis://", "rediss://", "redis+socket://"),
    }
)


def without_password(url: str) -> str:
    """An address that may be shown."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(
        pair for pair in parts.query.split("&") if pair and not pair.lower().startswith("password=")
    )
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=query))


def is_same_server(one: str, other: str) -> bool:
    """Whether two addresses differ in nothing but a password."""
    return without_password(one) == without_password(other)


def server_from(environment: Mapping[str, str], setting: str) -> str:
    """The address that a setting names, "" without it; OursToFixError(CONFIG_INVALID) for no such address."""
    url = environment.get(setting, "")
    if url and not url.startswith(SERVER_SCHEMES[setting]):
        shown = without_password(url) if "://" in url else "no address"
        raise OursToFixError(
            "CONFIG_INVALID", f"{setting} must begin with {' or '.join(SERVER_SCHEMES[setting])}, not {shown}"
        )
    return url

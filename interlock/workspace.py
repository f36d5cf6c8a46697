"""The name of the folder that a tenant's session works in. Pure: makes no folder and knows no path."""

from __future__ import annotations

import re

from interlock.canonical import digest_of, sha256_hex

DEFAULT_TENANT = "default"
"""The tenant of whoever names none."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def workspace_name(tenant: str, session: str) -> str:
    """One file name for each tenant and session, and no two for one: the session itself where it is a plain
    name of the default tenant, else a hash, which no plain name can be."""
    if tenant != DEFAULT_TENANT:
        return f"={digest_of(['interlock.workspace.v1', tenant, session])}"
    return session if _PLAIN_NAME.fullmatch(session) else f"={sha256_hex(session.encode())}"

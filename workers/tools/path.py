"""The grammar of a path argument: relative, plain components, nothing to resolve. Touches no file."""

from __future__ import annotations

PATH_BYTES_MAX = 4096
COMPONENT_BYTES_MAX = 255


def refused_path(path: str) -> str | None:
    """Why `path` is no path inside a workspace, or None when it is one. `.` is the workspace itself."""
    if path == ".":
        return None
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "not Unicode text"
    if not encoded or b"\0" in encoded or len(encoded) > PATH_BYTES_MAX:
        return "empty, with a NUL, or longer than 4096 bytes"
    if encoded.startswith(b"/"):
        return "absolute; paths are relative to the workspace"
    components = encoded.split(b"/")
    if any(part in (b"", b".", b"..") for part in components):
        return "has an empty, '.' or '..' component"
    if any(len(part) > COMPONENT_BYTES_MAX for part in components):
        return "has a component longer than 255 bytes"
    return None

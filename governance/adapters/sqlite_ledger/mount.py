"""Refuses to keep a ledger on a network file system, where locks and shared memory do not hold.

Reads /proc/self/mountinfo; elsewhere than on Linux it refuses nothing.
"""

from __future__ import annotations

from pathlib import Path

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs",
        "fuse.sshfs", "glusterfs", "gfs2", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs",
        "pvfs2", "smb3", "smbfs", "fuse.davfs2", "fuse.rclone", "fuse.gcsfuse", "fuse.mountpoint-s3",
    }
)  # fmt: skip


def network_file_system(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The type of the network file system that this folder lies on, or None."""
    if not mountinfo.exists():
        return None
    kind = file_system_of(folder.resolve(), mountinfo.read_text("utf-8", errors="surrogateescape"))
    return kind if kind in NETWORK_FILE_SYSTEMS else None


def file_system_of(folder: Path, mountinfo: str) -> str:
    """The type of the file system that a resolved folder lies on, "" where no mount is found."""
    found, depth = "", -1
    for line in mountinfo.splitlines():
        place, _, source = line.partition(" - ")
        point = Path(_unescaped(place.split(" ")[4]))
        # A later mount over the same point hides the earlier one.
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = source.split(" ")[0], len(point.parts)
    return found


def _unescaped(text: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, character)
    return text

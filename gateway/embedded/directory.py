"""The data directory: every path in it, and who may use it.

It makes folders. It never opens the ledger, the views or the broker's files, and takes no lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from gateway.embedded import kernel
from gateway.embedded.error import DataDirectoryError
from gateway.embedded.server import BROKER_URL, LEDGER_URL, server_from, without_password
from interlock.durable import sync_folder

LAYOUT_VERSION = 1
PATH_BYTES_MAX = 400  # SQLite opens no file whose path is longer than 512, its own endings included
SOCKET_PATH_BYTES_MAX = 107  # sun_path holds 108, the closing zero included
#: A socket's path also stands in URLs; one with other characters gets a short folder of its own instead.
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+\Z")
UNUSABLE_CHARACTERS = re.compile(r"[\x00-\x1f\x7f?#]")
EMPTY_NAMES = frozenset({"lost+found"})  # what a fresh file system holds
SHORT_FOLDERS = Path("/tmp")

NETWORK_FILESYSTEMS: Mapping[int, str] = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "SMB",
    0xFE534D42: "SMB",
    0x01021997: "9p",
    0x65735546: "FUSE",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x00C36400: "Ceph",
    0x73757245: "Coda",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x0BD00BD0: "Lustre",
    0x786F4256: "vboxsf",
}
MEMORY_FILESYSTEMS: Mapping[int, str] = {0x01021994: "tmpfs", 0x858458F6: "ramfs"}


def default_path(environment: Mapping[str, str], uid: int) -> Path:
    """Where data lies when nobody says: `INTERLOCK_DATA`, else root's or the user's own state folder."""
    if environment.get("INTERLOCK_DATA"):
        return Path(environment["INTERLOCK_DATA"]).absolute()
    if uid == 0:
        return Path("/var/lib/interlock/data")
    state = environment.get("XDG_STATE_HOME", "")
    # The specification says to ignore a relative one.
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME", "/")) / ".local/state"
    return base / "interlock"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """All paths of one system; making one touches nothing. `path` is absolute.

    `ledger_server` and `broker_server` are addresses of servers that are used in place of its own files and
    broker, as settings name them; they may hold a password.
    """

    path: Path
    ledger_server: str = field(default="", repr=False)
    broker_server: str = field(default="", repr=False)

    @classmethod
    def at(
        cls, path: str | os.PathLike[str], environment: Mapping[str, str] = MappingProxyType({})
    ) -> DataDirectory:
        """The directory at `path`, with the servers that the environment names.

        DataDirectoryError when its name cannot stand in a database URL, OursToFixError(CONFIG_INVALID) for an
        address of no kind of server that is known.
        """
        absolute = Path(os.path.abspath(path))
        if len(os.fsencode(absolute)) > PATH_BYTES_MAX:
            where = Path(f"{str(absolute)[:60]}…")
            raise DataDirectoryError(where, f"has a path of more than {PATH_BYTES_MAX} bytes")
        if UNUSABLE_CHARACTERS.search(str(absolute)):
            raise DataDirectoryError(absolute, "has a character in its name that a database URL cannot hold")
        return cls(absolute, server_from(environment, LEDGER_URL), server_from(environment, BROKER_URL))

    @property
    def ledger(self) -> Path:
        """The SQLite file of the ledger; its WAL lies beside it."""
        return self.path / "ledger.db"

    @property
    def ledger_lock(self) -> Path:
        """The file whose flock serialises writers of the ledger."""
        return self.path / "ledger.lock"

    @property
    def views(self) -> Path:
        """The SQLite file of the projections, which can be rebuilt at any time."""
        return self.path / "views.db"

    @property
    def anchors(self) -> Path:
        """Signed heads of the chain, one JSON line each."""
        return self.path / "anchors.jsonl"

    @property
    def ready_file(self) -> Path:
        """Written once everything is ready, removed at the stop."""
        return self.path / "ready.json"

    @property
    def start_lock(self) -> Path:
        """Held by every process of a running system, so that two generations never overlap."""
        return self.path / "up.lock"

    @property
    def layout(self) -> Path:
        """Holds the version of this layout; its presence says that the directory is ours."""
        return self.path / "layout.json"

    @property
    def keys(self) -> Path:
        """Private keys."""
        return self.path / "keys"

    @property
    def broker(self) -> Path:
        """The broker's files, settings and log."""
        return self.path / "broker"

    @property
    def ledger_note(self) -> Path:
        """Says which database holds the ledger, where it does not lie here."""
        return self.path / "ledger.json"

    @property
    def run(self) -> Path:
        """What only matters while the system runs."""
        return self.path / "run"

    @property
    def boots(self) -> Path:
        """One locked file a living worker process: a free lock proves its death."""
        return self.run / "boots"

    @property
    def spool(self) -> Path:
        """Outcomes that could not be recorded yet, a folder each worker process."""
        return self.path / "spool"

    @property
    def workspaces(self) -> Path:
        """One folder a session: all that outlives an execution."""
        return self.path / "workspaces"

    @property
    def logs(self) -> Path:
        """One file a role."""
        return self.path / "logs"

    @property
    def home(self) -> Path:
        """The home of the account that root was given up for."""
        return self.path / "home"

    @property
    def broker_socket(self) -> Path:
        """Where the broker listens."""
        return self._socket(self.broker / "vk.sock")

    @property
    def control_socket(self) -> Path:
        """Where the process tree answers `status` and `stop`."""
        return self._socket(self.run / "control.sock")

    @property
    def short_folder(self) -> Path:
        """The private folder for sockets whose own path would be too long, or no part of a URL."""
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return SHORT_FOLDERS / f"interlock-{os.getuid()}-{digest}"

    @property
    def broker_url(self) -> str:
        """The broker's address as kombu and Celery take it."""
        if self.broker_server:
            return self.broker_server
        return f"redis+socket://{self.broker_socket}?virtual_host=0"

    @property
    def broker_client_url(self) -> str:
        """The broker's address as redis-py takes it."""
        if self.broker_server:
            return self.broker_server
        return f"unix://{self.broker_socket}?db=0"

    @property
    def ledger_url(self) -> str:
        """The ledger's address as SQLAlchemy takes it, without a password."""
        if self.ledger_server:
            return without_password(self.ledger_server)
        return f"sqlite:///{self.ledger}"

    def log_of(self, role: str) -> Path:
        """The file that holds what `role` says."""
        return self.logs / f"{role}.log"

    def _socket(self, plain: Path) -> Path:
        if len(os.fsencode(plain)) <= SOCKET_PATH_BYTES_MAX and PLAIN_PATH.match(str(plain)):
            return plain
        return self.short_folder / plain.name


def hand_over(path: Path, uid: int) -> None:
    """As root: make `path` if it is missing and give it to `uid`; only what is empty changes its owner.

    Folders above it that are missing are made root's and open to enter. DataDirectoryError when it holds
    something and belongs to somebody else.
    """
    try:
        _make_parents(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
    except OSError as error:
        raise DataDirectoryError(path, f"cannot be made: {error.strerror} ({error.filename})") from error
    # A descriptor, not the name again: nobody can put a link in its place in between.
    descriptor = _open_folder(path)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner == uid:
            return
        if set(os.listdir(descriptor)) - EMPTY_NAMES:
            raise DataDirectoryError(path, _foreign(owner, uid))
        os.fchown(descriptor, uid, uid)
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def prepare(directory: DataDirectory) -> None:
    """Make every folder of the layout, private to this account; fit for a ledger, or DataDirectoryError."""
    path = directory.path
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirectoryError(path, f"cannot be made: {error.strerror} ({error.filename})") from error
    _refuse_unless_ours(directory)
    refuse_network_filesystem(path, kernel.filesystem_type(path))
    path.chmod(0o700)
    for folder in _folders(directory):
        folder.mkdir(mode=0o700, exist_ok=True)
    if directory.short_folder in (directory.broker_socket.parent, directory.control_socket.parent):
        _make_short_folder(directory)
    if not directory.layout.exists():
        write_atomically(directory.layout, {"version": LAYOUT_VERSION})


def refuse_network_filesystem(path: Path, kind: int) -> None:
    """DataDirectoryError when `kind`, the file system type that holds `path`, is reached over a network."""
    name = NETWORK_FILESYSTEMS.get(kind)
    if name is not None:
        raise DataDirectoryError(
            path,
            f"lies on a network file system ({name}), where locks and syncs do not hold",
            code="DATA_ON_NETWORK_FS",
        )


def layout_version(directory: DataDirectory) -> int | None:
    """The version of the layout found there; None when there is none or it cannot be read."""
    try:
        held = json.loads(directory.layout.read_bytes())
    except (OSError, ValueError):
        return None
    version = held.get("version") if isinstance(held, dict) else None
    return version if isinstance(version, int) else None


def write_atomically(path: Path, content: Mapping[str, object]) -> None:
    """Replace the JSON file `path` so that a reader, or a crash, sees the old one or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_folder(path.parent)


def _refuse_unless_ours(directory: DataDirectory) -> None:
    """Never tighten or fill a folder that holds something else: a home directory, say."""
    path = directory.path
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise DataDirectoryError(path, _foreign(owner, os.geteuid()))
    if directory.layout.exists():
        version = layout_version(directory)
        if version != LAYOUT_VERSION:
            raise DataDirectoryError(
                path,
                f"has the layout version {version}, and this program knows only {LAYOUT_VERSION}",
            )
    elif any(not _is_known(directory, name) for name in os.listdir(path)):
        raise DataDirectoryError(path, "holds files that are not ours: name an empty or a new directory")


def _is_known(directory: DataDirectory, name: str) -> bool:
    """Whether `name` may lie in a directory whose layout file was never finished."""
    files = (
        directory.ledger,
        directory.ledger_lock,
        directory.views,
        directory.anchors,
        directory.start_lock,
        directory.ledger_note,
    )
    names = {known.name for known in (*files, *_folders(directory))} | EMPTY_NAMES
    return name in names or name.startswith(
        (f".{directory.layout.name}.", *(f"{f.name}-" for f in files[:3:2]))
    )


def _foreign(owner: int, uid: int) -> str:
    other = f"; start as {owner}, or with INTERLOCK_UID={owner}" if owner else "; name an empty or a new one"
    return f"belongs to the account {owner}, not to {uid}, and is not empty{other}"


def _folders(directory: DataDirectory) -> tuple[Path, ...]:
    return (
        directory.keys,
        directory.broker,
        directory.run,
        directory.boots,
        directory.spool,
        directory.workspaces,
        directory.logs,
        directory.home,
    )


def _make_short_folder(directory: DataDirectory) -> None:
    folder = directory.short_folder
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise DataDirectoryError(folder, "is needed for sockets and is not private to us") from None
    write_atomically(directory.run / "short-folder.json", {"path": str(folder)})


def remove_short_folder(directory: DataDirectory) -> None:
    """After the stop: take the folder for sockets away again. What others put into it is left to them."""
    folder = directory.short_folder
    for socket in (directory.broker_socket, directory.control_socket):
        if socket.parent == folder:
            socket.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _make_parents(parent: Path) -> None:
    """Missing folders above, enterable by the account that is to own the last one, whatever the umask."""
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)


def _open_folder(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise DataDirectoryError(path, "is no directory, or a link to one") from error
    except OSError as error:
        raise DataDirectoryError(path, f"cannot be opened: {error.strerror}") from error

"""Which file system a path lies on.

Owns the refusal of network file systems: SQLite's WAL needs shared memory and locks that they do not
give, and a store that is silently not shared makes two owners.
"""

from __future__ import annotations

from pathlib import Path

from sojourn.errors import NotConfigured

__all__ = ["file_system_of", "refuse_network_file_system"]

NETWORK_TYPES = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fhgfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
    ]
)
NETWORK_FUSE = frozenset(
    [
        "fuse.ceph",
        "fuse.davfs2",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.mfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
    ]
)
_MOUNTS = Path("/proc/self/mountinfo")


def file_system_of(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds `path`, by the text of a mountinfo file; None when unknown."""
    found: str | None = None
    longest = -1
    for line in mounts.splitlines():
        fields, separator, rest = line.partition(" - ")
        columns = fields.split(" ")
        if not separator or len(columns) < 5 or not rest:
            continue
        point = Path(_unescape(columns[4]))
        # A later mount on the same point hides the earlier one.
        if (point == path or point in path.parents) and len(point.parts) >= longest:
            longest, found = len(point.parts), rest.split(" ")[0]
    return found


def refuse_network_file_system(path: Path, mounts: str | None = None) -> None:
    """Refuse to put an SQLite store on a network file system.

    Raises:
        NotConfigured: `path` lies on one; the text names the mount's type and the ways out.
    """
    if mounts is None:
        if not _MOUNTS.exists():
            return
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    kind = file_system_of(path.resolve(), mounts)
    if kind in NETWORK_TYPES or kind in NETWORK_FUSE:
        raise NotConfigured(
            f"the SQLite store {path} lies on a network file system ({kind}), where its locks do not work: put it on "
            "a local disk, or use a redis:// store for nodes on several machines"
        )


def _unescape(field: str) -> str:
    """Octal escapes of mountinfo: space, tab, newline, backslash."""
    for escaped, plain in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        field = field.replace(escaped, plain)
    return field

"""Local roots of sinks, and detection of object stores that are mounted as directories.

The renames of such mounts are not atomic.

s3fs, gcsfuse, goofys, blobfuse, rclone and the like rename a directory file by file. Unlike network
file systems (Ceph, Gluster, JuiceFS, sshfs) they have no hard links, since an object has one name.
So a FUSE mount without hard links counts as an object store. Creates and removes only its probe
files; if the kernel does not list mounts, nothing is refused.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from tubemq_client.errors import ConfigError

__all__ = ["MOUNTS", "Mount", "local_root", "mount_of", "refuse_object_mounts"]

MOUNTS: Final = Path("/proc/self/mountinfo")
_FUSE: Final = re.compile(r" - fuse(?!ctl )")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def local_root(root: str | PathLike[str]) -> Path:
    """Return the absolute local path of `root` (a path, or a ``file://`` URL).

    Raises `ConfigError` for URLs of other schemes, with what to do instead.
    """
    text = os.fspath(root)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(os.path.abspath(text))  # noqa: PTH100 (resolve() would follow links)
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    raise ConfigError(
        f"{scheme}://…: a path is a local or mounted directory, because a window is published by "
        f"renaming one, which {scheme} cannot do in one step; s3://, gs:// and az:// are addresses "
        f"of sinks (ObjectStoreSink of tubemq_provider.sinks.object_store)",
        subject="sink",
    )


class Mount(NamedTuple):
    """Mount point, file system type (``ext4``, ``fuse.s3fs``) and source."""

    point: Path
    kind: str
    source: str


def refuse_object_mounts(root: Path, *, mounts: Path = MOUNTS) -> None:
    """Raise `ConfigError` if the existing directory `root` is a mounted object store."""
    try:
        listed = mounts.read_text(encoding="utf-8")
    except OSError:
        return
    if not _FUSE.search(listed):
        return
    mount = mount_of(Path(os.path.realpath(root)), listed)
    if mount is None or not mount.kind.startswith("fuse") or _has_hard_links(root):
        return
    raise ConfigError(
        f"{root} is on {mount.point}, a {mount.kind} mount of {mount.source} without hard links, "
        f"as object stores have none: it renames a directory file by file, so half a window could "
        f"be seen or stay; give the store's own address (s3://…, gs://…, az://…), or a path of "
        f"another file system",
        subject="sink",
    )


def mount_of(path: Path, listed: str) -> Mount | None:
    """Return the mount of the absolute `path`, from the text of ``/proc/self/mountinfo``."""
    best: Mount | None = None
    for line in listed.splitlines():
        fields, _, rest = line.partition(" - ")
        places, kinds = fields.split(), rest.split()
        if len(places) < 5 or len(kinds) < 2:
            continue
        point = Path(_plain(places[4]))
        # Of two mounts on one point, the later one hides the earlier.
        nearer = best is None or len(point.parts) >= len(best.point.parts)
        if nearer and path.is_relative_to(point):
            best = Mount(point, kinds[0], _plain(kinds[1]))
    return best


def _plain(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)


def _has_hard_links(directory: Path) -> bool:
    first, second = (directory / f".probe-{uuid4().hex}" for _ in range(2))
    try:
        first.touch()
        os.link(first, second)
    except OSError:
        return False
    finally:
        for path in (first, second):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return True

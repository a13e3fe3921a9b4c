"""Object stores that are mounted as directories, which rename a directory file by file.

s3fs, gcsfuse, goofys, blobfuse, rclone and their like look like paths. What tells them from file
systems with servers of their own (Ceph, Gluster, JuiceFS, sshfs) is that they have no hard links:
an object has one name. So a FUSE mount without them is taken for an object store. Judges places and
changes nothing but files of its own; where the kernel does not list mounts, nothing is judged.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from tubemq_client.errors import ConfigError

__all__ = ["MOUNTS", "Mount", "mount_of", "refuse_object_mounts"]

MOUNTS: Final = Path("/proc/self/mountinfo")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Where something is mounted, its type (``ext4``, ``fuse.s3fs``) and what it is of."""

    point: Path
    kind: str
    source: str


def refuse_object_mounts(root: Path, *, mounts: Path = MOUNTS) -> None:
    """Raises `ConfigError` if the existing directory `root` is an object store in disguise."""
    try:
        found = mount_of(Path(os.path.realpath(root)), mounts.read_text(encoding="utf-8"))
    except OSError:
        return
    if found is None or not found.kind.startswith("fuse") or _has_hard_links(root):
        return
    raise ConfigError(
        f"{root} is on {found.point}, a {found.kind} mount of {found.source} without hard links, "
        f"as object stores have none: it renames a directory file by file, so half a window could "
        f"be seen or stay; give the store's own address (s3://…, gs://…, az://…), or a path of "
        f"another file system",
        subject="sink",
    )


def mount_of(path: Path, listed: str) -> Mount | None:
    """The mount that the absolute `path` is on, by the text of ``/proc/self/mountinfo``."""
    best: Mount | None = None
    for line in listed.splitlines():
        fields, _, rest = line.partition(" - ")
        places, kinds = fields.split(), rest.split()
        if len(places) < 5 or len(kinds) < 2:
            continue
        point = Path(_plain(places[4]))
        # Of two on one point, the later one hides the earlier.
        nearer = best is None or len(point.parts) >= len(best.point.parts)
        if nearer and path.is_relative_to(point):
            best = Mount(point, kinds[0], _plain(kinds[1]))
    return best


def _plain(field: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)


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

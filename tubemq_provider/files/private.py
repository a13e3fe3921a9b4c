"""Private directories, which no other user of the machine can enter or replace.

Imports nothing of the project but errors.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tubemq_client.errors import ConfigError

__all__ = ["make_private", "refuse_open_to_others"]


def make_private(root: Path, *, subject: str) -> None:
    """Create the directory `root` with access for this user alone, unless it exists.

    Raises `ConfigError` if it is a link, another user's or open to others, or if another user can
    replace it or a directory above it.
    """
    root = root.absolute()
    _refuse([*_replaceable(root.parent)], subject)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        _refuse([_told(root, status)], subject)
    _refuse([*_replaceable(root.parent)], subject)


def refuse_open_to_others(folder: Path, *, subject: str) -> None:
    """Raise `ConfigError` if another user can write to the directory `folder`, or replace it. A
    directory with the sticky bit, like ``/tmp``, passes: only owners can remove their files."""
    _refuse([*_replaceable(folder.absolute())], subject)


def _replaceable(path: Path) -> Iterator[str]:
    """Yield directories by which another user could replace the target of `path`: its parents, and
    those of the resolved path. Missing ones are skipped, since this user creates them."""
    steps: dict[Path, None] = {}
    for way in (path, Path(os.path.realpath(path))):
        steps |= dict.fromkeys([way, *way.parents])
    for step in steps:
        try:
            status = step.lstat()
        except FileNotFoundError:
            continue
        if status.st_uid not in (0, os.geteuid()) or _others_write(status):
            yield _told(step, status)


def _others_write(status: os.stat_result) -> bool:
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
        return False
    mine = status.st_gid in (0, os.getegid())  # a user's private group, the default in most systems
    return bool(status.st_mode & 0o002 or (status.st_mode & 0o020 and not mine))


def _told(path: Path, status: os.stat_result) -> str:
    return f"{path} belongs to user {status.st_uid} and has mode {stat.filemode(status.st_mode)}"


def _refuse(problems: list[str], subject: str) -> None:
    if problems:
        advice = (
            f"name a directory of user {os.geteuid()} that others cannot enter (mode 0700), below "
            "directories that only this user and root can change"
        )
        raise ConfigError([*problems, advice], subject=subject)

"""Directories that no other user of a machine can enter, or put another in the place of.

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
    """Make the directory `root`, for this user alone, unless it is there.

    Raises `ConfigError` if it is a link, another user's or open to others, or if another user can
    replace it or a directory above it.
    """
    root = root.absolute()
    _refuse([*_replaceable(root.parent)], subject)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        _refuse([_told(root, found)], subject)
    _refuse([*_replaceable(root.parent)], subject)


def refuse_open_to_others(folder: Path, *, subject: str) -> None:
    """Raise `ConfigError` if another user can put files of their own into the directory `folder`,
    or replace it. A directory like ``/tmp`` passes, where only owners can remove their files."""
    _refuse([*_replaceable(folder.absolute())], subject)


def _replaceable(path: Path) -> Iterator[str]:
    """Why another user could replace what `path` leads to: by the path as it is written, and as
    links have it. What is not there yet is made by this user."""
    known: dict[Path, None] = {}
    for way in (path, Path(os.path.realpath(path))):
        known |= dict.fromkeys([way, *way.parents])
    for step in known:
        try:
            found = step.lstat()
        except FileNotFoundError:
            continue
        if found.st_uid not in (0, os.geteuid()) or _others_write(found):
            yield _told(step, found)


def _others_write(found: os.stat_result) -> bool:
    if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
        return False
    mine = found.st_gid in (0, os.getegid())  # a group of one's own, as distributions make them
    return bool(found.st_mode & 0o002 or (found.st_mode & 0o020 and not mine))


def _told(path: Path, found: os.stat_result) -> str:
    return f"{path} belongs to user {found.st_uid} and has mode {stat.filemode(found.st_mode)}"


def _refuse(problems: list[str], subject: str) -> None:
    if problems:
        advice = (
            f"name a directory of user {os.geteuid()} that others cannot enter (mode 0700), below "
            "directories that only this user and root can change"
        )
        raise ConfigError([*problems, advice], subject=subject)

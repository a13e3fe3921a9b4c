"""The private place of each try, and how what is in it is checked before it is published.

Where a sink's own storage takes files under names that will stay (`FinalArea`), engines write right
there, and publishing is a matter of metadata. Elsewhere it is a local (or mounted) directory, from
which the sink renames, uploads or inserts. Nothing here makes anything visible, and nothing here
knows what a sink is made of.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast, get_args
from uuid import uuid4

from tubemq_client.errors import ConfigError
from tubemq_provider.files.durable import ensure_directory, ensure_root, failures_told
from tubemq_provider.files.footers import data_names, inspect
from tubemq_provider.files.locations import LocalLocation, Location, Stored, location_of
from tubemq_provider.files.objects import is_remote
from tubemq_provider.files.quarantine import CORRUPT, CORRUPT_SUFFIX
from tubemq_provider.windows.canonical import sha256_hex
from tubemq_provider.windows.errors import CountMismatch, SinkDamaged
from tubemq_provider.windows.facts import FileFact, rows_by_partition
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import IngestCounts, Staging
from tubemq_provider.windows.verify import check_files, check_staged

__all__ = ["FinalArea", "StagingArea", "Verify", "checked_verify", "verified_files"]

Verify = Literal["facts", "footers"]
"""How files are checked before they are published: by what the tasks that wrote them say and the
names and sizes that the storage has, or by their footers besides."""

_TWINS = 100
_TEMPORARY = "tubemq-staging-"


class StagingArea:
    """Directories ``<root>/<window id>.<attempt>/``. `root` is made when first needed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_machine(cls, identity: str) -> StagingArea:
        """A place under the temporary directory for a sink that has no local place of its own."""
        return _TemporaryArea(identity)

    @classmethod
    def beside(cls, root: Path, chosen: Path | None = None) -> StagingArea:
        """A place from which a directory can be renamed into `root`, out of sight of its readers
        wherever that is possible; or the `chosen` one."""
        return _HiddenArea(root, chosen)

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """A fresh directory named after the window and the try; see `Sink.begin`. Raises
        `StoreFailed` where it cannot be made."""
        with failures_told(self.root):
            ensure_directory(self.root)
        safe = _safe(attempt)
        for twin in range(_TWINS):
            path = self.root / f"{plan.window_id}.{safe}{f'.{twin}' if twin else ''}"
            with failures_told(path), suppress(FileExistsError):
                path.mkdir()
                return Staging(plan.window_id, attempt, str(path))
        raise SinkDamaged(f"{self.root} holds {_TWINS} tries named {safe!r} of one window")

    def discard(self, staging: Staging) -> None:
        """Remove a staging directory, if it is still there."""
        shutil.rmtree(staging.path, ignore_errors=True)

    def tidy(self, window_id: str) -> None:
        """Remove what tries of a published window left here."""
        for path in self.root.glob(f"{window_id}.*"):
            shutil.rmtree(path, ignore_errors=True)


class _HiddenArea(StagingArea):
    """``.<name>.tubemq-staging`` beside a directory of windows: globs of readers (DuckDB, polars)
    enter every directory below that one, however it is called.

    Where nothing can be renamed from there, because `sink` is a mount point or others may not write
    beside it, tries stage in ``<sink>/_staging``, as all did before.
    """

    def __init__(self, sink: Path, chosen: Path | None) -> None:
        super().__init__(chosen or sink.parent / f".{sink.name}.tubemq-staging")
        self._chosen = chosen is not None
        self._sink = sink
        self._inside = StagingArea(sink / "_staging")
        self._usable: bool | None = None

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        ensure_directory(self._sink)
        if self._usable is None:
            self._usable = self._can_rename()
        if self._chosen and not self._usable:
            raise ConfigError(
                f"{self.root}: windows are published by renaming, and from there nothing can be "
                f"renamed into {self._sink} by this user, or others may write to it; choose a "
                f"directory of this user on the same file system, or none",
                subject="staging_root",
            )
        return super().begin(plan, attempt) if self._usable else self._inside.begin(plan, attempt)

    def tidy(self, window_id: str) -> None:
        super().tidy(window_id)
        self._inside.tidy(window_id)

    def _can_rename(self) -> bool:
        """Tried, not guessed: the two halves of a bind mount have one device."""
        try:
            ensure_directory(self.root)
            if not self._is_ours() or not self._gives_what_the_sink_gives():
                return False
            name = f".probe-{uuid4().hex}"
            (self.root / name).mkdir()
            (self.root / name).rename(self._sink / name)
            (self._sink / name).rmdir()
        except OSError:
            return False
        return True

    def _gives_what_the_sink_gives(self) -> bool:
        """Group and access that directories get from the one they are made in. Raises `OSError`."""
        with suppress(OSError, AttributeError):
            os.getxattr(self._sink, "system.posix_acl_default")
            return False
        sink = self._sink.stat()
        if sink.st_mode & stat.S_ISGID:
            os.chown(self.root, -1, sink.st_gid)
            self.root.chmod(stat.S_IMODE(sink.st_mode))
        return True

    def _is_ours(self) -> bool:
        """In a directory that others may write to, they could have made it first and swap files."""
        found, sink = self.root.lstat(), self._sink.stat()
        owned = stat.S_ISDIR(found.st_mode) and found.st_uid in (os.geteuid(), sink.st_uid)
        return owned and not found.st_mode & ~sink.st_mode & 0o022


class _TemporaryArea(StagingArea):
    """A directory of its own for every try, right under the temporary directory that all users of
    the machine share: mode 0700, and a name that no other user can have taken before."""

    def __init__(self, identity: str) -> None:
        super().__init__(Path(tempfile.gettempdir()))
        self._prefix = f"{_TEMPORARY}{sha256_hex(identity)[:10]}."

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        prefix = f"{self._prefix}{plan.window_id}.{_safe(attempt)}."
        with failures_told(self.root):
            ensure_directory(self.root)
            made = tempfile.mkdtemp(prefix=prefix, dir=self.root)
        return Staging(plan.window_id, attempt, made)

    def tidy(self, window_id: str) -> None:
        for path in self.root.glob(f"{self._prefix}{window_id}.*"):
            if path.lstat().st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


class FinalArea:
    """Prefixes ``<root>/<directory of a window>/<token>/`` of a sink's own storage: what tries
    write there stays there. `root` is a path, or the URL of an object store that `options` open.

    What dead and losing tries left is not tidied here: only the sink knows which files count.
    """

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._root = root
        self._options = dict(options)

    def begin(self, plan: WindowPlan, attempt: str, directory: str, token: str) -> Staging:
        """A prefix that only the try with this `token` uses."""
        path = f"{self._root}/{directory}/{token}"
        if not is_remote(path):
            ensure_root(Path(self._root))
            with failures_told(Path(path)):
                ensure_directory(Path(path))
        return Staging(plan.window_id, attempt, path, self._options, final=True)

    def discard(self, staging: Staging) -> None:
        """Remove all that this try wrote."""
        location_of(staging).clear()


def checked_verify(verify: str) -> Verify:
    """`verify` as one of its two words. Raises `ConfigError`."""
    if verify in get_args(Verify):
        return cast("Verify", verify)
    raise ConfigError(f"verify {verify!r} is none of facts, footers", subject="sink")


def _safe(attempt: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", attempt)[:80] or "try"


def _refuse_exposed(staging: Path) -> None:
    """A directory of `_TemporaryArea` must still be the one that was made. Raises `ConfigError`."""
    if not staging.name.startswith(_TEMPORARY):
        return
    found = staging.lstat()
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not mine or found.st_mode & 0o077:
        raise ConfigError(
            f"{staging} is open to other users of this machine (owner {found.st_uid}, mode "
            f"{stat.filemode(found.st_mode)}), so its files are not published; name a directory "
            "that belongs to this user with staging_root",
            subject="staging directory",
        )


def verified_files(
    staging: Staging,
    plan: WindowPlan,
    counts: IngestCounts,
    *,
    keeps_corrupt: bool = False,
    verify: Verify = "facts",
) -> tuple[list[FileFact], list[str]]:
    """The data files of a staging place, once they are known to hold exactly `counts`, and the
    files of corrupt records that were set aside.

    Goes by the facts that `counts` has and asks the storage for names and sizes only; without
    facts, or with ``verify="footers"``, every footer is read. Files that no fact names are left
    out where files stay, and refused in a directory that is to be published whole.

    Removes what Spark leaves beside its files. Raises `CountMismatch` if facts, files and counts do
    not agree, `FileNotFoundError` if a directory is gone, `ConfigError` if corrupt records were set
    aside for a sink that does not say `keeps_corrupt`, or if other users can write to a directory
    that was made for this one alone.
    """
    location = location_of(staging)
    if isinstance(location, LocalLocation):
        location.root.stat()
        _refuse_exposed(location.root)
        _sweep(location.root)
    stored = location.stored()
    aside = _quarantined(stored, counts)
    if aside and not keeps_corrupt:
        raise ConfigError(
            "this sink has no place for corrupt records; use corrupt_records='drop' or 'fail', or "
            "a sink of files",
            subject="corrupt_records",
        )
    if counts.files is None:
        files = [inspect(location, name, stored[name]) for name in data_names(stored)]
    else:
        files = sorted(counts.files, key=lambda fact: fact.path)
        found = {name: (size, tag) for name, (size, tag) in stored.items()}
        others = () if staging.final else {*data_names(stored)} - {fact.path for fact in files}
        check_files(plan, counts, found, sorted(others))
        if verify == "footers":
            _check_footers(location, plan, files, stored)
    check_staged(plan, counts, rows_by_partition(files), sum(file.rows for file in files))
    _check_keys(staging, files)
    return files, aside


def _check_keys(staging: Staging, files: Sequence[FileFact]) -> None:
    """Files are apart as the sink wants them to be. Raises `ConfigError` for writers that do not
    know of that."""
    wanted = () if staging.partition_by is None else staging.partition_by.names
    for file in files:
        if tuple(name for name, _, _ in file.keys) != wanted:
            raise ConfigError(
                f"{file.path} was not written apart by {staging.partition_by}: the engine does not "
                f"do that; use the engines inline or session with direct_write='auto'",
                subject="partition_by",
            )


def _quarantined(stored: Mapping[str, Stored], counts: IngestCounts) -> list[str]:
    """Names of files of corrupt records: with facts only those that they name count."""
    if counts.files is not None:
        return sorted(counts.quarantined)
    return [n for n in stored if n.startswith(f"{CORRUPT}/") and n.endswith(CORRUPT_SUFFIX)]


def _check_footers(
    location: Location, plan: WindowPlan, files: Sequence[FileFact], stored: Mapping[str, Stored]
) -> None:
    """Raises `CountMismatch` where a footer is not what its writer said."""
    problems = []
    for fact in files:
        found = inspect(location, fact.path, stored[fact.path])
        if (found.rows, found.schema) != (fact.rows, fact.schema):
            problems.append(f"{fact.path}: its footer has {found.rows} rows, {fact.rows} were told")
        elif None not in (found.partitions, fact.partitions) and found.partitions != {
            key: rows for key, rows in (fact.partitions or {}).items() if rows
        }:
            problems.append(f"{fact.path}: {found.partitions}, and {fact.partitions} were told")
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise CountMismatch(f"window {plan.window_id} of topic {plan.topic!r}:{lines}")


def _sweep(staging: Path) -> None:
    """Remove `_SUCCESS`, `_temporary`, checksums; corrupt records that were set aside stay, and
    folders of partitions."""
    for path in sorted(staging.rglob("[._]*"), reverse=True):
        if path == staging / CORRUPT or "=" in path.name:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

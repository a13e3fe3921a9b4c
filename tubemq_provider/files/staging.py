"""Staging places of tries, and the verification of their files before they are published.

If the sink's storage can take files under their final names (`FinalArea`), engines write there, and
publishing changes only metadata. Otherwise the place is a local (or mounted) directory, from which
the sink renames, uploads or inserts. Nothing here makes files visible, or knows a sink.
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
from tubemq_provider.files.durable import converted_os_errors, ensure_directory, ensure_root
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
"""Verification of files before they are published: by the facts of the tasks that wrote them and by
names and sizes in the storage (`facts`), or by their footers as well (`footers`)."""

_TWINS = 100
_TEMPORARY = "tubemq-staging-"


class StagingArea:
    """Staging directories ``<root>/<window id>.<attempt>/``. `root` is created on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_machine(cls, identity: str) -> StagingArea:
        """Return an area in the temporary directory, for a sink without a local directory."""
        return _TemporaryArea(identity)

    @classmethod
    def beside(cls, root: Path, chosen: Path | None = None) -> StagingArea:
        """Return an area from which directories can be renamed into `root`: `chosen`, else one that
        readers of `root` do not see, if possible."""
        return _HiddenArea(root, chosen)

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Create a directory named after the window and the try; see `Sink.begin`. Raises
        `StoreFailed` if that fails."""
        with converted_os_errors(self.root):
            ensure_directory(self.root)
        safe = _safe(attempt)
        for twin in range(_TWINS):
            path = self.root / f"{plan.window_id}.{safe}{f'.{twin}' if twin else ''}"
            with converted_os_errors(path), suppress(FileExistsError):
                path.mkdir()
                return Staging(plan.window_id, attempt, str(path))
        raise SinkDamaged(f"{self.root} holds {_TWINS} tries named {safe!r} of one window")

    def discard(self, staging: Staging) -> None:
        """Remove a staging directory, if it exists."""
        shutil.rmtree(staging.path, ignore_errors=True)

    def tidy(self, window_id: str) -> None:
        """Remove staging directories of a published window."""
        for path in self.root.glob(f"{window_id}.*"):
            shutil.rmtree(path, ignore_errors=True)


class _HiddenArea(StagingArea):
    """Area ``.<name>.tubemq-staging`` next to a directory of windows: globs of readers (DuckDB,
    polars) would enter any directory inside it.

    If nothing can be renamed from there, because `sink` is a mount point or its parent is not
    writable, tries stage in ``<sink>/_staging``.
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
        """Return True if a rename into the sink works. It is tried, since the device numbers on
        both sides of a bind mount are equal."""
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
        """Copy the sink's group and mode to the staging root, which new directories inherit; False
        if the sink has default ACLs, which are not copied. Raises `OSError`."""
        with suppress(OSError, AttributeError):
            os.getxattr(self._sink, "system.posix_acl_default")
            return False
        sink = self._sink.stat()
        if sink.st_mode & stat.S_ISGID:
            os.chown(self.root, -1, sink.st_gid)
            self.root.chmod(stat.S_IMODE(sink.st_mode))
        return True

    def _is_ours(self) -> bool:
        """Return False if another user may have created the staging root, or can swap its files."""
        root, sink = self.root.lstat(), self._sink.stat()
        owned = stat.S_ISDIR(root.st_mode) and root.st_uid in (os.geteuid(), sink.st_uid)
        return owned and not root.st_mode & ~sink.st_mode & 0o022


class _TemporaryArea(StagingArea):
    """Area in the temporary directory that all users of the machine share. Each try has a directory
    there with mode 0700 and a random name, which no other user can have created before."""

    def __init__(self, identity: str) -> None:
        super().__init__(Path(tempfile.gettempdir()))
        self._prefix = f"{_TEMPORARY}{sha256_hex(identity)[:10]}."

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        prefix = f"{self._prefix}{plan.window_id}.{_safe(attempt)}."
        with converted_os_errors(self.root):
            ensure_directory(self.root)
            made = tempfile.mkdtemp(prefix=prefix, dir=self.root)
        return Staging(plan.window_id, attempt, made)

    def tidy(self, window_id: str) -> None:
        for path in self.root.glob(f"{self._prefix}{window_id}.*"):
            if path.lstat().st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


class FinalArea:
    """Staging prefixes ``<root>/<directory of a window>/<token>/`` in a sink's storage, in which
    files stay. `root` is a path, or the URL of an object store that `options` open.

    Files of dead and losing tries are not removed here: only the sink knows which files count.
    """

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._root = root
        self._options = dict(options)

    def begin(self, plan: WindowPlan, attempt: str, directory: str, token: str) -> Staging:
        """Return a prefix that only the try with this `token` uses."""
        path = f"{self._root}/{directory}/{token}"
        if not is_remote(path):
            ensure_root(Path(self._root))
            with converted_os_errors(Path(path)):
                ensure_directory(Path(path))
        return Staging(plan.window_id, attempt, path, self._options, final=True)

    def discard(self, staging: Staging) -> None:
        """Remove all files of the try."""
        location_of(staging).clear()


def checked_verify(verify: str) -> Verify:
    """Return `verify` as its literal type. Raises `ConfigError` for another text."""
    if verify in get_args(Verify):
        return cast("Verify", verify)
    raise ConfigError(f"verify {verify!r} is none of facts, footers", subject="sink")


def _safe(attempt: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", attempt)[:80] or "try"


def _refuse_exposed(staging: Path) -> None:
    """Raise `ConfigError` if other users can enter or have replaced a directory of
    `_TemporaryArea`."""
    if not staging.name.startswith(_TEMPORARY):
        return
    status = staging.lstat()
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not mine or status.st_mode & 0o077:
        raise ConfigError(
            f"{staging} is open to other users of this machine (owner {status.st_uid}, mode "
            f"{stat.filemode(status.st_mode)}), so its files are not published; name a directory "
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
    """Return the data files of a staging place after verifying that they have exactly `counts`, and
    its quarantine files.

    With facts in `counts`, only names and sizes are read from the storage; without facts, or with
    ``verify="footers"``, every footer. Files without facts are ignored in a final place, and
    refused in a directory that would be published whole.

    Removes Spark's auxiliary files. Raises `CountMismatch` if facts, files and counts do not agree,
    `FileNotFoundError` if a directory is missing, `ConfigError` if records were quarantined and the
    sink does not set `keeps_corrupt`, or if other users can enter a private directory.
    """
    location = location_of(staging)
    if isinstance(location, LocalLocation):
        location.root.stat()
        _refuse_exposed(location.root)
        _sweep(location.root)
    stored = location.stored()
    quarantined = _quarantined(stored, counts)
    if quarantined and not keeps_corrupt:
        raise ConfigError(
            "this sink has no place for corrupt records; use corrupt_records='drop' or 'fail', or "
            "a sink of files",
            subject="corrupt_records",
        )
    if counts.files is None:
        files = [inspect(location, name, stored[name]) for name in data_names(stored)]
    else:
        files = sorted(counts.files, key=lambda fact: fact.path)
        sizes = {name: (size, tag) for name, (size, tag) in stored.items()}
        others = () if staging.final else {*data_names(stored)} - {fact.path for fact in files}
        check_files(plan, counts, sizes, sorted(others))
        if verify == "footers":
            _check_footers(location, plan, files, stored)
    check_staged(plan, counts, rows_by_partition(files), sum(file.rows for file in files))
    _check_keys(staging, files)
    return files, quarantined


def _check_keys(staging: Staging, files: Sequence[FileFact]) -> None:
    """Raise `ConfigError` unless files are partitioned as the sink requires, which some engines do
    not support."""
    names = () if staging.partition_by is None else staging.partition_by.names
    for file in files:
        if tuple(name for name, _, _ in file.keys) != names:
            raise ConfigError(
                f"{file.path} was not written apart by {staging.partition_by}: the engine does not "
                f"do that; use the engines inline or session with direct_write='auto'",
                subject="partition_by",
            )


def _quarantined(stored: Mapping[str, Stored], counts: IngestCounts) -> list[str]:
    """Return names of quarantine files: those in `counts` if it has facts, else those stored."""
    if counts.files is not None:
        return sorted(counts.quarantined)
    return [n for n in stored if n.startswith(f"{CORRUPT}/") and n.endswith(CORRUPT_SUFFIX)]


def _check_footers(
    location: Location, plan: WindowPlan, files: Sequence[FileFact], stored: Mapping[str, Stored]
) -> None:
    """Raise `CountMismatch` if a footer differs from the facts of its writer."""
    problems = []
    for fact in files:
        read = inspect(location, fact.path, stored[fact.path])
        if (read.rows, read.schema) != (fact.rows, fact.schema):
            problems.append(f"{fact.path}: its footer has {read.rows} rows, {fact.rows} were told")
        elif None not in (read.partitions, fact.partitions) and read.partitions != {
            key: rows for key, rows in (fact.partitions or {}).items() if rows
        }:
            problems.append(f"{fact.path}: {read.partitions}, and {fact.partitions} were told")
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise CountMismatch(f"window {plan.window_id} of topic {plan.topic!r}:{lines}")


def _sweep(staging: Path) -> None:
    """Remove `_SUCCESS`, `_temporary` and checksums, but not the quarantine or folders of
    partitions."""
    for path in sorted(staging.rglob("[._]*"), reverse=True):
        if path == staging / CORRUPT or "=" in path.name:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

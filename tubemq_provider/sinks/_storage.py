"""Storage of sinks for files and small documents: a directory or a prefix of an object store.

A `Storage` knows exactly what exactly-once needs of storage: create a document only if nothing is
there, bring in a finished file, read, list, remove. Names are relative, with ``/``. Nothing here
knows windows; `_object_storage` has the implementation for object stores, `_storage_for` chooses.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from tubemq_provider.files.durable import (
    converted_os_errors,
    create_document,
    create_file,
    ensure_directory,
    ensure_root,
    fsync_path,
    missing_root,
    read_document,
    removed_on_error,
    replace_document,
)
from tubemq_provider.windows.errors import DocumentError, SinkDamaged
from tubemq_provider.windows.protocols import Document

if TYPE_CHECKING:
    import pyarrow.fs

__all__ = ["LocalStorage", "Storage", "StorageBook", "as_document", "scheme_of"]


class Storage(Protocol):
    """A store of files by name; what a method has written survives a crash of the machine."""

    @property
    def url(self) -> str:
        """The address, without secrets: a path, or a URL without a trailing slash."""

    def read(self, name: str) -> Document | None:
        """Return the JSON document under `name`, or None. Raises `DocumentError` if it is not
        JSON."""

    def read_bytes(self, name: str) -> bytes | None:
        """Return the bytes under `name`, or None."""

    def create(self, name: str, document: Document) -> bool:
        """Store `document` under `name` only if nothing is there, atomically; False if there is."""

    def create_file(self, name: str, data: bytes) -> bool:
        """Store `data` as `create` stores a document."""

    def swap(self, name: str, old: Document, new: Document) -> bool:
        """Put `new` in the place of `old`, atomically; False if something else is there by now."""

    def put_file(self, source: Path, name: str) -> None:
        """Store a local file under `name`, which no other process uses. `source` may be moved."""

    def keep_files(self, names: Iterable[str]) -> None:
        """Files that were written in place survive a crash of the machine from now on."""

    def rename(self, source: str, name: str) -> None:
        """Give a file another name that no other process uses; not atomic everywhere."""

    def names(self, prefix: str, *, at_work: bool = False, low: str = "") -> Iterable[str]:
        """Names of all files in the directory `prefix` and below; `at_work`: unfinished
        files too, if the storage shows them. Names that sort before
        `low` may be left out."""

    def names_outside(self, prefix: str, start: str, end: str) -> Iterable[str]:
        """Names as `names`, without those from `start` to before `end`."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are passed over."""

    def missing(self) -> str | None:
        """Return a message if a storage that was written to is missing, else None; see
        `Sink.missing`."""

    def filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """Return a pyarrow file system for reading, and this storage's path on it."""


class LocalStorage:
    """A directory of a local or mounted file system. See `Storage`. What is written makes it if the
    directory above is there, and raises `ConfigError` otherwise."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def url(self) -> str:
        """The absolute path."""
        return str(self.root)

    def read(self, name: str) -> Document | None:
        """See `Storage.read`."""
        found = read_document(self.root / name)
        if found is not None:
            # The try that created it may have died before its name was on disk.
            with converted_os_errors(self.root / name):
                fsync_path((self.root / name).parent)
        return found

    def read_bytes(self, name: str) -> bytes | None:
        """See `Storage.read_bytes`."""
        path = self.root / name
        try:
            with converted_os_errors(path):
                return path.read_bytes()
        except FileNotFoundError:
            return None

    def create(self, name: str, document: Document) -> bool:
        """See `Storage.create`."""
        ensure_root(self.root)
        return create_document(self.root / name, document)

    def create_file(self, name: str, data: bytes) -> bool:
        """See `Storage.create_file`."""
        ensure_root(self.root)
        return create_file(self.root / name, data)

    def swap(self, name: str, old: Document, new: Document) -> bool:
        """See `Storage.swap`. Swaps of one directory wait for each other."""
        target = self.root / name
        with converted_os_errors(target):
            lock = os.open(target.parent, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if read_document(target) != old:
                    return False
                replace_document(target, new)
                fsync_path(target.parent)
                return True
            finally:
                os.close(lock)

    def put_file(self, source: Path, name: str) -> None:
        """Move the file where source and place share a file system, else copy it."""
        ensure_root(self.root)
        with converted_os_errors(self.root / name):
            self._move_in(source, self.root / name)

    def _move_in(self, source: Path, target: Path) -> None:
        ensure_directory(target.parent)
        fsync_path(source)
        try:
            os.rename(source, target)  # noqa: PTH104 (Path.rename says the same, less clearly)
        except OSError as exc:
            # Tried, not guessed: two bind mounts of one disk have one device, and no rename.
            if exc.errno != errno.EXDEV:
                raise
            temporary = target.with_name(f".{uuid4().hex}")
            with removed_on_error(temporary):
                shutil.copyfile(source, temporary)
                fsync_path(temporary)
                temporary.replace(target)
        fsync_path(target.parent)

    def keep_files(self, names: Iterable[str]) -> None:
        """Force files and directories to disk, up to the root."""
        directories = set()
        for name in names:
            path = self.root / name
            with converted_os_errors(path):
                fsync_path(path)
            above = [p for p in path.parents if p.is_relative_to(self.root)]
            directories.update(above)
        for directory in sorted(directories, reverse=True):
            with converted_os_errors(directory):
                fsync_path(directory)

    def rename(self, source: str, name: str) -> None:
        """See `Storage.rename`."""
        target = self.root / name
        with converted_os_errors(target):
            ensure_directory(target.parent)
            (self.root / source).rename(target)
            fsync_path(target)
            fsync_path(target.parent)

    def names(self, prefix: str, *, at_work: bool = False, low: str = "") -> Iterable[str]:
        """See `Storage.names`; files at work have a dot in front. A directory that goes away
        meanwhile has none; one that this user may not read raises `StoreFailed`."""
        with converted_os_errors(self.root / prefix):
            found = sorted(self._below(prefix, low, at_work=at_work))
        yield from found

    def names_outside(self, prefix: str, start: str, end: str) -> Iterable[str]:
        """See `Storage.names_outside`. Directories that are left out are not opened."""
        with converted_os_errors(self.root / prefix):
            try:
                names = os.listdir(self.root / prefix)  # noqa: PTH208 (names alone are cheaper)
            except OSError as exc:
                _raise_unless_gone(exc)
                return
            low, high = start.removeprefix(f"{prefix}/"), end.removeprefix(f"{prefix}/")
            kept = sorted(name for name in names if name < low or name >= high)
        for name in kept:
            path = self.root / prefix / name
            if path.is_dir() and not path.is_symlink():
                yield from self.names(f"{prefix}/{name}")
            elif not name.startswith(".") and path.is_file():
                yield f"{prefix}/{name}"

    def _below(self, directory: str, low: str, *, at_work: bool) -> Iterator[str]:
        """Files as the directories tell them: none is asked what it is, unless it is a link. Those
        before `low` are passed over by name, since a directory has one for each window."""
        prefix = f"{directory}/" if directory else ""
        start = low.removeprefix(prefix) if low.startswith(prefix) else ""
        try:
            with os.scandir(self.root / directory) as entries:
                found = [
                    entry
                    for entry in entries
                    if entry.name >= start or start.startswith(entry.name)
                ]
        except OSError as exc:
            _raise_unless_gone(exc)
            return
        for entry in found:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from self._below(name, low, at_work=at_work)
            elif name >= low and (at_work or not entry.name.startswith(".")) and entry.is_file():
                yield name

    def remove(self, names: Iterable[str]) -> None:
        """Also removes directories that are empty afterwards."""
        for name in names:
            path = self.root / name
            with converted_os_errors(path):
                path.unlink(missing_ok=True)
            with suppress(OSError):
                above = path.parent
                above.rmdir()
                while "=" in above.name:  # folders of partitions
                    above = above.parent
                    above.rmdir()

    def missing(self) -> str | None:
        """See `Storage.missing`."""
        return missing_root(self.root)

    def filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """See `Storage.filesystem`."""
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem(), str(self.root)


class StorageBook:
    """A `BoundaryBook` of one document per key in a storage."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory

    def listing(self) -> Iterable[str]:
        """One listing of the directory. Files of others among the documents are passed over."""
        return self.listing_from("")

    def listing_from(self, key: str) -> Iterable[str]:
        """One listing of what sorts at or after `key`."""
        prefix = f"{self._directory}/"
        for name in self._storage.names(self._directory, low=f"{prefix}{key}" if key else ""):
            key_file = name.removeprefix(prefix)
            if key_file.endswith(".json") and "/" not in key_file:
                yield key_file.removesuffix(".json")

    def read(self, key: str) -> Document | None:
        """Return the document fixed under `key`, or None."""
        return self._storage.read(self._name(key))

    def fix(self, key: str, document: Document) -> Document:
        """Store it if nothing is there; what is there now."""
        name = self._name(key)
        self._storage.create(name, document)
        fixed = self._storage.read(name)
        if fixed is None:
            raise SinkDamaged(f"{self._storage.url}/{name} vanished right after it was written")
        return fixed

    def withdraw(self, key: str) -> None:
        """Remove the document."""
        self._storage.remove([self._name(key)])

    def _name(self, key: str) -> str:
        return f"{self._directory}/{key}.json"


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case; empty for a path."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def as_document(name: str, data: bytes) -> Document:
    """Return the JSON object in `data`. Raises `DocumentError`."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise DocumentError(name, [f"it is not JSON: {exc}"]) from exc
    if not isinstance(document, dict):
        raise DocumentError(name, [f"it is {type(document).__name__}, not an object"])
    return document

"""Crash-safe file operations: a file is whole and on disk, or absent.

POSIX makes only `rename` and `link` atomic, and only `fsync` of the file *and* of its directory
makes them durable. These functions are the only place that uses them. This module must not know
what the files mean.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from tubemq_client.errors import ConfigError
from tubemq_provider.files.objects import StoreFailed
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.protocols import Document

__all__ = [
    "converted_os_errors",
    "create_document",
    "create_file",
    "ensure_directory",
    "ensure_root",
    "fsync_path",
    "missing_root",
    "read_document",
    "removed_on_error",
    "replace_document",
]


_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def converted_os_errors(path: Path) -> Iterator[None]:
    """Convert errors of the file system at `path` into `StoreFailed` that names host and user.
    `FileNotFoundError` passes."""
    try:
        yield
    except (FileNotFoundError, StoreFailed):
        raise
    except OSError as exc:
        failed = StoreFailed(f"{path}: {exc.strerror or exc} {_here()}")
        failed.errno = exc.errno
        raise failed from exc


def fsync_path(path: Path) -> None:
    """Force a file's bytes, or a directory's names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ensure_directory(path: Path) -> None:
    """Create `path` and its parents; every new directory is on disk on return."""
    missing = []
    current = path
    while not current.exists():
        missing.append(current)
        current = current.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        fsync_path(directory.parent)


def ensure_root(root: Path) -> None:
    """Create the directory of a sink, if its parent exists.

    Parents are never created: with a mistyped path or an unmounted file system, windows would go
    onto the disk below. Raises `ConfigError` with advice, also for a directory that is not
    writable.
    """
    if os.path.exists(root):  # noqa: PTH110 (raises nothing, however long the name is)
        as_effective = os.access in os.supports_effective_ids
        if not os.access(root, os.W_OK | os.X_OK, effective_ids=as_effective):
            raise ConfigError(
                f"{root} cannot be written to {_here()}; name a directory that this user may make "
                f"and write to, on every machine that runs such tasks",
                subject="sink",
            )
        return
    if not os.path.isdir(root.parent):  # noqa: PTH112
        above = reversed(root.parents)
        missing = next(path for path in above if not os.path.isdir(path))  # noqa: PTH112
        raise ConfigError(
            f"{root} cannot be made {_here()}: {missing} is no directory there. Is a file system "
            f"not mounted, or the path mistyped? If it is right: mkdir -p {root.parent}",
            subject="sink",
        )
    try:
        ensure_directory(root)
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise ConfigError(
            f"{str(root)!r} cannot be made {_here()}: {why}; name a directory that this user may "
            f"make and write to, on every machine that runs such tasks",
            subject="sink",
        ) from exc


def missing_root(root: Path, *, make: str = "mkdir -p") -> str | None:
    """Return an error text if a sink's directory is missing that was written to before, or None.
    `make`: the command that creates it again, empty."""
    if os.path.exists(root):  # noqa: PTH110 (raises nothing, however long the name is)
        return None
    return (
        f"{root} is not there {_here()}. Is a file system not mounted? If its windows were moved "
        f"away on purpose: {make} {root}"
    )


def _here() -> str:
    """Return host and user for an error: a task may run on another machine than expected."""
    return f"on {socket.gethostname()} by user {os.geteuid()}"


def read_document(path: Path) -> Document | None:
    """Return the JSON object in `path`, or None if the file is missing. Raises `DocumentError`."""
    try:
        with converted_os_errors(path):
            data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError) as exc:
        raise DocumentError(path.name, [f"it is not JSON: {exc}"]) from exc
    if not isinstance(document, dict):
        raise DocumentError(path.name, [f"it is {type(document).__name__}, not an object"])
    return document


def replace_document(path: Path, document: Document) -> None:
    """Replace the file `path` by `document` atomically."""
    ensure_directory(path.parent)
    temporary = _write_beside(path, _text_of(document))
    with removed_on_error(temporary):
        temporary.replace(path)
    fsync_path(path.parent)


def create_document(path: Path, document: Document) -> bool:
    """Create `path` with `document`; return False if it exists."""
    return create_file(path, _text_of(document))


def create_file(path: Path, data: bytes) -> bool:
    """Create `path` with `data` atomically; return False if it exists. Raises `ConfigError` on a
    file system without hard links, which this needs."""
    with converted_os_errors(path):
        ensure_directory(path.parent)
        temporary = _write_beside(path, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            raise ConfigError(
                f"{path.parent}: a file cannot be created here only if it is absent: the file "
                f"system refuses hard links ({exc.strerror}), as vfat, SMB and Azure Files do; "
                f"choose a directory of a local disk or NFS, or an object store (s3://…)",
                subject="storage",
            ) from exc
        finally:
            temporary.unlink()
        fsync_path(path.parent)
    return True


def _text_of(document: Document) -> bytes:
    return json.dumps(document, indent=1).encode()


def _write_beside(path: Path, data: bytes) -> Path:
    """Write a temporary file next to `path`, on disk on return."""
    # Not derived from the file's name, which may have the maximum length already.
    temporary = path.parent / f".{uuid4().hex}"
    with removed_on_error(temporary), temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return temporary


@contextmanager
def removed_on_error(temporary: Path) -> Iterator[None]:
    """Remove a temporary file if the body fails, e.g. on a full disk. Otherwise each retry would
    leave one, and listings skip their names."""
    try:
        yield
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

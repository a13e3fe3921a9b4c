"""Storage locations: a directory, or a prefix in an object store.

A `Location` has the operations that engines, Spark tasks and sinks need: create a file atomically,
list names with sizes, open for reading, remove. Records go directly from the process that reads
them to their final place. This module is used on executors: it must not know windows, sinks or
Spark, and shows no option of a storage.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tubemq_provider.files.objects import explains_object_store_errors, is_remote, open_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = [
    "LocalLocation",
    "Location",
    "ObjectLocation",
    "Output",
    "Stored",
    "give_up",
    "location_at",
    "location_of",
]

_PART_BYTES: Final = 8 * 1024 * 1024
_PARTS_AT_ONCE: Final = 2
"""Parts of one upload that are in memory at most."""


class Stored(NamedTuple):
    """Size of a stored file, and its tag: the storage's ETag of the content ("" without one)."""

    size: int
    tag: str


class OpenedPlace(Protocol):
    """Path or URL of a place, with the options that open it."""

    @property
    def path(self) -> str:
        """Absolute path, or URL without secrets."""

    @property
    def options(self) -> Mapping[str, str]:
        """Options of an object store."""


class Output(Protocol):
    """File that is being written."""

    @property
    def stream(self) -> Any:
        """Pyarrow file to write to."""

    def finish(self) -> Stored:
        """Finish the file, which is whole and visible then."""

    def abandon(self) -> None:
        """Give up the file; in an object store it never appears."""


def give_up(writer: Any, output: Output) -> None:
    """Leave the Parquet file of pyarrow's `writer` unfinished (None: it was not created yet)."""
    output.abandon()
    if writer is not None:
        # Otherwise pyarrow writes a footer when the writer is garbage collected.
        writer.is_open = False


class Location(Protocol):
    """Directory or prefix. Names are relative to it, with ``/``."""

    @property
    def url(self) -> str:
        """Absolute path, or URL without secrets."""

    def create(self, name: str) -> Output:
        """Create a file that no other process writes. Raises `OSError` without the directory."""

    def stored(self, prefix: str = "") -> dict[str, Stored]:
        """Return all files in the directory `prefix` and below by name, also hidden ones."""

    def open(self, name: str) -> Any:
        """Open a pyarrow file for reading. Raises `FileNotFoundError`."""

    def clear(self) -> None:
        """Remove all files and the directory, if it exists."""


def location_of(place: OpenedPlace) -> Location:
    """Return the location of a place, such as a try's staging place."""
    return location_at(place.path, place.options)


def location_at(path: str, options: Mapping[str, str]) -> Location:
    """Return the location of a directory, or of a prefix in an object store opened by `options`."""
    return ObjectLocation(path, options) if is_remote(path) else LocalLocation(Path(path))


def document_in(location: Location, name: str) -> Any:
    """Read the JSON document `name`. Raises `FileNotFoundError`, or `ValueError` for no JSON."""
    with location.open(name) as source:
        return json.loads(source.read())


def keep_document(location: Location, name: str, document: Any) -> None:
    """Write a JSON document atomically."""
    output = location.create(name)
    try:
        output.stream.write(json.dumps(document).encode())
    except BaseException:
        output.abandon()
        raise
    output.finish()


class LocalLocation:
    """Directory of a local or mounted file system, see `Location`. Other processes may remove it at
    any time; it is not created again."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"LocalLocation({str(self.root)!r})"

    @property
    def url(self) -> str:
        """Path of the directory."""
        return str(self.root)

    def create(self, name: str) -> Output:
        """Create a file, and directories below the root; see `Location.create`."""
        path = self.root / name
        for above in reversed(path.relative_to(self.root).parents[:-1]):
            (self.root / above).mkdir(exist_ok=True)
        return _LocalOutput(path)

    def stored(self, prefix: str = "") -> dict[str, Stored]:
        """Return files without tags; see `Location.stored`."""
        return {
            path.relative_to(self.root).as_posix(): Stored(path.stat().st_size, "")
            for path in sorted((self.root / prefix).rglob("*"))
            if path.is_file()
        }

    def open(self, name: str) -> Any:
        """Open a file; see `Location.open`."""
        import pyarrow as pa

        return pa.OSFile(str(self.root / name), "rb")

    def clear(self) -> None:
        """Remove the directory; see `Location.clear`."""
        shutil.rmtree(self.root, ignore_errors=True)


class _LocalOutput:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._path = path
        self.stream = pa.OSFile(str(path), "wb")

    def finish(self) -> Stored:
        self.stream.close()
        return Stored(self._path.stat().st_size, "")

    def abandon(self) -> None:
        self.stream.close()


class ObjectLocation:
    """Prefix of a bucket, see `Location`. `options` are obstore's and shown nowhere."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        self._options = dict(options)

    def __repr__(self) -> str:
        return f"ObjectLocation({self._url!r})"

    @property
    def url(self) -> str:
        """URL without a trailing slash."""
        return self._url

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._url, self._options)

    def create(self, name: str) -> Output:
        """Begin an upload in parts of `_PART_BYTES`; a smaller file is one request."""
        return _Upload(self._store, name, self._url)

    def stored(self, prefix: str = "") -> dict[str, Stored]:
        """List the prefix, a request per thousand names; see `Location.stored`."""
        import obstore

        with explains_object_store_errors(self._url):
            return {
                item["path"]: Stored(item["size"], item["e_tag"] or "")
                for page in obstore.list(self._store, prefix=prefix or None)
                for item in page
            }

    def open(self, name: str) -> Any:
        """Open a file that is read by range requests; see `Location.open`."""
        import pyarrow as pa

        return pa.PythonFile(_Download(self._store, name, self._url), mode="r")

    def clear(self) -> None:
        """Remove all files; see `Location.clear`."""
        _remove(self._store, self.stored(), self._url)


def _remove(store: ObjectStore, names: Iterable[str], url: str) -> None:
    import obstore

    with explains_object_store_errors(url):
        for name in names:
            try:
                obstore.delete(store, name)
            except FileNotFoundError:
                continue


class _Download:
    """Object read by range requests, with the Python file interface that pyarrow uses."""

    def __init__(self, store: ObjectStore, name: str, url: str) -> None:
        import obstore

        self._store, self._name, self._url = store, name, url
        with explains_object_store_errors(url):
            self._size = int(obstore.head(store, name)["size"])
        self._at = 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        import obstore

        end = self._size if count < 0 else min(self._at + count, self._size)
        if end <= self._at:
            return b""
        with explains_object_store_errors(self._url):
            data = obstore.get_range(self._store, self._name, start=self._at, end=end)
        self._at = end
        return bytes(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True


class _Upload:
    """Object that appears when it is finished, with the Python file interface that pyarrow uses:
    `write`, `tell`, `flush` and `closed`.

    An object below `_PART_BYTES` is one request, whose answer has the tag. A larger one is uploaded
    in parts, and its tag is asked for.
    """

    def __init__(self, store: ObjectStore, name: str, url: str) -> None:
        import pyarrow as pa

        self._store, self._name, self._url = store, name, url
        self._held: bytearray | None = bytearray()
        self._writer: Any = None
        self._size = 0
        self.closed = False
        self.stream = pa.PythonFile(self, mode="w")

    def write(self, data: bytes) -> int:
        part = memoryview(data).cast("B")  # pyarrow's buffers are signed
        if self._writer is not None:
            with explains_object_store_errors(self._url):
                self._writer.write(part)
        elif self._held is not None:  # pyarrow may still flush after `abandon`
            self._held += part
            if len(self._held) >= _PART_BYTES:
                self._begin_parts()
        else:
            return len(data)
        self._size += len(part)
        return len(data)

    def _begin_parts(self) -> None:
        import obstore

        self._writer = obstore.open_writer(
            self._store, self._name, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )
        with explains_object_store_errors(self._url):
            self._writer.write(self._held)
        self._held = None

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: parts are sent when they are full."""

    def close(self) -> None:
        self.closed = True

    def finish(self) -> Stored:
        import obstore

        with explains_object_store_errors(self._url):
            if self._held is not None:
                put = obstore.put(self._store, self._name, self._held, use_multipart=False)
                return Stored(self._size, put["e_tag"] or "")
            self._writer.close()
            head = obstore.head(self._store, self._name)
        return Stored(head["size"], head["e_tag"] or "")

    def abandon(self) -> None:
        # Closing the writer would complete the upload.
        self._held = self._writer = None

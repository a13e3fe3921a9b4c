"""Where a try writes its files: a directory, or a prefix in an object store.

A `Location` is what engines, Spark tasks and sinks need of such a place: put a file there that is
whole or not at all, list names with sizes, open for reading, remove. Records go straight from the
process that reads them to where they stay. Travels to executors: this module must not know windows,
sinks or Spark, and repeats no option of a storage.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tubemq_provider.files.objects import is_remote, open_store, refusals_told

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tubemq_provider.windows.protocols import Staging

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
"""Of one upload: what is in memory for it at most."""


class Stored(NamedTuple):
    """What a storage says of a file: its size, and its name for just these bytes (empty: none)."""

    size: int
    tag: str


class Output(Protocol):
    """A file that is being written."""

    @property
    def stream(self) -> Any:
        """A pyarrow file to write to."""

    def finish(self) -> Stored:
        """The file is whole, and there."""

    def abandon(self) -> None:
        """It will not be whole; in an object store it never appears."""


def give_up(writer: Any, output: Output) -> None:
    """Leave a Parquet file of pyarrow's `writer` unfinished; None: it could not even begin."""
    output.abandon()
    if writer is not None:
        # Else pyarrow writes a footer when it is collected.
        writer.is_open = False


class Location(Protocol):
    """A directory or a prefix. Names are relative to it, with ``/``."""

    @property
    def url(self) -> str:
        """An absolute path, or a URL without secrets."""

    def create(self, name: str) -> Output:
        """Begin a file that nobody else writes. Raises `OSError` if the directory is gone."""

    def stored(self, prefix: str = "") -> dict[str, Stored]:
        """All files in the directory `prefix` and below by name, hidden ones among them."""

    def open(self, name: str) -> Any:
        """A pyarrow file to read from. Raises `FileNotFoundError`."""

    def clear(self) -> None:
        """Remove all there is, and the directory. Nothing there is no error."""


def location_of(staging: Staging) -> Location:
    """The place of a try."""
    return location_at(staging.path, staging.options)


def location_at(path: str, options: Mapping[str, str]) -> Location:
    """The directory, or the prefix of an object store that `options` open."""
    return ObjectLocation(path, options) if is_remote(path) else LocalLocation(Path(path))


def document_in(location: Location, name: str) -> Any:
    """The JSON document `name`. Raises `FileNotFoundError`, and `ValueError` for what is none."""
    with location.open(name) as source:
        return json.loads(source.read())


def keep_document(location: Location, name: str, document: Any) -> None:
    """Write a JSON document, or none of it."""
    output = location.create(name)
    try:
        output.stream.write(json.dumps(document).encode())
    except BaseException:
        output.abandon()
        raise
    output.finish()


class LocalLocation:
    """A directory of a local or mounted file system, which others may remove at any time: what is
    gone is not made again. See `Location`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"LocalLocation({str(self.root)!r})"

    @property
    def url(self) -> str:
        """The path."""
        return str(self.root)

    def create(self, name: str) -> Output:
        """See `Location.create`. Directories below the root are made if they are not there."""
        path = self.root / name
        for above in reversed(path.relative_to(self.root).parents[:-1]):
            (self.root / above).mkdir(exist_ok=True)
        return _LocalOutput(path)

    def stored(self, prefix: str = "") -> dict[str, Stored]:
        """See `Location.stored`; local files have no tags."""
        return {
            path.relative_to(self.root).as_posix(): Stored(path.stat().st_size, "")
            for path in sorted((self.root / prefix).rglob("*"))
            if path.is_file()
        }

    def open(self, name: str) -> Any:
        """See `Location.open`."""
        import pyarrow as pa

        return pa.OSFile(str(self.root / name), "rb")

    def clear(self) -> None:
        """See `Location.clear`."""
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
    """A prefix of a bucket. See `Location`; `options` are obstore's and appear nowhere."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        self._options = dict(options)

    def __repr__(self) -> str:
        return f"ObjectLocation({self._url!r})"

    @property
    def url(self) -> str:
        """The URL without a trailing slash."""
        return self._url

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._url, self._options)

    def create(self, name: str) -> Output:
        """An upload in parts, `_PART_BYTES` each; smaller files are one request."""
        return _Upload(self._store, name, self._url)

    def stored(self, prefix: str = "") -> dict[str, Stored]:
        """See `Location.stored`: one listing, a request for a thousand names."""
        import obstore

        with refusals_told(self._url):
            return {
                found["path"]: Stored(found["size"], found["e_tag"] or "")
                for page in obstore.list(self._store, prefix=prefix or None)
                for found in page
            }

    def open(self, name: str) -> Any:
        """See `Location.open`; what is read is asked for in ranges."""
        import pyarrow as pa

        return pa.PythonFile(_Download(self._store, name, self._url), mode="r")

    def clear(self) -> None:
        """See `Location.clear`."""
        _remove(self._store, self.stored(), self._url)


def _remove(store: ObjectStore, names: Iterable[str], url: str) -> None:
    import obstore

    with refusals_told(url):
        for name in names:
            try:
                obstore.delete(store, name)
            except FileNotFoundError:
                continue


class _Download:
    """An object to read in ranges, as pyarrow asks a Python file for them."""

    def __init__(self, store: ObjectStore, name: str, url: str) -> None:
        import obstore

        self._store, self._name, self._url = store, name, url
        with refusals_told(url):
            self._size = int(obstore.head(store, name)["size"])
        self._at = 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        import obstore

        end = self._size if count < 0 else min(self._at + count, self._size)
        if end <= self._at:
            return b""
        with refusals_told(self._url):
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
    """An object that appears when it is finished. What pyarrow writes to is a Python file: it has
    `write`, `tell`, `flush` and `closed`."""

    def __init__(self, store: ObjectStore, name: str, url: str) -> None:
        import obstore
        import pyarrow as pa

        self._store, self._name, self._url = store, name, url
        self._writer: Any = obstore.open_writer(
            store, name, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )
        self._size = 0
        self.closed = False
        self.stream = pa.PythonFile(self, mode="w")

    def write(self, data: bytes) -> int:
        if self._writer is not None:  # pyarrow may still have something after `abandon`
            with refusals_told(self._url):
                self._writer.write(memoryview(data).cast("B"))  # pyarrow's buffers are signed
            self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Parts are sent when they are full."""

    def close(self) -> None:
        self.closed = True

    def finish(self) -> Stored:
        import obstore

        with refusals_told(self._url):
            self._writer.close()
            found = obstore.head(self._store, self._name)
        return Stored(found["size"], found["e_tag"] or "")

    def abandon(self) -> None:
        # Closing would complete it.
        self._writer = None

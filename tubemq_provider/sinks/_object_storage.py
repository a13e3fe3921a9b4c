"""Storage in an object store: S3 and what speaks like it, Google Cloud Storage, Azure Blob.

Through obstore, because exactly-once rests on one request: "put this object only if there is
none". pyarrow's and most fsspec file systems cannot ask for that. Stores that ignore the condition
(old S3 imitations do) are found out by a probe and refused. This module must not know windows.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.files.objects import (
    SCHEMES,
    explains_object_store_errors,
    open_store,
    split_options,
)
from tubemq_provider.sinks._storage import as_document, scheme_of
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import Document

if TYPE_CHECKING:
    import pyarrow.fs
    from obstore.store import ObjectStore

__all__ = ["SCHEMES", "ObjectStorage", "prefix_problems"]

_PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Between requests that meet another one for the same object."""

_PERCENT: Final = re.compile("%[0-9A-Fa-f]{2}")
_PROBE: Final = "_tubemq/conditional-put"


class ObjectStorage:
    """A prefix of a bucket. See `Storage`.

    `storage_options` are obstore's (``endpoint``, ``region``, ``access_key_id``,
    ``secret_access_key``, ``allow_http`` …; keys in any case, ``aws_…`` too); what is not given
    comes from the environment. They never appear in `url`, `repr` or errors: those of the store,
    which can quote them, are reported by kind only (`files.objects.explains_object_store_errors`).
    """

    def __init__(self, url: str, storage_options: Mapping[str, str]) -> None:
        if scheme_of(url) not in SCHEMES or set("@?#") & set(url):
            raise ConfigError(
                f"{_plain(url)!r} is no address of an object store; use {_addresses()} without the "
                f"characters @ ? #, and give credentials as storage_options or in the environment",
                subject="sink",
            )
        if problems := prefix_problems(url):
            raise ConfigError(problems, subject="sink")
        try:
            import obstore  # noqa: F401 (missing, it should be missed before anything is read)
        except ImportError as exc:
            raise require_extra("lake", exc) from exc
        self._url = url.rstrip("/")
        self._options = dict(storage_options)
        self._proven = False
        self._proven_swaps = False

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    @property
    def url(self) -> str:
        """The URL without a trailing slash."""
        return self._url

    def read(self, name: str) -> Document | None:
        """See `Storage.read`."""
        data = self.read_bytes(name)
        return None if data is None else as_document(name, data)

    def read_bytes(self, name: str) -> bytes | None:
        """See `Storage.read_bytes`; one request."""
        import obstore

        store = self._store
        try:
            with explains_object_store_errors(self._url):
                return bytes(obstore.get(store, name).bytes())
        except FileNotFoundError:
            return None

    def create(self, name: str, document: Document) -> bool:
        """Create the object with a conditional put. Raises `ConfigError` for stores that do not
        honour the condition."""
        return self.create_file(name, json.dumps(document, indent=1).encode())

    def create_file(self, name: str, data: bytes) -> bool:
        """See `Storage.create_file`, and `create`."""
        self._prove()
        return self._put_new(name, data)

    def swap(self, name: str, old: Document, new: Document) -> bool:
        """Replace the object on condition that it is still the one that was read (If-Match). Raises
        `ConfigError` for stores that do not honour the condition."""
        import obstore
        from obstore.exceptions import PreconditionError

        store = self._store
        with explains_object_store_errors(self._url):
            found = obstore.get(store, name)
            data = bytes(found.bytes())
        if as_document(name, data) != old:
            return False
        self._prove_swaps()
        data = json.dumps(new, indent=1).encode()
        with explains_object_store_errors(self._url):
            try:
                obstore.put(store, name, data, mode=_still(found.meta))
            except PreconditionError:
                return False
        return True

    def put_file(self, source: Path, name: str) -> None:
        """Upload the file, in parts if it is large."""
        import obstore

        store = self._store
        with explains_object_store_errors(self._url):
            obstore.put(store, name, source)

    def keep_files(self, names: Iterable[str]) -> None:
        """Nothing to do: an object that is there is there to stay."""

    def rename(self, source: str, name: str) -> None:
        """Copy the object in the store, then remove the source."""
        import obstore

        store = self._store
        with explains_object_store_errors(self._url):
            obstore.rename(store, source, name)

    def names(
        self,
        prefix: str,
        *,
        at_work: bool = False,  # noqa: ARG002
        low: str = "",
    ) -> Iterable[str]:
        """See `Storage.names`. A store shows no object that is not whole."""
        import obstore

        store = self._store
        with explains_object_store_errors(self._url):
            for page in obstore.list(store, prefix=prefix, offset=low or None):
                for listed in page:
                    yield listed["path"]

    def names_outside(self, prefix: str, start: str, end: str) -> Iterable[str]:
        """See `Storage.names_outside`. Stores list in order of names: a listing ends at `start`,
        another one begins at `end`."""
        yield from takewhile(lambda name: name < start, self.names(prefix))
        yield from self.names(prefix, low=end)

    def remove(self, names: Iterable[str]) -> None:
        """See `Storage.remove`."""
        import obstore

        store = self._store
        for name in names:
            try:
                with explains_object_store_errors(self._url):
                    obstore.delete(store, name)
            except FileNotFoundError:
                continue

    def missing(self) -> None:
        """Return None: a prefix exists without any object in it."""

    def filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """Return a file system over fsspec, which pyarrow can use."""
        import pyarrow.fs

        try:
            from obstore.fsspec import FsspecStore
        except ImportError as exc:
            raise require_extra("lake", exc) from exc
        config, client = split_options(self._options)
        scheme: Any  # its overloads want a literal
        scheme, _, path = self._url.partition("://")
        remote = FsspecStore(scheme, config=config, client_options=client)
        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(remote)), path

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._url, self._options)

    def _put_new(self, name: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        store = self._store
        for pause in (*_PAUSES_S, None):
            with explains_object_store_errors(self._url):
                try:
                    obstore.put(store, name, data, mode="create")
                except AlreadyExistsError:
                    # S3 also refuses while another request for the object is under way, which may
                    # fail or remove it (409 ConditionalRequestConflict), and wants to be asked
                    # again.
                    if self._is_there(name):
                        return False
                else:
                    return True
            if pause is not None:
                threading.Event().wait(pause)
        raise StoreConflict(
            f"{self._url}/{name}: the store keeps answering that another request for it is under "
            f"way, and there is no such object; a retry asks again"
        )

    def _is_there(self, name: str) -> bool:
        import obstore

        try:
            with explains_object_store_errors(self._url):
                obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def _prove_swaps(self) -> None:
        """Check that the store refuses to replace an object that has changed since it was read;
        once per instance."""
        import obstore
        from obstore.exceptions import PreconditionError

        if self._proven_swaps:
            return
        self._prove()
        probe = b"Kept to check that the store honours conditional writes.\n"
        with explains_object_store_errors(self._url):
            try:
                # Tag and version of another object: never those of the probe.
                obstore.put(self._store, _PROBE, probe, mode={"e_tag": '"0"', "version": "1"})
            except PreconditionError:
                self._proven_swaps = True
                return
        raise ConfigError(
            f"{self._url}: the store replaces an object although it is not the one that was read "
            f"(If-Match, or its generation); windows cannot be rewritten in one step there",
            subject="on_clear",
        )

    def _prove(self) -> None:
        """Check that the store refuses a second object under one name; once per instance."""
        if self._proven:
            return
        probe = b"Kept to check that the store honours conditional writes.\n"
        if self._put_new(_PROBE, probe) and self._put_new(_PROBE, probe):
            raise ConfigError(
                f"{self._url}: the store overwrites an object that was to be created only if "
                f"absent (If-None-Match); windows cannot be exactly-once there",
                subject="sink",
            )
        self._proven = True


def _still(meta: Any) -> Any:
    """Return the condition that an object is the one that `meta` describes. Google Cloud Storage
    compares versions (generations), all others entity tags."""
    condition = {"e_tag": meta["e_tag"], "version": meta["version"]}
    return {key: value for key, value in condition.items() if value is not None}


def _plain(url: str) -> str:
    """`url` without what may be a secret."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if rest else scheme


def _addresses() -> str:
    return ", ".join(f"{scheme}://<bucket>/<prefix>" for scheme in SCHEMES)


def prefix_problems(url: str) -> list[str]:
    """Return problems of an object store URL that libraries resolve, join or decode differently, so
    that readers would use another prefix."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.rstrip("/").partition("/")
    if not bucket:
        return [f"{url!r} names no bucket; write {scheme}://<bucket>/<prefix>"]
    parts = prefix.split("/") if prefix else []
    problems = []
    if bad := [part for part in parts if part in ("", ".", "..")]:
        plain: list[str] = []
        for part in parts:
            if part == "..":
                del plain[-1:]
            elif part not in ("", "."):
                plain.append(part)
        named = "an empty part" if bad[0] == "" else f"the part {bad[0]!r}"
        meant = "/".join((bucket, *plain))
        problems.append(f"{url!r} has {named}; did you mean {scheme}://{meant}?")
    if match := _PERCENT.search(prefix):
        problems.append(
            f"{url!r} has the escape {match[0]}, which some readers decode and others do not; "
            f"write the character itself, or choose a prefix without it"
        )
    if "\\" in prefix or any(ord(char) < ord(" ") or char == "\x7f" for char in prefix):
        problems.append(f"{url!r} has a backslash or a control character; choose another prefix")
    return problems

"""The data directory of an embedded server: store files, positions, topology, and a lock.

Layout::

    <data_dir>/lock                            held while a server runs
    <data_dir>/cluster.json                    brokers with their ports, topics
    <data_dir>/broker-<id>/positions.json
    <data_dir>/broker-<id>/<topic>-<store>.log a header, then records end to end

A store's file holds exactly what is *stable*: bytes are written at a flush and at no other time, so
killing the process loses precisely the unflushed records. A record torn by the kill is cut off on
opening. JSON documents are replaced in one step. Nothing here decides when to flush.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from tubemq_client.embedded.store import Record
from tubemq_client.errors import ConfigError

__all__ = ["DataDirectory", "StoreFile", "StoredLog"]

_log = logging.getLogger(__name__)

_MAGIC = b"TMQSTORE"
_HEADER = struct.Struct(">8sqq")  # magic, offset and data offset of the first record
_MAGIC_SPLIT = b"TMQSTOR2"  # the same, then the least data offset: data and index start apart
_DATA_MIN = struct.Struct(">q")
_RECORD = struct.Struct(">IiiqqiiiI")  # crc of the rest, then the record's fields, payload length


class StoredLog(NamedTuple):
    """Content of a store's file: the offset and the data offset of the first record, and the start
    of the data that retention has left."""

    base_offset: int
    base_data_offset: int
    min_data_offset: int
    records: list[Record]


class StoreFile:
    """The file of one store. Create it with `open`, which also returns its content."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._path = path
        self._fsync = fsync
        self._file: FileIO | None = None

    def open(self) -> StoredLog:
        """Read the file, cut off a torn tail, and open it for appending."""
        if not self._path.exists():
            self.rewrite(StoredLog(0, 0, 0, []))
        content = self._path.read_bytes()
        stored, good = _parse(self._path, content)
        if good < len(content):
            _log.warning("%s: cut off %d torn bytes", self._path, len(content) - good)
            os.truncate(self._path, good)
        self._reopen()
        return stored

    def append(self, records: Sequence[Record]) -> None:
        """Append records; on return they survive a kill of the process.

        Raises `OSError` (a full disk, for example) and then leaves the file as it was.
        """
        assert self._file is not None, "append to a store file that is not open"
        good = os.fstat(self._file.fileno()).st_size  # the file position is wrong after a failure
        left = memoryview(b"".join(_encode(record) for record in records))
        try:
            while left:
                left = left[self._file.write(left) :]
            if self._fsync:
                os.fsync(self._file.fileno())
        except OSError:
            os.truncate(self._path, good)
            raise

    def rewrite(self, stored: StoredLog) -> None:
        """Replace the whole file in one step."""
        first, data_min = stored.base_data_offset, stored.min_data_offset
        head = _HEADER.pack(
            _MAGIC if first == data_min else _MAGIC_SPLIT, stored.base_offset, first
        )
        if first != data_min:
            head += _DATA_MIN.pack(data_min)
        body = b"".join(_encode(record) for record in stored.records)
        _replace(self._path, head + body, fsync=self._fsync)
        self._reopen()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def delete(self) -> None:
        """Close and remove the file."""
        self.close()
        self._path.unlink(missing_ok=True)

    def _reopen(self) -> None:
        self.close()
        # Unbuffered: bytes that could not be written must not turn up later.
        self._file = FileIO(str(self._path), "ab", opener=_private)


class DataDirectory:
    """One server's directory. Raises `ConfigError` if it is in use or unreadable."""

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.root = Path(root)
        self._fsync = fsync
        _make_private(self.root)
        self._lock = open(self.root / "lock", "a", opener=_private)  # noqa: SIM115 - held; Path has no opener
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise ConfigError(
                f"{self.root} is in use by another embedded server", subject="data_dir"
            ) from error

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def load_cluster(self) -> dict[str, Any] | None:
        return _load(self.root / "cluster.json")

    def save_cluster(self, document: dict[str, Any]) -> None:
        self._save(self.root / "cluster.json", document)

    def load_positions(self, broker_id: int) -> list[list[Any]]:
        document = _load(self._broker(broker_id) / "positions.json")
        return document["positions"] if document else []

    def save_positions(self, broker_id: int, rows: list[list[Any]]) -> None:
        self._save(self._broker(broker_id) / "positions.json", {"positions": rows})

    def store_file(self, broker_id: int, topic: str, store_id: int) -> StoreFile:
        path = self._broker(broker_id) / f"{topic}-{store_id}.log"
        return StoreFile(path, fsync=self._fsync)

    def stores(self, broker_id: int) -> Iterator[tuple[str, int]]:
        """Yield (topic, store id) of every store of a broker."""
        for path in sorted(self._broker(broker_id).glob("*-*.log")):
            topic, _, store = path.stem.rpartition("-")
            if store.isdecimal():
                yield topic, int(store)

    def _broker(self, broker_id: int) -> Path:
        path = self.root / f"broker-{broker_id}"
        _make_private(path)
        return path

    def _save(self, path: Path, document: dict[str, Any]) -> None:
        _replace(path, json.dumps(document, indent=1).encode(), fsync=self._fsync)


def _encode(record: Record) -> bytes:
    tail = _RECORD.pack(
        0,
        record.partition_id,
        record.key_code,
        record.time_ms,
        record.message_id,
        record.checksum,
        record.flag,
        record.sent_addr,
        len(record.payload),
    )[4:]
    crc = zlib.crc32(record.payload, zlib.crc32(tail))
    return b"".join((crc.to_bytes(4, "big"), tail, record.payload))


def _parse(path: Path, content: bytes) -> tuple[StoredLog, int]:
    """Parse `content`; return it and the number of bytes that are whole."""
    split = content.startswith(_MAGIC_SPLIT)
    size = _HEADER.size + (_DATA_MIN.size if split else 0)
    if len(content) < size or not (split or content.startswith(_MAGIC)):
        raise ConfigError(f"{path} is not a store file of an embedded server", subject="data_dir")
    _, base_offset, base_data_offset = _HEADER.unpack_from(content)
    data_min = base_data_offset
    if split:
        (data_min,) = _DATA_MIN.unpack_from(content, _HEADER.size)
    records: list[Record] = []
    pos, data_offset = size, base_data_offset
    while (decoded := _decode(content, pos, data_offset)) is not None:
        record, pos = decoded
        data_offset = record.data_end
        records.append(record)
    return StoredLog(base_offset, base_data_offset, data_min, records), pos


def _decode(content: bytes, pos: int, data_offset: int) -> tuple[Record, int] | None:
    start = pos + _RECORD.size
    if start > len(content):
        return None
    crc, part, key, time_ms, message_id, checksum, flag, addr, size = _RECORD.unpack_from(
        content, pos
    )
    payload = content[start : start + size]
    tail = content[pos + 4 : start]
    if len(payload) < size or zlib.crc32(payload, zlib.crc32(tail)) != crc:
        return None
    record = Record(part, key, time_ms, message_id, checksum, flag, addr, data_offset, payload)
    return record, start + size


def _load(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(f"{path} is unreadable: {error}", subject="data_dir") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no JSON object", subject="data_dir")
    return document


def _make_private(path: Path) -> None:
    """Create a directory for its owner only; an existing empty one is made private."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid == os.geteuid() and not any(path.iterdir()):
        path.chmod(0o700)


def _private(name: str, flags: int) -> int:
    """Open a file that only its owner may read; one of an earlier version is made private."""
    descriptor = os.open(name, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _replace(path: Path, content: bytes, *, fsync: bool) -> None:
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    fresh.replace(path)

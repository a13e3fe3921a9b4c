"""State of a Delta table that a window needs, read from the log without the table's files.

deltalake loads every active file of a table with the table, which costs a window more the longer
its history is. A window needs the protocol, the metadata, the transactions of applications and the
latest version. From a checkpoint only these columns are read, then the commits after it. Logs that
are not understood here (`LogNotUnderstood`) are left to deltalake. This module must not write.

Source: the Delta transaction log protocol, sections Checkpoints, Last Checkpoint File, Actions.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import TubeMQError
from tubemq_provider.files.locations import Location
from tubemq_provider.sinks._storage import LocalStorage, Storage
from tubemq_provider.sinks.delta.log import log_name
from tubemq_provider.sinks.delta.rules import KNOWN_FEATURES, READER_VERSION, WRITER_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LogNotUnderstood", "Snapshot", "TableMetadata", "checkpoint_hint", "read_snapshot"]

_HINT: Final = "_delta_log/_last_checkpoint"
_COMMIT: Final = re.compile(r"_delta_log/(\d{20})\.json")
_CHECKPOINT: Final = re.compile(
    r"_delta_log/(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet"
)
_OF_FILES: Final = (b'{"add"', b'{"remove"', b'{"cdc"', b'{"commitInfo"')
_COLUMNS: Final = ("metaData.", "protocol.", "txn.appId", "txn.version")
_WHOLE_BYTES: Final = 1024 * 1024
"""A checkpoint of an object store up to this size is read in one request."""
_AT_ONCE: Final = 8
_FEATURES: Final = KNOWN_FEATURES - {"v2Checkpoint"}
"""Features that do not change the layout of the log, and that `rules` sees to."""


class LogNotUnderstood(Exception):
    """The log has a layout or a feature that only deltalake is asked to read."""


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """Metadata of a table, with the attributes of deltalake's `Metadata`."""

    id: str
    name: str | None
    description: str | None
    partition_columns: list[str]
    created_time: int | None
    configuration: dict[str, str]


@dataclass(frozen=True)
class Snapshot:
    """State of a table at a version; the methods are named as those of deltalake's `DeltaTable`.

    `checkpoint` is the version of the checkpoint that it was read from, -1 without one; `newest`
    the newest commit's bytes, None if log clean-up has removed it.
    """

    number: int
    checkpoint: int
    newest: bytes | None
    _metadata: Mapping[str, Any]
    _protocol: Mapping[str, Any]
    _recent: Mapping[str, int] = field(default_factory=dict)
    _earlier: tuple[pa.StructArray, ...] = ()

    def version(self) -> int:
        """Return the version of the newest commit."""
        return self.number

    def metadata(self) -> TableMetadata:
        """Return id, name, partition columns and configuration."""
        found = self._metadata
        return TableMetadata(
            str(found["id"]),
            found.get("name"),
            found.get("description"),
            list(found.get("partitionColumns") or ()),
            found.get("createdTime"),
            dict(found.get("configuration") or {}),
        )

    def protocol(self) -> Any:
        """Return the versions and features as deltalake's `ProtocolVersions`."""
        from deltalake.table import ProtocolVersions

        found = self._protocol
        return ProtocolVersions(
            int(found["minReaderVersion"]),
            int(found["minWriterVersion"]),
            _features(found, "minWriterVersion", WRITER_VERSION, "writerFeatures"),
            _features(found, "minReaderVersion", READER_VERSION, "readerFeatures"),
        )

    def schema(self) -> Any:
        """Return deltalake's `Schema` of the table."""
        return self._schema

    @cached_property
    def _schema(self) -> Any:
        from deltalake import Schema

        return Schema.from_json(self._metadata["schemaString"])

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version that an application has committed last, or None."""
        recent = self._recent.get(app_id)
        return recent if recent is not None else self._checkpointed(app_id)

    def _checkpointed(self, app_id: str) -> int | None:
        import pyarrow.compute as pc

        # `pc.index` makes a scalar of the name, for which pyarrow imports pandas: 0.3 s of CPU.
        for rows in self._earlier:
            ids = pc.struct_field(rows, "appId")
            for at in pc.indices_nonzero(pc.match_substring(ids, app_id)).to_pylist():
                if ids[at].as_py() == app_id:
                    return int(rows[at]["version"].as_py())
        return None

    def after(self, commits: Sequence[bytes]) -> Snapshot:
        """Return the state after the commits that follow this version. Raises `LogNotUnderstood`
        if they bring a feature that is not known."""
        if not commits:
            return self
        recent = dict(self._recent)
        metadata, protocol = self._metadata, self._protocol
        for commit in commits:
            for action in _actions(commit):
                if (txn := action.get("txn")) is not None:
                    recent[txn["appId"]] = int(txn["version"])
                metadata = action.get("metaData") or metadata
                protocol = action.get("protocol") or protocol
        changed = replace(
            self,
            number=self.number + len(commits),
            newest=commits[-1],
            _metadata=metadata,
            _protocol=protocol,
            _recent=recent,
        )
        _require_known(protocol)
        return changed

    def refreshed(self, storage: Storage) -> Snapshot | None:
        """Return the state of the log now, None if the newest known commit is not in the log any
        more: it has been cleaned up, or the table has been replaced."""
        if isinstance(storage, LocalStorage):
            commits = list(_commits_from(storage, self.number + 1))
        else:
            commits = self._listed(storage)
        if storage.read_bytes(log_name(self.number)) != self.newest or self.newest is None:
            return None
        with _left_to_deltalake():
            return self.after(commits)

    def _listed(self, storage: Storage) -> list[bytes]:
        low = f"_delta_log/{self.number + 1:020}"
        versions = {
            int(m[1]) for m in map(_COMMIT.fullmatch, storage.names("_delta_log", low=low)) if m
        }
        if not versions:
            return []
        return _read_all(storage, range(self.number + 1, max(versions) + 1))


def checkpoint_hint(storage: Storage) -> Mapping[str, Any] | None:
    """Return the document `_last_checkpoint`, or None without a usable one. It can be outdated."""
    try:
        hint = json.loads(storage.read_bytes(_HINT) or b"null")
        return hint if isinstance(hint, dict) and int(hint["version"]) >= 0 else None
    except (ValueError, KeyError, TypeError):
        return None


def read_snapshot(storage: Storage, location: Location) -> Snapshot | None:
    """Return the newest state of the table in `storage`, None if no table is there. Raises
    `LogNotUnderstood` for a log that deltalake has to read."""
    with _left_to_deltalake():
        hint = checkpoint_hint(storage)
        if hint is not None and isinstance(storage, LocalStorage):
            snapshot = _read_local(storage, location, hint)
            if snapshot is not None:
                return snapshot
        return _read_listed(storage, location, hint)


@contextmanager
def _left_to_deltalake() -> Iterator[None]:
    """Raise `LogNotUnderstood` for documents of another form, and for what pyarrow raises for a
    file that is not Parquet."""
    try:
        yield
    except TubeMQError:
        raise
    except (LookupError, TypeError, ValueError, OSError) as exc:
        raise LogNotUnderstood(str(exc)) from exc


def _read_local(
    storage: LocalStorage, location: Location, hint: Mapping[str, Any]
) -> Snapshot | None:
    """Return the state at the newest commit, found by reading the commits after the checkpoint of
    `hint` one by one: the cost of a listing grows with every commit that log clean-up keeps.

    None if the newest commit found is not there itself. The hint is outdated then: clean-up has
    removed commits that followed its checkpoint, and only a listing tells which came last.
    """
    version = int(hint["version"])
    try:
        base = _of_checkpoint(storage, location, version, hint)
    except FileNotFoundError:
        return None
    snapshot = base.after([*_commits_from(storage, version + 1)])
    later = checkpoint_hint(storage)
    if snapshot.newest is None:
        snapshot = replace(snapshot, newest=storage.read_bytes(log_name(snapshot.number)))
    outdated = later is None or int(later["version"]) > snapshot.number
    return None if outdated or snapshot.newest is None else snapshot


def _read_listed(
    storage: Storage, location: Location, hint: Mapping[str, Any] | None
) -> Snapshot | None:
    low = "" if hint is None else f"_delta_log/{int(hint['version']):020}"
    commits, checkpoints = _listing(storage, low)
    if low and (hint is None or int(hint["version"]) not in checkpoints):
        commits, checkpoints = _listing(storage, "")
    if not commits and not checkpoints:
        return None
    at = max(checkpoints, default=-1)
    last = max(commits, default=at)
    if not {*range(at + 1, last + 1)} <= commits:
        raise LogNotUnderstood(f"commits between {at} and {last} are missing")
    base = None
    if at >= 0:
        same = hint is not None and int(hint["version"]) == at
        details = hint if same and hint is not None else {"parts": checkpoints[at]}
        try:
            base = _of_checkpoint(storage, location, at, details)
        except FileNotFoundError as exc:
            raise LogNotUnderstood(f"checkpoint {at} went away") from exc
    data = _read_all(storage, range(at + 1, max(at, last) + 1))
    if base is None:
        return _from_the_first(data)
    base = base.after(data)
    return replace(base, newest=base.newest or storage.read_bytes(log_name(base.number)))


def _listing(storage: Storage, low: str) -> tuple[set[int], dict[int, int]]:
    """Versions of commits; versions of whole checkpoints of the classic names with their parts."""
    commits: set[int] = set()
    parts: dict[tuple[int, int], int] = {}
    for name in storage.names("_delta_log", low=low):
        if match := _COMMIT.fullmatch(name):
            commits.add(int(match[1]))
        elif match := _CHECKPOINT.fullmatch(name):
            key = int(match[1]), int(match[3] or 1)
            parts[key] = parts.get(key, 0) + 1
    # A checkpoint may be there both in parts and in one file.
    whole = {version: count for (version, count), seen in sorted(parts.items()) if seen >= count}
    return commits, whole


def _from_the_first(commits: Sequence[bytes]) -> Snapshot:
    actions = [action for commit in commits for action in _actions(commit)]
    metadata = next((action["metaData"] for action in actions if "metaData" in action), None)
    protocol = next((action["protocol"] for action in actions if "protocol" in action), None)
    if metadata is None or protocol is None:
        raise LogNotUnderstood("no commit has metadata, or none a protocol")
    return Snapshot(-1, -1, None, metadata, protocol).after(commits)


def _of_checkpoint(
    storage: Storage, location: Location, version: int, hint: Mapping[str, Any]
) -> Snapshot:
    """Return the state at a checkpoint of one file or of several parts. Raises
    `FileNotFoundError`."""
    count = int(hint.get("parts") or 1)
    stem = f"_delta_log/{version:020}.checkpoint"
    names = [f"{stem}.parquet"]
    if count > 1:
        names = [f"{stem}.{part:010}.{count:010}.parquet" for part in range(1, count + 1)]
    small = int(hint.get("sizeInBytes") or _WHOLE_BYTES) < _WHOLE_BYTES and count == 1
    metadata = protocol = None
    transactions = []
    for name in names:
        for table in _state_columns(storage, location, name, whole=small):
            metadata = _row(table, "metaData", "id") or metadata
            protocol = _row(table, "protocol", "minWriterVersion") or protocol
            if "txn" in table.column_names:
                transactions += table["txn"].chunks
    if metadata is None or protocol is None:
        raise LogNotUnderstood(f"checkpoint {version} has no metadata or no protocol")
    _require_known(protocol)
    metadata["configuration"] = dict(metadata.get("configuration") or ())
    return Snapshot(version, version, None, metadata, protocol, {}, tuple(transactions))


def _state_columns(
    storage: Storage, location: Location, name: str, *, whole: bool
) -> list[pa.Table]:
    """Columns of the state by row group."""
    import pyarrow.parquet as pq

    local = isinstance(storage, LocalStorage)
    source: Any
    if whole and not local:
        data = storage.read_bytes(name)
        if data is None:
            raise FileNotFoundError(name)
        source = io.BytesIO(data)
    else:
        source = location.open(name)
    with source, pq.ParquetFile(source, pre_buffer=not local) as opened:
        groups = [
            (at, _leaves(opened.metadata.row_group(at))) for at in range(opened.num_row_groups)
        ]
        return [
            opened.read_row_groups([at], columns=leaves, use_threads=False)
            for at, leaves in groups
            if leaves
        ]


def _leaves(group: Any) -> list[str]:
    """Columns of the state that have a value in a row group, by its null counts: most rows are of
    files, and to decode their nulls costs as much as all else."""
    columns = (group.column(at) for at in range(group.num_columns))
    return [column.path_in_schema for column in columns if _has_state(column)]


def _has_state(column: Any) -> bool:
    if not column.path_in_schema.startswith(_COLUMNS):
        return False
    stats = column.statistics
    return stats is None or not stats.has_null_count or stats.null_count < column.num_values


def _row(table: pa.Table, name: str, leaf: str) -> dict[str, Any] | None:
    """Return the only row whose `leaf` of the struct `name` is not null."""
    import pyarrow.compute as pc

    for rows in table[name].chunks if name in table.column_names else ():
        if rows.type.get_field_index(leaf) < 0:
            continue
        if places := pc.indices_nonzero(pc.struct_field(rows, leaf).is_valid()).to_pylist():
            return dict(rows[places[0]].as_py())
    return None


def _features(
    protocol: Mapping[str, Any], version: str, with_list: int, name: str
) -> list[str] | None:
    """Return the table features by name; None for versions that imply theirs."""
    features = protocol.get(name)
    return list(features or ()) if features or int(protocol[version]) >= with_list else None


def _require_known(protocol: Mapping[str, Any]) -> None:
    """Raise `LogNotUnderstood` for versions and features that are not known."""
    named = {*(protocol.get("writerFeatures") or ()), *(protocol.get("readerFeatures") or ())}
    versions = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    if named - _FEATURES or versions[0] > READER_VERSION or versions[1] > WRITER_VERSION:
        raise LogNotUnderstood(f"protocol {versions} with {', '.join(sorted(named - _FEATURES))}")


def _commits_from(storage: Storage, version: int) -> Iterator[bytes]:
    while (data := storage.read_bytes(log_name(version))) is not None:
        yield data
        version += 1


def _read_all(storage: Storage, versions: Sequence[int]) -> list[bytes]:
    """Return commits by version, read in parallel. Raises `LogNotUnderstood` if one is missing."""
    names = [log_name(version) for version in versions]
    if isinstance(storage, LocalStorage) or len(names) < 2:
        contents = [storage.read_bytes(name) for name in names]
    else:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            contents = list(pool.map(storage.read_bytes, names))
    commits = [data for data in contents if data is not None]
    if len(commits) < len(names):
        raise LogNotUnderstood("a commit went away")
    return commits


def _actions(commit: bytes) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit except those of files and ``commitInfo``."""
    for line in commit.splitlines():
        if line.strip() and not line.startswith(_OF_FILES):
            action = json.loads(line)
            if not isinstance(action, dict):
                raise LogNotUnderstood("an action is not an object")
            yield action

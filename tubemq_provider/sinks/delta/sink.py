"""Windows in a Delta table: one commit per window, guarded by its transaction.

The commit adds the window's files and two application transactions: ``tubemq/<cluster>/<topic>/
<group>/<window id>`` with version 1 says that the window is in the table; the same with ``/try``
carries the number of the try whose marker counts. Delta keeps both through log clean-up and
checkpoints.

What a window needs of the table is read from the log without the table's files
(`snapshot`), and the commit is put into the log under the number that follows the state in
which the window is not, only if no other commit has it (`log`). So a window costs the same
after 100 windows and after 10 000. Checkpoints and log clean-up are delta-rs's, at the table's
interval. A log with features or a layout that are not known here, or one that commits go into
through a lock, is read and written through delta-rs altogether, which loads all files. It refuses a
commit whose application transaction another commit has touched since the table was loaded, and
accepts a repeated one from a *fresh* handle, so the commit is always made from the handle that was
asked.

Readers need nothing: every Delta reader sees whole windows only. This module must not import
airflow or pyspark, and leaves the order of steps to `_table_sink`.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.files.durable import ensure_root, fsync_path
from tubemq_provider.files.locations import location_at
from tubemq_provider.files.staging import (
    FinalArea,
    StagingArea,
    Verify,
    checked_verify,
)
from tubemq_provider.sinks._column_names import case_problems
from tubemq_provider.sinks._evolution import Evolution, checked_evolution, target_schema
from tubemq_provider.sinks._storage import LocalStorage, Storage
from tubemq_provider.sinks._storage_for import storage_for
from tubemq_provider.sinks._table_sink import (
    CommitRefused,
    CommitUnclear,
    StagedWindow,
    TableChanged,
    TableSink,
    TableWindow,
    is_stub,
    stub_schema,
)
from tubemq_provider.sinks.delta.errors import explains_store_errors, gist, is_of_store
from tubemq_provider.sinks.delta.history import in_history
from tubemq_provider.sinks.delta.log import (
    DURABLE,
    LoadedTable,
    Shape,
    commit_of,
    grown,
    log_durable_before,
    log_name,
    shape_of,
    values_of,
)
from tubemq_provider.sinks.delta.rules import (
    column_misfits,
    map_type_problems,
    misfits,
    rules_of,
    type_problems,
)
from tubemq_provider.sinks.delta.snapshot import (
    LogNotUnderstood,
    Snapshot,
    checkpoint_hint,
    read_snapshot,
)
from tubemq_provider.sinks.delta.stats import stats_of
from tubemq_provider.windows.canonical import canonical_json
from tubemq_provider.windows.errors import ChangeOrderUnclear, SinkDamaged
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Marker, Staging

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

__all__ = ["DeltaSink", "application_id"]

_log = logging.getLogger(__name__)

_MAX_FORCED_COMMITS: Final = 100
_ESCAPE: Final = re.compile(r"\\|%[0-9A-Fa-f]{2}")
_FIRST_COMMIT: Final = f"_delta_log/{0:020}.json"
_INTERVAL: Final = 100
"""Commits between checkpoints, unless the table says another number: delta-rs's default."""
_LOCKS: Final = ("s3_locking_provider", "conditional_put", "copy_if_not_exists")
"""Options by which delta-rs commits otherwise than by creating the commit only if it is absent."""


def application_id(plan: WindowPlan) -> str:
    """Return the `txnAppId` of a window; its `txnVersion` is 1."""
    return f"tubemq/{plan.cluster}/{plan.topic}/{plan.group}/{plan.window_id}"


class DeltaSink(TableSink):
    """Exactly-once windows in the Delta table at `url` (a path, ``s3://…``, ``gs://…``, ``az://…``).

    The table is created from the first window's columns if there is none. An existing one must
    have their names and types and the same partition columns; its other columns must be nullable.
    NOT NULL is checked in the files; tables with rules that are not checked (`rules`) are
    refused.

    - `storage_options`: as for delta-rs; the same go to what is kept beside the table.
    - `staging_root`: a local directory where engines write before files are brought in. Default:
      inside the table's ``_tubemq`` for local tables, from where they are renamed; in object
      stores engines write into the table's ``windows/`` themselves.
    - `identity`: part of every window id; by default the address.
    - `verify`: how files are checked before they are committed (`files.staging.Verify`).
    - `partition_by`: the table's partition columns; ``day(x)`` and ``hour(x)`` are columns
      ``x_day`` and ``x_hour`` of it. `max_partitions`: the most that one task may make of a window.
    - `following`: how the table follows changes: staged rows are the last changes of keys, and
      delta-rs merges them in the commit that names the window. Files are staged on this machine.
    - `schema_evolution`: ``add_columns`` adds columns that the table has not, in the commit of the
      first files that have them; they may be null. Other changes are always refused.
    """

    kind = "delta"
    independent = True

    def __init__(
        self,
        url: str | Path,
        *,
        storage_options: Mapping[str, str] | None = None,
        staging_root: str | Path | None = None,
        identity: str | None = None,
        verify: Verify = "facts",
        partition_by: Sequence[str] = (),
        max_partitions: int | None = None,
        schema_evolution: Evolution = "refuse",
        following: Following | None = None,
    ) -> None:
        super().__init__(checked_verify(verify), following)
        self._by = PartitionBy.of(partition_by, "values", max_partitions)
        _delta()
        self._handle: DeltaTable | None = None
        self._snapshot: Snapshot | None = None
        self._known_commit: tuple[str, bytes | None] | None = None
        self._checked_rules: object = None
        self._staged: StagedWindow | None = None
        self._change: Shape | None = None
        self._committed = "", 0
        self._evolution = checked_evolution(schema_evolution)
        self._options = dict(storage_options or {})
        self._through_delta_rs = _has_lock(self._options) or following is not None
        self._storage = storage_for(str(url), self._options)
        self._location = location_at(self._storage.url, self._options)
        if isinstance(self._storage, LocalStorage) and _ESCAPE.search(self._storage.url):
            # deltalake would read the log of another table.
            raise ConfigError(
                f"{self._storage.url} has a backslash or an escape such as %20 in it, which "
                f"deltalake decodes: it would open another directory; choose another path",
                subject="sink",
            )
        self.identity = identity or f"delta:{self._storage.url}"
        self._local = self._staging_area(staging_root)
        remote = staging_root is None and not isinstance(self._storage, LocalStorage)
        remote = remote and following is None
        self._final = FinalArea(self._storage.url, self._options) if remote else None

    def __repr__(self) -> str:
        return f"DeltaSink({self._storage.url!r})"

    @property
    def storage(self) -> Storage:
        """The table's location."""
        return self._storage

    def missing(self) -> str | None:
        """See `Sink.missing`."""
        return self._storage.missing()

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """See `Sink.begin`. Raises `ConfigError` for a local table whose place cannot be there.
        What was known of a table that was here before is forgotten."""
        if isinstance(self._storage, LocalStorage):
            ensure_root(self._storage.root)
        try:
            self._refuse_replacement()
        except TableChanged:
            self._handle, self._snapshot, self._known_commit = None, None, None
            self._known_marker_store = None
        return super().begin(plan, attempt)

    def _staging_area(self, root: str | Path | None) -> StagingArea:
        if root is not None:
            return StagingArea(Path(root))
        if isinstance(self._storage, LocalStorage):
            return StagingArea(self._storage.root / "_tubemq" / "staging")
        return StagingArea.of_machine(self.identity)

    def _final_area(self) -> FinalArea | None:
        return self._final

    # -- the table --------------------------------------------------------------------------------

    def _table(self) -> LoadedTable | None:
        """Return the table as it is now, None if there is none. Only commits since the last call
        are read. Raises `TableChanged` if another table is where the known one was."""
        if self._handle is None and not self._through_delta_rs:
            try:
                return self._newest_snapshot()
            except LogNotUnderstood as exc:
                _log.debug("%s is loaded through delta-rs: %s", self._storage.url, exc)
                self._snapshot = None
        return self._loaded()

    def _newest_snapshot(self) -> Snapshot | None:
        previous = self._snapshot
        if previous is not None and (newer := previous.refreshed(self._storage)) is not None:
            self._snapshot = newer
            return newer
        snapshot = read_snapshot(self._storage, self._location)
        if previous is not None and (
            snapshot is None or snapshot.metadata().id != previous.metadata().id
        ):
            raise self._replaced()
        self._snapshot = snapshot
        if snapshot is not None:
            self._known_commit = log_name(snapshot.version()), snapshot.newest
        return snapshot

    def _loaded(self) -> DeltaTable | None:
        """Return the table as delta-rs loads it, with all its files."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        if self._handle is not None:
            with self._detecting_replacement():
                self._handle.update_incremental()
            return self._handle
        try:
            self._handle = self._opened()
        except TableNotFoundError:
            return None
        except DeltaError as exc:
            if is_of_store(exc):
                raise
            raise SinkDamaged(
                f"{self._storage.url}: its log cannot be read, so no reader can read the table; "
                f"bring back the file ({gist(exc)})"
            ) from None
        newest = log_name(self._handle.version())
        self._known_commit = newest, self._entry(newest)
        return self._handle

    def _opened(self) -> DeltaTable:
        table: DeltaTable
        table = _delta().DeltaTable(self._storage.url, storage_options=self._options)
        return table

    def _refuse_replacement(self) -> None:
        """Raise `TableChanged` if the table was dropped or replaced by another one. delta-rs
        continues from the commits that it knows, and would add the window to the new table."""
        if (
            self._known_commit is not None
            and self._entry(self._known_commit[0]) != self._known_commit[1]
        ):
            raise self._replaced()

    def _replaced(self) -> TableChanged:
        return TableChanged(
            f"Delta table {self._storage.url} was dropped or recreated while a window was "
            f"written; nothing of the window is in it, a retry uses the table that is there then"
        )

    @contextmanager
    def _detecting_replacement(self) -> Iterator[None]:
        """Raise `TableChanged` instead of errors that a replaced log causes."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except DeltaError:
            self._refuse_replacement()
            raise

    def _entry(self, name: str) -> bytes | None:
        """Return a commit of the log. No two are equal: each has a time and unique ids."""
        try:
            with self._location.open(name) as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None

    @explains_store_errors
    def _table_id(self) -> str | None:
        table = self._table()
        return None if table is None else str(table.metadata().id)

    @explains_store_errors
    def holds(self, marker: Marker) -> bool:
        """See `Sink.holds`: False for a window that `RESTORE` has taken away. Reads the commits
        since the window's own; what the log no longer has tells nothing."""
        table = self._table()
        if table is None:
            return False
        newest, window_id = int(table.version()), marker.plan.window_id
        try:
            return in_history(lambda version: self._entry(log_name(version)), newest, window_id)
        except ValueError as exc:
            raise SinkDamaged(
                f"{self._storage.url}: {exc}, so no reader can read the table; bring back the file"
            ) from exc

    @explains_store_errors
    def _prepare(self, staged: StagedWindow | None) -> None:
        self._refuse_replacement()
        table = self._table()
        if staged is not None:
            self._refuse_columns(table, staged.schema)
        if table is None:
            self._create(stub_schema() if staged is None else staged.schema)
            table = self._table()
        if table is None:
            raise SinkDamaged(f"{self._storage.url}: no Delta table, right after it was made")
        if staged is not None and self._by is None:
            table = self._with_columns(table, staged.schema)
        self._staged = staged
        self._check_files(table)

    def _check_files(self, table: LoadedTable) -> None:
        """Check that the staged files fit the table as it is, or as the commit will change it.
        Raises `ConfigError`."""
        self._change, staged = None, self._staged
        if staged is not None:
            self._refuse_columns(table, staged.schema)
            now = shape_of(table)
            shape = self._required_shape(now, staged.schema)
            if problems := misfits(table, shape, staged, self._by):
                raise ConfigError(problems, subject=f"Delta table {self._storage.url}")
            self._change = None if shape == now else shape
        self._checked_rules = rules_of(table)

    @explains_store_errors
    def check_columns(self, columns: pa.Schema) -> None:
        """See `Sink.check_columns`. A table that has no columns yet takes all."""
        if self._following is not None:
            columns = target_schema(columns, self._following)
        table = self._table()
        self._refuse_columns(table, columns)
        if table is None or is_stub([field.name for field in table.schema().fields]):
            return
        shape = self._required_shape(shape_of(table), columns)
        if problems := column_misfits(table, shape, columns, self._by):
            raise ConfigError(problems, subject=f"Delta table {self._storage.url}")

    def _refuse_columns(self, table: LoadedTable | None, schema: pa.Schema) -> None:
        there = () if table is None else [field.name for field in table.schema().fields]
        problems = [*case_problems(schema, there), *type_problems(schema)]
        if problems := problems or map_type_problems(table, schema):
            raise ConfigError(problems, subject=f"Delta table {self._storage.url}")

    def _required_shape(self, now: Shape, schema: pa.Schema) -> Shape:
        """Return the shape that the table needs for files of `schema`."""
        stub = is_stub([field.name for field in now.fields])
        unpartitioned = self._by is not None and stub and not now.partition_columns
        if unpartitioned and not (self._handle or self._opened()).file_uris():
            # Created for an empty window, before the types of partition columns were known.
            return grown(Shape((), self._partition_columns, first=True), schema)
        return grown(now, schema) if self._evolution == "add_columns" else now

    def _with_columns(self, table: LoadedTable, schema: pa.Schema) -> LoadedTable:
        """Add the columns of the first window with records to a table that was created for an empty
        one. Another try may add them at the same time."""
        from deltalake.exceptions import DeltaError

        if not is_stub([field.name for field in table.schema().fields]):
            return table
        fields = [f for f in _delta().Schema.from_arrow(schema).fields if f.name != "partition"]
        with suppress(DeltaError):
            if fields:
                (self._handle or self._opened()).alter.add_columns(fields)
        return self._table() or table

    def _create(self, schema: pa.Schema) -> None:
        """Make the table; another try may do so at the same time.

        Two that create a table through delta-rs can both succeed, the second with a commit that
        gives it another id, under which no marker of the first is found. So its first commit is
        made elsewhere and put here only if there is none.
        """
        deltalake = _delta()
        with tempfile.TemporaryDirectory(prefix="tubemq-delta-") as scratch:
            partition_columns = [name for name in self._partition_columns if name in schema.names]
            deltalake.DeltaTable.create(
                scratch,
                schema=deltalake.Schema.from_arrow(schema),
                partition_by=partition_columns
                if len(partition_columns) == len(self._partition_columns) < len(schema)
                else None,
            )
            first = (Path(scratch) / _FIRST_COMMIT).read_bytes()
        self._storage.create_file(_FIRST_COMMIT, first)

    @property
    def _partition_columns(self) -> tuple[str, ...]:
        return () if self._by is None else self._by.names

    @explains_store_errors
    def _confirmed(self, plan: WindowPlan) -> str | None:
        table = self._table()
        with self._detecting_replacement():
            token_of_table = None if table is None else _token_in(table, plan, self._storage.url)
        if token_of_table is not None and table is not None:
            # The commit of another try, which may have died before that was on disk, is among the
            # newest, or was forced before.
            version, (token, before) = table.version(), self._committed
            first = before + 1 if token == token_of_table else max(0, version - _MAX_FORCED_COMMITS)
            self._force_to_disk(first, version)
        return token_of_table

    @explains_store_errors
    def _commit(self, window: TableWindow) -> None:
        """Commit from the state that was read last: a later commit makes it fail, with delta-rs
        one that has the window or other columns."""
        table: LoadedTable | None = self._handle or self._snapshot
        if table is None:
            raise SinkDamaged(f"{self._storage.url}: the table is gone")
        self._refuse_replacement()
        if _token_in(table, window.plan, self._storage.url) is not None:
            raise CommitRefused(f"window {window.plan.window_id} is in the table")
        if (
            window.files
            and rules_of(table) != self._checked_rules
            and not self._passes_recheck(table)
        ):
            raise TableChanged(
                f"Delta table {self._storage.url}: its columns or properties changed while window "
                f"{window.plan.window_id} was written; nothing of it is in the table, a retry "
                f"judges the table as it is then"
            )
        if self._changes:
            self._merge(window)
            return
        change = self._change if window.files else None
        if change is not None or self._handle is None:
            self._put_commit(table, change, window)
        else:
            self._commit_through(self._handle, window)

    def _commit_through(self, table: DeltaTable, window: TableWindow) -> None:
        """Commit through delta-rs, for a table that only delta-rs understands."""
        from deltalake.exceptions import CommitFailedError

        added = [_add_action(file) for file in window.files]
        before = self._force_earlier(table.version())
        properties, schema = _properties(window, before), table.schema()
        try:
            table.create_write_transaction(added, "append", schema, commit_properties=properties)
        except CommitFailedError as exc:
            raise CommitRefused(f"{self._storage.url}: {gist(exc)}") from None
        except Exception as exc:  # noqa: BLE001 (reported by kind, and a retry checks first)
            # Hooks that run after the commit raise what the commit raises.
            raise CommitUnclear(f"{self._storage.url}: {gist(exc)}") from None
        self._committed = window.token, before

    def _merge(self, window: TableWindow) -> None:
        """Merge the staged changes in the window's commit."""
        from deltalake.exceptions import CommitFailedError

        from tubemq_provider.sinks.delta.merging import merge

        table = self._handle
        if self._following is None or table is None:
            raise SinkDamaged(f"{self._storage.url}: no table to merge changes into")
        if self._change is not None:
            raise ConfigError(
                "the table has not all columns of the changes; add them to it",
                subject=f"Delta table {self._storage.url}",
            )
        before = self._force_earlier(table.version())
        properties = _properties(window, before)
        try:
            merge(table, self._current_changes(), self._following, properties)
        except ChangeOrderUnclear:
            raise
        except CommitFailedError as exc:
            raise CommitRefused(f"{self._storage.url}: {gist(exc)}") from None
        except Exception as exc:  # noqa: BLE001 (reported by kind, and a retry checks first)
            raise CommitUnclear(f"{self._storage.url}: {gist(exc)}") from None
        if table.version() == before:
            # delta-rs commits nothing for a merge without an effect.
            self._commit_through(table, window)
        self._committed = window.token, before

    def _passes_recheck(self, table: LoadedTable) -> bool:
        """Check the files again where columns may be added: another window may have added some.
        False where that would mean to read files again. Raises `ConfigError`."""
        if self._evolution == "refuse":
            return False
        try:
            self._check_files(table)
        except OSError:
            return False
        return True

    def _put_commit(self, table: LoadedTable, shape: Shape | None, window: TableWindow) -> None:
        """Commit under the next number of the log, with new columns if `shape` has any. The commit
        is refused if another one has the number, and the table is checked again first."""
        from deltalake.exceptions import DeltaError

        before = self._force_earlier(table.version())
        metadata = _metadata_of(window, before)
        try:
            data = commit_of(table, shape, window.files, _transactions(window), metadata)
        except DeltaError as exc:
            # Nothing was sent, and what the try brought can be withdrawn.
            raise ConfigError(str(exc), subject=f"Delta table {self._storage.url}") from exc
        try:
            done = self._storage.create_file(log_name(table.version() + 1), data)
        except Exception as exc:
            raise CommitUnclear(f"{self._storage.url}: {type(exc).__name__}") from exc
        if not done:
            raise CommitRefused(f"{self._storage.url}: another commit came first")
        self._committed = window.token, before
        if self._snapshot is not None and self._handle is None:
            self._snapshot = self._snapshot.after([data])
            self._checkpoint_if_due(self._snapshot)

    def _checkpoint_if_due(self, snapshot: Snapshot) -> None:
        """Have delta-rs write a checkpoint and clean the log up, as it does after its own commits,
        when `delta.checkpointInterval` commits were made since the last one.

        It loads all files for that: once per interval, the cost of a window grows with history.
        The window is committed already, so an error only delays the checkpoint to the next one.
        """
        configuration = snapshot.metadata().configuration
        text = configuration.get("delta.checkpointInterval", "")
        interval = int(text) if text.isdecimal() and int(text) else _INTERVAL
        if snapshot.version() - snapshot.checkpoint < interval:
            return
        try:
            newest = int((checkpoint_hint(self._storage) or {}).get("version", -1))
            if snapshot.version() - newest < interval:  # another writer's
                return
            table = self._opened()
            table.create_checkpoint()
            if configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "true":
                table.cleanup_metadata()
        except Exception as exc:  # noqa: BLE001 (of many kinds, and the window is in the table)
            _log.warning("%s: no checkpoint was written: %s", self._storage.url, gist(exc))

    # -- on disk ----------------------------------------------------------------------------------

    def _force_earlier(self, version: int) -> int:
        """Force the log up to `version` to disk: a commit is worth nothing if one before it is
        lost. The newest window's commit says up to where the log was on disk before it, so as a
        rule that is one file. Returns `version`."""
        if isinstance(self._storage, LocalStorage):
            first = max(0, version - _MAX_FORCED_COMMITS)
            for number in range(version, first, -1):
                durable = log_durable_before(self._entry(log_name(number)))
                if durable is not None:
                    first = max(first, min(durable, version) + 1)
                    break
            self._force_to_disk(first, version)
        return version

    def _force_to_disk(self, first: int, last: int) -> None:
        """Force log files to disk: delta-rs leaves that to the operating system, and the result
        "written" promises it."""
        if not isinstance(self._storage, LocalStorage):
            return
        for number in range(first, last + 1):
            with suppress(FileNotFoundError):
                fsync_path(self._storage.root / log_name(number))
        fsync_path(self._storage.root / "_delta_log")


def _has_lock(options: Mapping[str, str]) -> bool:
    """Return True if delta-rs commits through a lock or by another method of the store: all writers
    have to use it then, or one would overwrite another's commit."""
    names = [name.lower().removeprefix("aws_") for name in (*options, *os.environ)]
    return any(name in _LOCKS for name in names)


def _delta() -> Any:
    try:
        import deltalake
    except ImportError as exc:
        raise require_extra("lake", exc) from exc
    return deltalake


def _token_in(table: LoadedTable, plan: WindowPlan, url: str) -> str | None:
    """Return the token of the try that added the window to the table."""
    name = application_id(plan)
    if table.transaction_version(name) is None:
        return None
    number = table.transaction_version(f"{name}/try")
    if number is None:
        raise SinkDamaged(f"{url}: {name} is in the table without its try")
    return f"{number:x}"


def _transactions(window: TableWindow) -> dict[str, int]:
    name = application_id(window.plan)
    return {name: 1, f"{name}/try": int(window.token, 16)}


def _metadata_of(window: TableWindow, durable: int) -> dict[str, str]:
    """For people, and up to which version the log was on disk before this commit."""
    return {"tubemq": canonical_json(window.document), DURABLE: str(durable)}


def _properties(window: TableWindow, durable: int) -> Any:
    deltalake = _delta()
    transactions = _transactions(window)
    return deltalake.CommitProperties(
        custom_metadata=_metadata_of(window, durable),
        app_transactions=[deltalake.Transaction(name, n) for name, n in transactions.items()],
    )


def _add_action(file: FileFact) -> Any:
    from deltalake.transaction import AddAction

    now_ms = time.time_ns() // 1_000_000
    return AddAction(file.path, file.size, values_of(file), now_ms, True, stats_of(file))  # noqa: FBT003 (data change)

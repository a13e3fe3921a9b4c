"""Windows in an Iceberg table, through pyiceberg: one snapshot per window, by compare-and-swap.

The snapshot carries the window id, the plan's hash and the token of the try. pyiceberg answers a
commit that met another one by rebasing and committing again, so two tries that both looked and
found nothing would both succeed (measured with 0.12; that is its default of four retries). So
the sink turns the retries off, on its own handle only, and commits with Iceberg's requirement that
the branch is still at the snapshot that it has read. The catalog checks that in the same step that
swaps the metadata; if it fails, nothing is in the table and the try looks again. No lock is held,
so none can be left behind.

It rests on a catalog whose commit is a real compare-and-swap: SQL, REST, Glue, Hive with locks;
not on copies of a catalog that are merged later. A rollback takes windows away (see `holds`);
expiring a snapshot that no run has confirmed yet (`_marker_store`) leaves the window's files, by
which it is found as long as nothing has merged them. This module must not import airflow
or pyspark, and leaves the order of steps to `_table_sink`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError, TubeMQError, require_extra
from tubemq_provider.files.durable import fsync_path
from tubemq_provider.files.objects import StoreFailed
from tubemq_provider.files.staging import FinalArea, StagingArea, Verify, checked_verify
from tubemq_provider.sinks._evolution import Evolution, checked_evolution, target_schema
from tubemq_provider.sinks._storage import LocalStorage, Storage, StorageBook
from tubemq_provider.sinks._storage_for import storage_for
from tubemq_provider.sinks._table_sink import (
    CommitRefused,
    CommitUnclear,
    StagedWindow,
    TableChanged,
    TableSink,
    TableWindow,
    data_of,
    is_stub,
    stub_schema,
)
from tubemq_provider.sinks._unsigned import unsigned_problems
from tubemq_provider.sinks.iceberg.columns import (
    field_ids_of,
    id_problem,
    require_columns,
    set_columns,
)
from tubemq_provider.sinks.iceberg.files import data_file_of
from tubemq_provider.sinks.iceberg.history import (
    NEW_TABLE,
    clear_up,
    outdated,
    remove_snapshots,
)
from tubemq_provider.sinks.iceberg.merging import Merged, merge
from tubemq_provider.sinks.iceberg.rules import (
    alike_problems,
    column_misfits,
    columns_of,
    misfits,
    mismatches,
    new_column_problems,
    type_problems,
)
from tubemq_provider.sinks.iceberg.spec import set_spec
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.plan import WindowPlan, cursor_window_of
from tubemq_provider.windows.protocols import BoundaryBook, Marker, Staging

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["IcebergSink"]

_WINDOW: Final = "tubemq.window"
_HASH: Final = "tubemq.hash"
_TRY: Final = "tubemq.try"
_TOKEN_ENDS: Final = re.compile("[/-]")
"""Separator after the token in the name of a file that was written in place, or brought in."""
_MERGES: Final = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.manifest.target-size-bytes": str(256 * 1024),
}
"""Defaults of the table's properties: a window reads and writes one list of manifests."""
_NAME_MAPPING: Final = "schema.name-mapping.default"
_MERGED: Final = "merged"
_ONCE: Final = {"commit.retry.num-retries": "0"}
_STORAGE: Final = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
}


class IcebergSink(TableSink):
    """Exactly-once windows in the table `identifier` (``namespace.table``) of a catalog.

    Table and namespace are made from the first window's columns if there are none.

    - `catalog`: a pyiceberg catalog, or its name in pyiceberg's configuration.
    - `catalog_properties`: with a name; as for pyiceberg's `load_catalog`.
    - `storage_options`: for what is kept beside the table in an object store; by default those
      that the catalog gives for S3.
    - `staging_root`: a local directory where engines write before files are brought in; by default
      they write into the ``windows/`` of the table's location, for which the table is made when
      the first window begins.
    - `identity`: part of every window id; by default catalog name and identifier.
    - `verify`: how files are checked before they are committed (`files.staging.Verify`).
    - `partition_by`: the table's partition spec: columns, ``day(…)`` and ``hour(…)``;
      `max_partitions`: the most that one task may make of a window.
    - `schema_evolution`: ``add_columns`` adds columns that the table has not, in the commit of the
      first files that have them; they may be null. Other changes are always refused.
    - `following`: how the table follows changes: staged rows are the last changes of keys, and are
      merged in the snapshot that names the window (`sinks.iceberg.merging`), whose new files are
      in ``merged/`` of the table's location. Engines write on this machine.
    """

    kind = "iceberg"

    def __init__(
        self,
        identifier: str,
        *,
        catalog: Catalog | str = "default",
        catalog_properties: Mapping[str, str] | None = None,
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
        self._by = PartitionBy.of(partition_by, "columns", max_partitions)
        if "." not in identifier.strip("."):
            raise ConfigError(f"{identifier!r} is not <namespace>.<table>", subject="Iceberg table")
        self._catalog = _catalog(catalog, catalog_properties or {})
        self._identifier = identifier
        self._storage_options = storage_options
        self._known_storage: tuple[Storage, FinalArea] | None = None
        self._known_id = ""
        self._loaded: Table | None = None
        self._judged: Table | None = None
        self._columns = columns_of(None, ())
        self._evolution = checked_evolution(schema_evolution)
        self._schema: pa.Schema | None = None
        self.identity = identity or f"iceberg:{self._catalog.name}/{identifier}"
        self._stages_locally = staging_root is not None or following is not None
        self._local = (
            StagingArea(Path(staging_root))
            if staging_root
            else StagingArea.of_machine(self.identity)
        )

    def __repr__(self) -> str:
        return f"IcebergSink({self._identifier!r}, catalog={self._catalog.name!r})"

    @property
    def storage(self) -> Storage:
        """The table's location."""
        return self._located()[0]

    def _located(self) -> tuple[Storage, FinalArea]:
        if self._known_storage is None:
            table = self._loaded or self._existing_table()
            options = self._storage_options
            if options is None:
                properties = {**table.io.properties}
                options = {
                    ours: str(properties[theirs])
                    for theirs, ours in _STORAGE.items()
                    if theirs in properties
                }
                if options.get("endpoint", "").startswith("http://"):
                    options["allow_http"] = "true"
            storage = storage_for(table.location(), options)
            self._known_storage = storage, FinalArea(storage.url, options)
            self._known_id = str(table.metadata.table_uuid)
        return self._known_storage

    def _refuse_another(self, table: Table | None) -> None:
        """Raise `TableChanged` if the table is not the one that files and markers belong to: a
        table with entries of files that are elsewhere cannot be read."""
        table_id = None if table is None else str(table.metadata.table_uuid)
        if self._known_id and table_id != self._known_id:
            raise TableChanged(
                f"Iceberg table {self._identifier} was dropped, renamed or recreated while a "
                f"window was written; nothing of the window is in it, a retry uses the table "
                f"that is there then"
            )

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """See `Sink.begin`. What was known of a table that was here before is forgotten."""
        table = self._table()
        try:
            if self._known_id:
                self._refuse_another(table)
        except TableChanged:
            self._known_storage, self._known_marker_store, self._known_id = None, None, ""
        begun = super().begin(plan, attempt)
        if self._following is not None:
            return begun
        return replace(begun, field_ids=field_ids_of(self._loaded))

    def _final_area(self) -> FinalArea | None:
        if self._stages_locally:
            return None
        if self._known_storage is None:
            self._prepare(None)
        return self._located()[1]

    @property
    def boundaries(self) -> BoundaryBook | None:
        """Boundaries fixed beside the table, which is made for them if there is none."""
        self._prepare(None)
        return StorageBook(self.storage, "_tubemq/boundaries")

    # -- the table --------------------------------------------------------------------------------

    def _table(self) -> Table | None:
        """Return the current table. Kept in `_loaded` for callers that accept an older state."""
        from pyiceberg.exceptions import NoSuchTableError

        self._loaded = None
        try:
            with self._readable():
                self._loaded = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None
        except FileNotFoundError as exc:
            raise SinkDamaged(
                f"Iceberg table {self._identifier}: its catalog names metadata that is gone. The "
                f"catalog may be an older copy than the table's files, or they were removed; bring "
                f"back both as they were at one time ({exc})"
            ) from exc
        return self._loaded

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise `SinkDamaged` for metadata or manifests that cannot be read, and `StoreFailed` for
        a catalog that fails."""
        from pyiceberg.exceptions import NoSuchTableError, ValidationError

        try:
            yield
        except (NoSuchTableError, OSError, TubeMQError):
            raise
        except (
            ValidationError, ValueError, EOFError, TypeError, LookupError, SystemError,
        ) as exc:  # fmt: skip
            raise self._damaged(exc) from exc
        except Exception as exc:
            raise StoreFailed(
                f"Iceberg table {self._identifier}: its catalog fails ({_first_line(exc)})"
            ) from exc

    def _damaged(self, exc: Exception) -> SinkDamaged:
        return SinkDamaged(
            f"Iceberg table {self._identifier}: its metadata cannot be read, so no reader can read "
            f"the table; bring back the file ({_first_line(exc)})"
        )

    def _existing_table(self) -> Table:
        table = self._table()
        if table is None:
            raise SinkDamaged(f"Iceberg table {self._identifier} is gone")
        return table

    def _table_id(self) -> str | None:
        table = self._loaded or self._table()
        return None if table is None else str(table.metadata.table_uuid)

    def holds(self, marker: Marker) -> bool:
        """See `Sink.holds`: False for a window whose snapshot does not lead to the table's
        present one, as after a rollback or in an older copy of the catalog. Where snapshots have
        expired, the window's files tell, unless something else than this sink has changed files:
        then nothing does."""
        table = self._table()
        if table is None:
            return False
        with self._readable():
            return _holds(table, marker)

    def _prepare(self, staged: StagedWindow | None) -> None:
        table = (self._loaded or self._table()) if staged is None else self._table()
        self._refuse_another(table)
        if staged is not None:
            self._refuse_columns(table, staged.schema)
        if table is None:
            self._create()
            table = self._existing_table()
        if staged is None:
            self._columns, self._schema = columns_of(None, ()), None
            return
        if is_stub(table.schema().column_names) and not is_stub(staged.schema.names):
            self._add_first_columns(table, staged.schema)
            table = self._existing_table()
        self._columns = columns_of(staged.schema, staged.files)
        self._schema = staged.schema
        self._judged = table

    def _create(self) -> None:
        """Make namespace and table; another try may do so at the same time. The table gets its
        columns in a second step: catalogs number those of a table that they make themselves."""
        catalog, name = self._catalog, self._identifier
        namespace = catalog.namespace_from(name)
        try:
            _make_once(
                lambda: catalog.namespace_exists(namespace),
                lambda: catalog.create_namespace(namespace),
            )
            _make_once(
                lambda: catalog.table_exists(name),
                lambda: catalog.create_table(name, schema=stub_schema(), properties=NEW_TABLE),
            )
        except OSError as exc:
            raise StoreFailed(f"Iceberg table {name} cannot be made: {exc}") from exc

    def _add_first_columns(self, table: Table, schema: pa.Schema) -> None:
        """Add the columns to a table that was created before they were known. Another try may add
        them at the same time."""
        from pyiceberg.exceptions import CommitFailedException

        with suppress(CommitFailedException), table.transaction() as change:
            set_columns(change, schema, [*schema], schema.names)
            if self._by is not None and not table.spec().fields:
                set_spec(change, self._by)

    def _confirmed(self, plan: WindowPlan) -> str | None:
        table = self._judged or self._existing_table()
        self._judged = None
        self._loaded = table
        snapshot = _snapshot_of(table, plan.window_id)
        if snapshot is None:
            return None
        self._force_to_disk(table, snapshot)
        return str(_properties_of(snapshot)[_TRY])

    def _commit(self, window: TableWindow) -> None:
        """Commit from the state that was read last. It may be outdated: the catalog refuses the
        commit if the branch, the columns or the partition spec are others by now."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        table = self._loaded or self._existing_table()
        self._refuse_another(table)
        if _snapshot_of(table, window.plan.window_id) is not None:
            raise CommitRefused(f"window {window.plan.window_id} is in the table")
        if problems := self._misfits(table, window):
            raise ConfigError(problems, subject=f"Iceberg table {self._identifier}")
        if window.files and self._schema is not None:
            self._refuse_other_ids(table, self._schema)
        # Only this handle's view: the properties that the table has stay as they are for others.
        once = {**_MERGES, **table.metadata.properties, **_ONCE}
        if self._changes:
            once["write.data.path"] = self._merged_path(table, window.plan.window_id, window.token)
        table.metadata = table.metadata.model_copy(update={"properties": once})
        change = table.transaction()
        require_columns(change)
        old = outdated(table.metadata, _WINDOW, self._is_confirmed)
        merged = self._put_files(change, table, window)
        remove_snapshots(change, old)
        self._loaded = None
        try:
            change.commit_transaction()
        except (CommitFailedException, ValidationException) as exc:
            if merged is not None:
                merged.discard()
            raise CommitRefused(f"{self._identifier}: {exc}") from exc
        except Exception as exc:
            # Sent: a garbled or lost answer says nothing about what the catalog did.
            raise CommitUnclear(f"{self._identifier}: {type(exc).__name__}: {exc}") from exc
        self._judged = table
        clear_up(table, old)

    def _put_files(self, change: Transaction, table: Table, window: TableWindow) -> Merged | None:
        """Write the manifests of the window's snapshot, of a table that follows changes also the
        files of its new state. Nothing is sent to the catalog."""
        properties = {
            _WINDOW: window.plan.window_id,
            _HASH: window.plan.hash,
            _TRY: window.token,
        }
        try:
            if self._changes and self._following is not None:
                merged = merge(change, table, self._current_changes(), self._following)
                _overwrite(change, merged, properties)
                return merged
            if window.files and self._evolution == "add_columns":
                self._add_columns(change)
            _append(change, table, window, properties)
        except ValueError as exc:
            # Files are judged and manifests written; the catalog has not been asked for anything.
            raise ConfigError(str(exc), subject=f"Iceberg table {self._identifier}") from exc
        except (EOFError, SystemError) as exc:  # of pyiceberg's reader
            raise self._damaged(exc) from exc
        except OSError as exc:
            raise StoreFailed(f"Iceberg table {self._identifier}: {exc}; nothing was sent") from exc
        return None

    def _merged_path(self, table: Table, window_id: str, token: str = "") -> str:
        """Return where the files of a merge are, which later merges of other windows replace."""
        return f"{table.location().rstrip('/')}/{_MERGED}/{window_id}/{token}".rstrip("/")

    def tidy(self, window_id: str) -> None:
        """See `Sink.tidy`. Removes also what merges of other tries wrote."""
        super().tidy(window_id)
        document = self._document(window_id)
        if self._following is None or document is None:
            return
        folder = f"{_MERGED}/{window_id}"
        own = f"{folder}/{document.get('token')}/"
        there = self.storage.names(folder, at_work=True)
        self.storage.remove(name for name in there if not name.startswith(own))

    def _refuse_other_ids(self, table: Table, schema: pa.Schema) -> None:
        if problem := id_problem(table.metadata, schema):
            raise TableChanged(
                f"Iceberg table {self._identifier}: its columns changed while the window was "
                f"written ({problem}); nothing of the window is in it, a retry uses the table "
                f"as it is then"
            )

    def _is_confirmed(self, snapshot: Snapshot) -> bool:
        """Return True if the marker of a snapshot's window is confirmed without the snapshot."""
        window_id = _properties_of(snapshot).get(_WINDOW, "")
        return self._existing_marker_store().confirmed(window_id) is not None

    def check_columns(self, columns: pa.Schema) -> None:
        """See `Sink.check_columns`. A table that has no columns yet takes all."""
        if self._following is not None:
            columns = target_schema(columns, self._following)
        table = self._loaded or self._table()
        self._refuse_columns(table, columns)
        if table is None or is_stub(table.schema().column_names):
            return
        if problems := column_misfits(table, columns, self._by, self._evolution):
            raise ConfigError(problems, subject=f"Iceberg table {self._identifier}")

    def _refuse_columns(self, table: Table | None, schema: pa.Schema) -> None:
        if problems := [*alike_problems(table, schema), *type_problems(table, schema)]:
            raise ConfigError(problems, subject=f"Iceberg table {self._identifier}")

    def _misfits(self, table: Table, window: TableWindow) -> list[str]:
        if not window.files:
            return []
        problems = misfits(table, self._columns, self._by)
        if self._schema is not None:
            problems += mismatches(table, self._schema)
        problems += unsigned_problems(window.files, lambda bits: max(bits, 32))
        if self._schema is not None:
            problems += alike_problems(table, self._schema)
            problems += new_column_problems(table, self._schema, self._evolution)
        return problems

    def _add_columns(self, change: Transaction) -> None:
        """Add columns that the table lacks, in the same commit; the catalog refuses it if another
        writer has changed the columns since."""
        names = {field.name for field in change.table_metadata.schema().fields}
        fields = [] if self._schema is None else list(self._schema)
        if more := [field for field in fields if field.name not in names]:
            set_columns(change, self._schema, more)

    def _named_by_files(self, window_id: str, tokens: Collection[str]) -> str | None:
        """Read the manifests of the current snapshot, for a commit whose own snapshot expired."""
        table = self._existing_table()
        root = f"{table.location().rstrip('/')}/{data_of(window_id)}/"
        for path in _paths(table):
            if path.startswith(root):
                token = _TOKEN_ENDS.split(path.removeprefix(root))[0]
                if token in tokens:
                    return token
        return None

    def _force_to_disk(self, table: Table, snapshot: Snapshot) -> None:
        """Force metadata to disk: pyiceberg leaves that to the operating system, and the result
        "written" promises it."""
        if not isinstance(self.storage, LocalStorage):
            return
        mine = [
            manifest.manifest_path
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
        ]
        for name in (table.metadata_location, snapshot.manifest_list, *mine):
            path = Path(name.removeprefix("file://"))
            with suppress(FileNotFoundError):
                fsync_path(path)
                fsync_path(path.parent)


def _append(
    change: Transaction, table: Table, window: TableWindow, properties: Mapping[str, str]
) -> None:
    """Add the window's files to `change` by their facts, as `add_files` would by their footers.
    No other try has these names, so no manifest is searched for them. Raises
    `ValueError` for files that do not fit."""
    if table.name_mapping() is None:
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({_NAME_MAPPING: mapping})
    root = table.location().rstrip("/")
    update = change.update_snapshot(snapshot_properties=dict(properties))
    with update.merge_append() as append:
        for file in window.files:
            append.append_data_file(
                data_file_of(change.table_metadata, f"{root}/{file.path}", file)
            )


def _overwrite(change: Transaction, merged: Merged, properties: Mapping[str, str]) -> None:
    """Replace files by those of a merge, in one snapshot."""
    update = change.update_snapshot(snapshot_properties=dict(properties))
    with update.overwrite() if merged.removed else update.merge_append() as snapshot:
        for file in merged.removed:
            snapshot.delete_data_file(file)
        for file in merged.added:
            snapshot.append_data_file(file)


def _catalog(catalog: Catalog | str, properties: Mapping[str, str]) -> Catalog:
    if not isinstance(catalog, str):
        return catalog
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as exc:
        raise require_extra("lake", exc) from exc
    try:
        return load_catalog(catalog, **properties)
    except ValueError as exc:
        raise ConfigError(
            f"nothing says how catalog {catalog!r} is reached ({type(exc).__name__}: "
            f"{str(exc).partition(',')[0]}). In a Dag pass sink_conn_id= with a connection whose "
            f"extra has the catalog's properties, such as type and uri; in Python "
            f"catalog_properties; or name it in pyiceberg's configuration",
            subject="Iceberg catalog",
        ) from exc


def _make_once(exists: Callable[[], bool], make: Callable[[], object]) -> None:
    """Make what is not there. It matters neither which writer made it first, nor with what error a
    catalog tells the second: SQL catalogs pass on whatever their database says."""
    if exists():
        return
    try:
        make()
    except Exception:
        if not exists():
            raise


def _snapshot_of(table: Table, window_id: str) -> Snapshot | None:
    """Return the snapshot that added a window, newest first."""
    for snapshot in reversed(table.metadata.snapshots):
        properties = _properties_of(snapshot)
        if properties.get(_WINDOW) == window_id and _TRY in properties:
            return snapshot
    return None


def _holds(table: Table, marker: Marker) -> bool:
    is_ancestor = _in_history(table, marker.plan)
    if is_ancestor is not None:
        return is_ancestor
    if not marker.files:
        return not _has_older(table, marker.plan)
    root = f"{table.location().rstrip('/')}/"
    own_files, others = {f"{root}{name}" for name in marker.files}, False
    for path in _paths(table):
        if path in own_files:
            return True
        others = others or not path.startswith(f"{root}windows/")
    rewritten = others or not all(map(_is_append, table.metadata.snapshots))
    return rewritten and not _has_older(table, marker.plan)


def _in_history(table: Table, plan: WindowPlan) -> bool | None:
    """Return True if a window's snapshot is an ancestor of the current one; None if snapshots
    between have expired, or its own. pyiceberg lets a snapshot forget a parent that expires."""
    lineage = list(_lineage(table))
    if not lineage:
        return False if not table.metadata.snapshots else None
    if any(_properties_of(snapshot).get(_WINDOW) == plan.window_id for snapshot in lineage):
        return True
    first = lineage[-1].sequence_number or 0
    own = _snapshot_of(table, plan.window_id)
    if first == 1 or (own is not None and (own.sequence_number or 0) > first):
        return False
    return None


def _lineage(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and its ancestors, as far as the table still knows them."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)


def _has_older(table: Table, plan: WindowPlan) -> bool:
    """Return True if the table's history has an older window of the same group, and not the window
    itself: snapshots expire oldest first."""
    if _snapshot_of(table, plan.window_id) is not None:
        return False
    windows = (
        cursor_window_of(_properties_of(snapshot).get(_WINDOW, "")) for snapshot in _lineage(table)
    )
    return any(
        window is not None and window[1] == plan.scope_hash and window[0] < (plan.seq or 0)
        for window in windows
    )


def _is_append(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation.value == "append"


def _paths(table: Table) -> Iterator[str]:
    """Yield data files of the current snapshot."""
    snapshot = table.current_snapshot()
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            yield str(entry.data_file.file_path)


def _properties_of(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _first_line(exc: Exception) -> str:
    return f"{type(exc).__name__}: {str(exc).partition(chr(10))[0]}"

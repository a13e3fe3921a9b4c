"""Base of Delta and Iceberg sinks: files first, then one commit that names a token.

The files of a try have names that no other try uses: engines write them there, or the try moves
them in from a local directory. It stages its marker document next to the table (`_marker_store`),
and commits *from the very state in which it found the window missing*. If the table has changed
meanwhile, the commit is refused, and the try reads the table again. So one commit carries the
window, however many tries there are, and the table decides which.

A crash leaves files and documents that no commit names; readers of the table never see them and
`tidy` removes them. Subclasses know their table format and nothing of this order. This module must
not import airflow, pyspark, deltalake or pyiceberg.
"""

from __future__ import annotations

import re
import secrets
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.footers import arrow_schema_of
from tubemq_provider.files.locations import Location, location_of
from tubemq_provider.files.staging import FinalArea, StagingArea, Verify, verified_files
from tubemq_provider.sinks._deleted_keys import DeletedKeys
from tubemq_provider.sinks._evolution import target_schema
from tubemq_provider.sinks._marker_document import marker_document, read_marker
from tubemq_provider.sinks._marker_store import MarkerStore
from tubemq_provider.sinks._storage import Storage, StorageBook
from tubemq_provider.windows.errors import (
    ChangeOrderUnclear,
    CountMismatch,
    SinkDamaged,
    WindowError,
)
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import (
    BoundaryBook,
    Document,
    IngestCounts,
    Marker,
    Progress,
    Publication,
    Sink,
    Staging,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CommitRefused",
    "CommitUnclear",
    "StagedWindow",
    "TableChanged",
    "TableSink",
    "TableWindow",
    "data_of",
    "is_stub",
    "stub_schema",
    "token_of",
]

_COMMIT_ATTEMPTS: Final = 50
"""Attempts of a commit that meets commits of others."""


class CommitRefused(WindowError):
    """The table changed after it was read; nothing of the commit is in it."""

    retriable = True


class TableChanged(WindowError):
    """The table's columns or rules changed after the files were checked against them. Nothing was
    sent, and the files of the try are removed."""

    retriable = True


class CommitUnclear(WindowError):
    """A commit was sent and its answer was lost or is unreadable: it may be in the table, or get
    there later. Nothing of it was removed; a retry checks the table first."""

    retriable = True


@dataclass(frozen=True, slots=True)
class StagedWindow:
    """The files of a window before they are committed: what they hold, the columns that all have,
    and where they can be opened under their names."""

    files: Sequence[FileFact]
    schema: pa.Schema
    location: Location


@dataclass(frozen=True, slots=True)
class TableWindow:
    """A window on its way into a table: its files are in place under names relative to the table's
    location, its document is staged."""

    plan: WindowPlan
    token: str
    document: Document
    files: Sequence[FileFact]


class TableSink(Sink):
    """Exactly-once windows in a table. See `Sink`; subclasses give the table."""

    _local: StagingArea
    """Local staging area: of tries that stage locally, and of earlier releases."""
    _by: PartitionBy | None
    """Partitioning of the table, None if it was not specified."""

    def __init__(self, verify: Verify, following: Following | None = None) -> None:
        self._known_marker_store: MarkerStore | None = None
        self._verify = verify
        self._following = following
        self._changes: list[Path] = []

    # -- what a table format has to say -----------------------------------------------------------

    @property
    @abstractmethod
    def storage(self) -> Storage:
        """The table's location."""

    @abstractmethod
    def _table_id(self) -> str | None:
        """Return an id that differs from that of a table that was here before; None without a
        table."""

    @abstractmethod
    def _prepare(self, staged: StagedWindow | None) -> None:
        """Make the table for `staged` if there is none, else judge whether its files fit.

        Raises `ConfigError` if they do not. None: the window is empty, or comes later.
        """

    @abstractmethod
    def _final_area(self) -> FinalArea | None:
        """Return the area in which engines write files in place; None if tries stage locally."""

    @abstractmethod
    def _confirmed(self, plan: WindowPlan) -> str | None:
        """Return the token under which the table has the plan's window; None if it does not."""

    @abstractmethod
    def _commit(self, window: TableWindow) -> None:
        """Add the window's files in one commit that names its token, from a state of the table
        in which the window is not. Raises `CommitRefused` if it is, or if the state is outdated;
        before anything is sent `ConfigError` if the table cannot take the files, or `TableChanged`
        if it has to be checked again; and `CommitUnclear` if it was sent and the outcome is
        unknown."""

    def _named_by_files(self, window_id: str, tokens: Collection[str]) -> str | None:  # noqa: ARG002
        """Return the one of `tokens` whose files the table has, for tables that can forget a commit
        and keep its files."""
        return None

    # -- Sink -------------------------------------------------------------------------------------

    @property
    def boundaries(self) -> BoundaryBook | None:
        """Boundaries fixed beside the table."""
        return StorageBook(self.storage, "_tubemq/boundaries")

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker of a window that the table has confirmed, or None."""
        document = self._document(window_id)
        return None if document is None else self._marker(window_id, document)

    def window_ids(self) -> Iterable[str]:
        """Return confirmed windows, and those in the table that no run has confirmed yet."""
        return self.later_window_ids("")

    def later_window_ids(self, low: str) -> Iterable[str]:
        """See `Sink.later_window_ids`: listings that begin at `low`."""
        markers = self._marker_store()
        if markers is None:
            return []
        confirmed_ids = markers.confirmed_ids(low)
        others = (name for name in markers.tried_ids(low) - confirmed_ids if self._document(name))
        return [*confirmed_ids, *others]

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Begin a try: a new prefix of the table's storage, or a new local directory."""
        area = self._final_area()
        begun = (
            self._local.begin(plan, attempt)
            if area is None
            else area.begin(plan, attempt, data_of(plan.window_id), _new_token())
        )
        return replace(begun, partition_by=self._by)

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Verify, bring the files in, stage the marker, commit. See `Sink.publish`."""
        document = self._document(plan.window_id)
        if document is None:
            try:
                window = self._stage_files(staging, plan, counts, progress)
            except (OSError, CountMismatch):
                # The try that published may have taken this try's staging place away (`tidy`).
                document = self._document(plan.window_id)
                if document is None:
                    raise
            else:
                return self._settle(window, progress)
        return Publication(won=False, marker=self._marker(plan.window_id, document))

    def discard(self, staging: Staging) -> None:
        """Remove what the try wrote, unless the table has the window from it. A store that does not
        answer hides no other error: `tidy` finds what is left."""
        if not staging.final:
            self._local.discard(staging)
            return
        with suppress(Exception):
            area = self._final_area()
            published = (self._document(staging.window_id) or {}).get("token")
            if area is not None and published != token_of(staging):
                area.discard(staging)

    def tidy(self, window_id: str) -> None:
        """Remove what other tries of a published window left: staging, files, documents. Of the
        winner too: tasks of it that were tried again."""
        self._local.tidy(window_id)
        markers, document = self._marker_store(), self._document(window_id)
        if markers is None or document is None:
            return
        winner = str(document.get("token"))
        listed = {*self._marker(window_id, document).files}
        there = self.storage.names(data_of(window_id), at_work=True)
        self.storage.remove(name for name in there if name not in listed)
        markers.clear(window_id, [token for token in markers.tokens(window_id) if token != winner])

    # -- steps of publishing ----------------------------------------------------------------------

    def _stage_files(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> TableWindow:
        """Files and marker of this try, under names that no other try uses."""
        staged, _ = verified_files(staging, plan, counts, verify=self._verify)
        progress("files verified")
        if self._following is not None:
            return self._stage_changes(staging, plan, counts, staged, progress)
        schema = _common_schema(
            staged, with_keys=self._by is not None and self._by.layout == "values"
        )
        self._prepare(schema and StagedWindow(staged, schema, location_of(staging)))
        token = token_of(staging)
        names = [_name_of(plan, token, at, file, staging) for at, file in enumerate(staged)]
        files = [replace(file, path=name) for file, name in zip(staged, names, strict=True)]
        if staging.final:
            self.storage.keep_files(names)
        else:
            for file, name in zip(staged, names, strict=True):
                self.storage.put_file(Path(staging.path) / file.path, name)
        progress("files in place")
        document = marker_document(plan, counts, files, token=token)
        self._existing_marker_store().stage(plan.window_id, token, document)
        progress("marker staged")
        return TableWindow(plan, token, document, files)

    def _stage_changes(
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        staged: Sequence[FileFact],
        progress: Progress,
    ) -> TableWindow:
        """Marker of a try whose files are merged. They stay where they are until then, and the
        marker names none: later merges replace the table's files."""
        schema = _common_schema(staged, with_keys=False)
        self._changes = [Path(staging.path) / file.path for file in staged]
        if schema is not None and self._following is not None:
            columns = target_schema(schema, self._following)
            self._prepare(StagedWindow([], columns, location_of(staging)))
            self.check_columns(schema)
            self._note_deleted(plan.window_id)
        else:
            self._prepare(None)
        progress("files in place")
        token = token_of(staging)
        document = marker_document(plan, counts, [], token=token)
        self._existing_marker_store().stage(plan.window_id, token, document)
        progress("marker staged")
        return TableWindow(plan, token, document, [])

    def _note_deleted(self, window_id: str) -> None:
        """Note the keys that the window deletes, if the table keeps no row of them."""
        if (deleted := self._deleted_keys()) is not None:
            deleted.note(window_id, self._read_changes(deleted.columns))

    def _current_changes(self) -> pa.Table:
        """Return the staged changes without those that are older than an earlier delete."""
        deleted, changes = self._deleted_keys(), self._read_changes()
        return changes if deleted is None else deleted.current(changes)

    def _deleted_keys(self) -> DeletedKeys | None:
        following, table_id = self._following, self._table_id()
        if following is None or not following.notes_deleted or table_id is None:
            return None
        return DeletedKeys(self.storage, table_id, following)

    def _read_changes(self, columns: list[str] | None = None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        changes = pa.concat_tables([pq.read_table(path, columns=columns) for path in self._changes])
        return changes.replace_schema_metadata(None)

    def recount(self, marker: Marker) -> Mapping[str, int] | None:
        """See `Sink.recount`. Later windows take the rows of a table that follows changes."""
        return None if self._following is not None else super().recount(marker)

    def _settle(self, window: TableWindow, progress: Progress) -> Publication:
        """Commit until the table has the window, by this try or by another."""
        window_id = window.plan.window_id
        token = self._commit_until_present(window)
        progress("committed")
        document = self._sealed_by(window_id, token)
        progress("confirmed")
        won = token == window.token
        if not won:
            self._withdraw(window)
        return Publication(won, self._marker(window_id, document))

    def _commit_until_present(self, window: TableWindow) -> str:
        """Commit and return the token of the try whose commit has the window."""
        window_id = window.plan.window_id
        token: str | None = None
        for _ in range(_COMMIT_ATTEMPTS):
            token = token or self._confirmed(window.plan) or self._forgotten_commit(window)
            if token is not None:
                return token
            try:
                self._commit(window)
            except CommitRefused:
                continue
            except (ConfigError, TableChanged, ChangeOrderUnclear):
                self._withdraw(window)
                raise
            except CommitUnclear:
                # What was sent may still arrive: only the table can tell, and nothing is withdrawn.
                token = self._confirmed(window.plan)
                token = token or self._named_by_files(window_id, [window.token])
                if token is None:
                    raise
            else:
                # Believed at once: others may expire its snapshot before the next look.
                return self._confirmed(window.plan) or window.token
        raise CommitRefused(
            f"window {window_id} met another commit of {self.storage.url} "
            f"{_COMMIT_ATTEMPTS} times; nothing is published, a retry writes it again"
        )

    def _forgotten_commit(self, window: TableWindow) -> str | None:
        """Return the token of another try whose commit the table has forgotten. Only windows with a
        confirmed marker are forgotten, so this is checked after the table. A try that did not reach
        its commit left no token."""
        markers, window_id = self._existing_marker_store(), window.plan.window_id
        others = {*markers.tokens(window_id)} - {window.token}
        if not others:
            return None
        noted = markers.confirmed(window_id)
        return self._named_by_files(window_id, others) if noted is None else str(noted.get("token"))

    def _withdraw(self, window: TableWindow) -> None:
        """Remove what this try brought and no commit names."""
        self.storage.remove(file.path for file in window.files)
        self._existing_marker_store().clear(window.plan.window_id, [window.token])

    # -- small helpers ----------------------------------------------------------------------------

    def _document(self, window_id: str) -> Document | None:
        """Return the valid marker document: confirmed, or staged by the try that the table
        names."""
        markers = self._marker_store()
        if markers is None:
            return None
        confirmed_document = markers.confirmed(window_id)
        if confirmed_document is not None:
            return confirmed_document
        tokens = markers.tokens(window_id)
        for token in tokens:
            staged = markers.staged(window_id, token)
            if staged is not None:
                confirmed = self._confirmed(self._marker(window_id, staged).plan)
                confirmed = confirmed or self._named_by_files(window_id, tokens)
                return None if confirmed is None else self._sealed_by(window_id, confirmed)
        return None

    def _sealed_by(self, window_id: str, token: str) -> Document:
        markers = self._existing_marker_store()
        document = markers.staged(window_id, token)
        if document is None:
            raise SinkDamaged(
                f"{self.storage.url}: the table has window {window_id}, but its marker "
                f"_tubemq/…/{token}.json is gone; restore it before this window is run again"
            )
        markers.confirm(window_id, document)
        return document

    def _marker(self, window_id: str, document: Document) -> Marker:
        return read_marker(document, self.storage.url, window_id)

    def _marker_store(self) -> MarkerStore | None:
        """Return the markers of the table as first loaded; None while there is no table."""
        if self._known_marker_store is None:
            table_id = self._table_id()
            if table_id is not None:
                self._known_marker_store = MarkerStore(self.storage, table_id)
        return self._known_marker_store

    def _existing_marker_store(self) -> MarkerStore:
        markers = self._marker_store()
        if markers is None:
            raise SinkDamaged(f"{self.storage.url}: the table is gone")
        return markers


def is_stub(columns: Sequence[str]) -> bool:
    """Return True if a table has exactly the columns of one created for an empty window."""
    return bool(list(columns) == stub_schema().names)


def stub_schema() -> pa.Schema:
    """Return the columns of a table whose first window is empty; the others are not known yet."""
    import pyarrow as pa

    return pa.schema([("partition", pa.string())])


def data_of(window_id: str) -> str:
    """Return the directory of a window's files, relative to the table's location."""
    return f"windows/{window_id}"


def _new_token() -> str:
    """16 hex digits that are also a positive 64-bit integer, for formats that take only those."""
    return f"{1 << 62 | secrets.randbits(62):x}"


def token_of(staging: Staging) -> str:
    """Return the token that names the files of a try."""
    return staging.path.rpartition("/")[2] if staging.final else _new_token()


def _plain(path: str) -> str:
    """Return a file name that needs no escaping in any log or URL."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", path)


def _name_of(plan: WindowPlan, token: str, at: int, file: FileFact, staging: Staging) -> str:
    """Return the final name of a staged file, relative to the table's location."""
    if staging.final:
        return f"{data_of(plan.window_id)}/{token}/{file.path}"
    folders, _, name = file.path.rpartition("/")
    if folders:
        return f"{data_of(plan.window_id)}/{token}/{folders}/{at}-{_plain(name)}"
    return f"{data_of(plan.window_id)}/{token}-{at}-{_plain(name)}"


def _common_schema(staged: Sequence[FileFact], *, with_keys: bool) -> pa.Schema | None:
    """Return the columns that all files have, in the file or, `with_keys`, as partition values;
    None without files. Raises `ConfigError`."""
    import pyarrow as pa

    schema: pa.Schema | None = None
    for file in staged:
        file_schema = arrow_schema_of(file)
        for name, kind, _ in file.keys if with_keys else ():
            file_schema = file_schema.append(pa.field(name, pa.type_for_alias(kind)))
        in_folders = "/" in file.path and not file.keys
        if in_folders or "partition" not in file_schema.names:
            raise ConfigError(
                f"{file.path}: a table takes files that hold the column 'partition' themselves, "
                f"not in directories",
                subject="staged files",
            )
        if schema is not None and not file_schema.equals(schema):
            raise ConfigError(f"{file.path} has other columns than the first", subject="files")
        schema = file_schema
    return schema

"""Windows as rows of a database table, with a row per window written in the same transaction.

Through SQLAlchemy, so that PostgreSQL, SQLite and what else has a dialect take the same path. The
window's row goes first: its unique key makes a second try wait for the first transaction and then
fail, so of any number of tries one inserts rows. For small windows: every record passes through
this process.

Beside the target are two tables, ``tubemq_windows`` (id, target, marker) and ``tubemq_boundaries``.
How columns are mapped is in `types`. This module must not import airflow or pyspark, and never
shows a user name, a password or a query of an address.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tubemq_client.errors import ConfigError
from tubemq_provider.files.durable import missing_root
from tubemq_provider.files.staging import StagingArea, verified_files
from tubemq_provider.sinks._database_address import (
    environment_problems,
    lagging_replica_problem,
    meaning_problems,
    overruling,
)
from tubemq_provider.sinks._evolution import target_schema
from tubemq_provider.sinks._marker_document import marker_document, read_marker
from tubemq_provider.sinks._storage import as_document
from tubemq_provider.sinks.sql.address import name_problem, normal_address, parse_address
from tubemq_provider.sinks.sql.errors import plain_errors
from tubemq_provider.windows.errors import CountMismatch, SinkDamaged
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.other_scopes import one_of_each_scope
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
    import sqlalchemy as sa

    from tubemq_provider.sinks.sql.types import RowWriter

__all__ = ["LOCK_WAIT_S", "SqlSink"]

LOCK_WAIT_S: Final = 60
"""So long a statement waits for another transaction, where the database sets no limit itself."""


class SqlSink(Sink):
    """Exactly-once windows in the table `table` (``name`` or ``schema.name``) of a database.

    The table is made from the first window's columns, and ``window_id``, if there is none. An
    existing one must have all of them; an index on ``window_id`` keeps the check after inserting
    cheap. Rows under a window's id that no window row accounts for are refused.

    - `url`: as for SQLAlchemy; may hold credentials, which are shown nowhere.
    - `staging_root`: where engines write before rows are inserted; by default a directory of this
      user under the temporary directory.
    - `identity`: part of every window id; by default the address without credentials, driver and
      default port, its host in lower case. A table whose windows were named after the address as
      it was typed, as earlier releases did, keeps that name where it is typed so. Needed where
      parameters of the address lead elsewhere than it says.

    - `following`: how the table follows changes: staged rows are the last changes of keys, and
      are merged in the transaction that writes the window's row (`sinks.sql.merging`).

    What a driver raises is a `DatabaseError` without values of records and names of users.
    """

    kind = "jdbc"
    can_replace = True

    def __init__(
        self,
        url: str,
        table: str,
        *,
        staging_root: str | Path | None = None,
        identity: str | None = None,
        following: Following | None = None,
    ) -> None:
        self._following = following
        self._url, self._address = parse_address(url)
        if identity is None and (names := overruling(self._url.host, self._url.query)):
            raise ConfigError(
                f"parameters of {self._address} lead elsewhere than it says: {', '.join(names)}. "
                "Say it in the address, or give identity=, the name that its windows go by",
                subject="sink",
            )
        if identity is None and (problems := self._other_meanings()):
            raise ConfigError(problems, subject="sink")
        schema, _, self._name = table.rpartition(".")
        self._schema = schema or None
        self._target = table
        self._refuse_names(schema)
        self._given_identity = identity
        typed = identity or self._typed_identity
        self._staging = (
            StagingArea(Path(staging_root)) if staging_root else StagingArea.of_machine(typed)
        )
        self._known_tables: set[str] = set()

    def __repr__(self) -> str:
        return f"SqlSink({self._address!r}, {self._target!r})"

    def _refuse_names(self, schema: str) -> None:
        backend = self._url.get_backend_name()
        parts = [("schema", schema)] * bool(schema) + [("table", self._name)]
        found = [(what, name, name_problem(name, backend)) for what, name in parts]
        if backend == "sqlite" and schema.lower() not in ("", "main"):
            why = "is another file that is attached, or temporary; name that file in the address"
            found.append(("schema", schema, why))
        if problems := [f"{what} {name!r} {why}" for what, name, why in found if why]:
            raise ConfigError(problems, subject="sink")

    def _other_meanings(self) -> list[str]:
        parameters = [
            (name, value)
            for name, values in self._url.query.items()
            for value in ((values,) if isinstance(values, str) else values)
        ]
        if self._url.host:
            parameters.append(("host", self._url.host))
        backend = self._url.get_backend_name()
        problems = meaning_problems(backend, str(self._url.database or ""), parameters)
        several = lagging_replica_problem(backend, parameters)
        return [*problems, several] if several else problems

    @property
    def address(self) -> str:
        """Address of the rows, without credentials and options."""
        return f"{self._address}/{self._target}"

    @property
    def login(self) -> tuple[str, ...]:
        """User name and password, as far as the address has them; for leaving them out."""
        parts = (self._url.username, self._url.password)
        return tuple(str(part) for part in parts if part)

    @cached_property
    def identity(self) -> str:  # type: ignore[override] # found when it is first used
        """See `Sink.identity`. Asks the database if the address is not in its normal form, for
        windows that have the other name already."""
        if self._given_identity is not None:
            return self._given_identity
        normal = f"jdbc:{normal_address(self._url, self._address)}/{self._target}"
        typed = self._typed_identity
        if typed != normal and self._names_windows(typed):
            return typed
        return normal

    @property
    def _typed_identity(self) -> str:
        return f"jdbc:{self.address}"

    def _names_windows(self, identity: str) -> bool:
        """Return True if a window of the target has an id that was made with `identity`."""
        for window_id in one_of_each_scope(self.window_ids()):
            marker = self.marker(window_id)
            if (
                marker is not None
                and marker.plan.scope_in(identity).scope_hash == marker.plan.scope_hash
            ):
                return True
        return False

    @property
    def boundaries(self) -> BoundaryBook:
        """Boundaries in a table beside the target."""
        return _TableBook(self)

    @plain_errors
    def marker(self, window_id: str) -> Marker | None:
        """Return the marker in the window's row, or None."""
        document = self.read(self.windows, window_id)
        return None if document is None else self._marker(document, window_id)

    @plain_errors
    def recount(self, marker: Marker) -> Mapping[str, int] | None:
        """See `Sink.recount`: rows of the window in the table, counted by the database. Later
        windows take the rows of a table that follows changes."""
        import sqlalchemy as sa

        if self._following is not None:
            return None
        if not any(marker.counts.records.values()) or not self._exists(self._name):
            return {}
        target = sa.table(
            self._name, sa.column("window_id"), sa.column("partition"), schema=self._schema
        )
        mine = target.c.window_id == marker.plan.window_id
        query = sa.select(target.c.partition, sa.func.count()).where(mine)
        with self._engine.connect() as connection:
            rows = connection.execute(query.group_by(target.c.partition)).all()
        return {str(partition): int(count) for partition, count in rows}

    @plain_errors
    def holds(self, marker: Marker) -> bool:
        """See `Sink.holds`: False if the table of the window's rows was dropped. Rows may leave it
        at any time."""
        return marker.counts.total == 0 or self._exists(self._name)

    @plain_errors
    def window_ids(self) -> Iterable[str]:
        """Ids of the window rows of this target."""
        return self.ids(self.windows)

    @plain_errors
    def later_window_ids(self, low: str) -> Iterable[str]:
        """See `Sink.later_window_ids`: the database passes over earlier rows."""
        return self.ids(self.windows, low, before="t-")

    @plain_errors
    def ids(self, table: sa.Table, low: str = "", *, before: str = "") -> list[str]:
        """Ids, from `low` on and those `before`, of the rows that `table` has of this target."""
        if not self._exists(table.name):
            return []
        with self._engine.connect() as connection:
            mine = table.c.target == self._target
            if low:
                mine &= (table.c.id >= low) | (table.c.id < before)
            return list(
                connection.scalars(table.select().with_only_columns(table.c.id).where(mine))
            )

    def missing(self) -> str | None:
        """See `Sink.missing`. SQLite makes a missing file; a server answers for itself."""
        if self._url.get_backend_name() != "sqlite":
            return None
        return missing_root(Path(str(self._url.database)), make="touch")

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Begin a try in a new local directory."""
        return self._staging.begin(plan, attempt)

    @plain_errors
    def check_columns(self, columns: pa.Schema) -> None:
        """See `Sink.check_columns`. Raises also for types that no table of this database keeps."""
        from tubemq_provider.sinks.sql.types import RowWriter

        if self._following is not None:
            columns = target_schema(columns, self._following)
        writer = RowWriter(self._name, self._schema, columns, self._engine.dialect)
        if writer.is_there(self._engine):
            writer.check(self._engine)
            writer.check_given(self._engine)

    @plain_errors
    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Verify, then window row and records in one transaction. See `Sink.publish`."""
        window_id, token = plan.window_id, uuid4().hex
        if self.read(self.windows, window_id) is None:
            try:
                self._insert(staging, plan, counts, token, progress)
            except Exception:
                # The key is taken, or the staging place is (`tidy`), or the answer to the commit
                # got lost: in each case the window row says what happened.
                if self.read(self.windows, window_id) is None:
                    raise
            progress("committed")
        document = self.read(self.windows, window_id)
        if document is None:
            raise SinkDamaged(f"window {window_id} vanished right after it was published")
        return Publication(document.get("token") == token, self._marker(document, window_id))

    @plain_errors
    def replace(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Window row, old rows and new rows in one transaction. See `Sink.replace`."""
        before = self.read(self.windows, plan.window_id)
        if before is None:
            return self.publish(staging, plan, counts, progress)
        token = uuid4().hex
        try:
            self._insert(staging, plan, counts, token, progress, before=before)
        except _Overtaken:
            pass
        document = self.read(self.windows, plan.window_id)
        if document is None:
            raise SinkDamaged(f"window {plan.window_id} vanished right after it was replaced")
        return Publication(document.get("token") == token, self._marker(document, plan.window_id))

    def discard(self, staging: Staging) -> None:
        """Remove the local directory."""
        self._staging.discard(staging)

    def tidy(self, window_id: str) -> None:
        """Remove local staging directories; the database has nothing to tidy."""
        self._staging.tidy(window_id)

    # -- steps of publishing ----------------------------------------------------------------------

    def _insert(
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        token: str,
        progress: Progress,
        *,
        before: Document | None = None,
    ) -> None:
        self._refuse_another_schema(plan)
        verified, _ = verified_files(staging, plan, counts)
        files = [Path(staging.path) / file.path for file in verified]
        progress("files verified")
        writer = self._prepare(files)
        document = marker_document(plan, counts, (), token=token)
        with self._engine.begin() as connection:
            self._claim(connection, plan.window_id, document, before)
            if before is not None:
                self._delete_rows(connection, plan.window_id)
            progress("window row written")
            if writer is not None and self._following is not None:
                from tubemq_provider.sinks.sql.merging import Merge, deleted_keys

                deleted = deleted_keys(writer, self._following)
                merge = Merge(self._following, writer, _schema_of(files), token, deleted)
                for path in files:
                    merge.stage(connection, path, plan.window_id)
                    progress("file inserted")
                merge.apply(connection)
                progress("changes merged")
            elif writer is not None:
                for path in files:
                    writer.write(connection, path, plan.window_id)
                    progress("file inserted")
                inserted = writer.count(connection, plan.window_id)
                if inserted != counts.total:
                    raise CountMismatch(
                        f"window {plan.window_id}: {self._target} has {inserted} rows of it, "
                        f"{counts.total} were counted"
                    )
            progress("rows counted")

    def _refuse_another_schema(self, plan: WindowPlan) -> None:
        """Without a schema in its name, the search path of the login says where a table is. Raises
        `ConfigError` if it led elsewhere when other windows of the group were written."""
        import sqlalchemy as sa

        if self._schema is not None or self._url.get_backend_name() != "postgresql":
            return
        with self._engine.connect() as connection:
            for schema in connection.scalars(sa.text(_HIDDEN_WINDOWS)).all():
                windows = sa.table(
                    "tubemq_windows", sa.column("id"), sa.column("target"), schema=schema
                )
                mine = (windows.c.target == self._target) & windows.c.id.endswith(
                    f"-{plan.scope_hash}", autoescape=True
                )
                if connection.scalar(sa.select(windows.c.id).where(mine).limit(1)) is not None:
                    raise ConfigError(
                        f"table {self._target!r} has no schema in its name, and windows of group "
                        f"{plan.group!r} are in schema {schema!r}, which the search_path of this "
                        f"login does not lead to any more. Set it back (ALTER ROLE … SET "
                        f"search_path), or continue with ?table={schema}.{self._name} and "
                        f"identity={self.identity!r}",
                        subject="sink",
                    )

    def _claim(
        self,
        connection: sa.Connection,
        window_id: str,
        document: Document,
        before: Document | None,
    ) -> None:
        """Write the window's row, in the place of `before`; a second writer waits, and
        fails."""
        windows, text = self.windows, json.dumps(document)
        if before is None:
            values = {"id": window_id, "target": self._target, "document": text}
            connection.execute(windows.insert().values(values))
            return
        mine = (windows.c.id == window_id) & (windows.c.document == json.dumps(before))
        if connection.execute(windows.update().where(mine).values(document=text)).rowcount != 1:
            raise _Overtaken

    def _delete_rows(self, connection: sa.Connection, window_id: str) -> None:
        import sqlalchemy as sa

        if sa.inspect(connection).has_table(self._name, schema=self._schema):
            target = sa.table(self._name, sa.column("window_id"), schema=self._schema)
            connection.execute(target.delete().where(target.c.window_id == window_id))

    def _prepare(self, files: list[Path]) -> RowWriter | None:
        """Make the tables; what writes rows of these files, None if there are no files."""
        from tubemq_provider.sinks.sql.merging import deleted_keys, index_key
        from tubemq_provider.sinks.sql.types import RowWriter

        self.make(self.windows)
        schema = _schema_of(files)
        if schema is None:
            return None
        if self._following is not None:
            schema = target_schema(schema, self._following)
        writer = RowWriter(self._name, self._schema, schema, self._engine.dialect)
        if self._following is not None:
            index_key(writer, self._following)
            if (deleted := deleted_keys(writer, self._following)) is not None:
                self.make(deleted)
        self.make(writer.table)
        writer.check(self._engine)
        return writer

    # -- the database -----------------------------------------------------------------------------

    @cached_property
    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa
        from sqlalchemy.pool import NullPool

        if self._given_identity is None and self._url.get_backend_name() == "postgresql":
            host, port = bool(self._url.host or self._url.query.get("host")), bool(self._url.port)
            if problems := environment_problems(os.environ, named=host, port=port):
                raise ConfigError(problems, subject="sink")
        options: dict[str, Any] = {}
        if self._url.get_backend_name() == "sqlite" and "timeout" not in self._url.query:
            options["connect_args"] = {"timeout": LOCK_WAIT_S}
        try:
            # Tasks fork, and a run needs few connections: none is kept.
            engine = sa.create_engine(
                self._url, poolclass=NullPool, hide_parameters=True, **options
            )
        except ImportError as exc:
            raise ConfigError(
                f"{self._address}: the database driver {exc.name} is not installed: pip install "
                f"{exc.name}; or name another one, as in postgresql+psycopg2://",
                subject="sink",
            ) from exc
        if engine.dialect.name == "postgresql":
            sa.event.listen(engine, "begin", _bound_waits_and_be_durable)
        return engine

    @cached_property
    def windows(self) -> sa.Table:
        """One row per published window."""
        return self._documents("tubemq_windows")

    @cached_property
    def fixed(self) -> sa.Table:
        """One row per boundary."""
        return self._documents("tubemq_boundaries")

    def _documents(self, name: str) -> sa.Table:
        import sqlalchemy as sa

        return sa.Table(
            name,
            sa.MetaData(schema=self._schema),
            sa.Column("id", sa.String(255), primary_key=True),
            sa.Column("target", sa.String(255), nullable=False),
            sa.Column("document", sa.Text, nullable=False),
        )

    @plain_errors
    def read(self, table: sa.Table, key: str) -> Document | None:
        """Return the document under `key`, or None."""
        if not self._exists(table.name):
            return None
        with self._engine.connect() as connection:
            query = table.select().with_only_columns(table.c.document).where(table.c.id == key)
            text = connection.scalar(query)
        return None if text is None else as_document(key, str(text).encode())

    @plain_errors
    def create(self, table: sa.Table, key: str, document: Document) -> None:
        """Store a document under `key` if nothing is there."""
        from sqlalchemy.exc import IntegrityError

        self.make(table)
        values = {"id": key, "target": self._target, "document": json.dumps(document)}
        try:
            with self._engine.begin() as connection:
                connection.execute(table.insert().values(values))
        except IntegrityError:
            if self.read(table, key) is None:
                raise

    @plain_errors
    def remove(self, table: sa.Table, key: str) -> None:
        """Remove the row under `key`, if there is one."""
        if self._exists(table.name):
            with self._engine.begin() as connection:
                connection.execute(table.delete().where(table.c.id == key))

    @plain_errors
    def make(self, table: sa.Table) -> None:
        """Create a table if there is none; another try may do so at the same time."""
        from sqlalchemy.exc import DBAPIError

        if self._exists(table.name):
            return
        try:
            table.create(self._engine, checkfirst=True)
        except DBAPIError:
            if not self._exists(table.name):
                raise

    def _marker(self, document: Document, window_id: str) -> Marker:
        return read_marker(document, f"{self._address}/{self._target}#{window_id}", window_id)

    def _exists(self, name: str) -> bool:
        import sqlalchemy as sa

        if self.missing() is not None:  # SQLite creates the file even for a query
            return False
        if name not in self._known_tables and sa.inspect(self._engine).has_table(
            name, schema=self._schema
        ):
            self._known_tables.add(name)
        return name in self._known_tables


_HIDDEN_WINDOWS: Final = """
SELECT n.nspname FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = 'tubemq_windows' AND c.relkind IN ('r', 'p')
  AND NOT pg_catalog.pg_table_is_visible(c.oid)
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
  AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
"""


def _bound_waits_and_be_durable(connection: sa.Connection) -> None:
    """For this transaction of PostgreSQL only: a pooler may give the session to others. In a column
    without a zone, instants are UTC, whatever the zone of the server is."""
    connection.exec_driver_sql(
        "SELECT set_config('TimeZone', 'UTC', true), "
        "CASE WHEN current_setting('lock_timeout') = '0' "
        f"THEN set_config('lock_timeout', '{LOCK_WAIT_S}s', true) END, "
        "CASE WHEN current_setting('synchronous_commit') = 'off' "
        "THEN set_config('synchronous_commit', 'on', true) END"
    )


class _Overtaken(Exception):
    """Another try has replaced the window since it was read."""


class _TableBook:
    """A `BoundaryBook` of one row per document."""

    def __init__(self, sink: SqlSink) -> None:
        self._sink = sink

    def listing(self) -> Iterable[str]:
        return self._sink.ids(self._sink.fixed)

    def listing_from(self, key: str) -> Iterable[str]:
        return self._sink.ids(self._sink.fixed, key)

    def read(self, key: str) -> Document | None:
        return self._sink.read(self._sink.fixed, key)

    def fix(self, key: str, document: Document) -> Document:
        self._sink.create(self._sink.fixed, key, document)
        found = self.read(key)
        if found is None:
            raise SinkDamaged(f"boundary {key} vanished right after it was written")
        return found

    def withdraw(self, key: str) -> None:
        self._sink.remove(self._sink.fixed, key)


def _schema_of(files: list[Path]) -> pa.Schema | None:
    """Return the schema of the files, which is the same for all. Raises `ConfigError`."""
    import pyarrow.parquet as pq

    schemas = [pq.read_schema(path).remove_metadata() for path in files]
    if not schemas:
        return None
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise ConfigError("the files have different columns", subject="staged files")
    if "partition" not in schemas[0].names:
        raise ConfigError("the files have no column 'partition'", subject="staged files")
    return schemas[0]

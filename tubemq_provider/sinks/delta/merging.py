"""Changes merged into a Delta table by delta-rs, in one commit.

The staged files hold the last change of each key. The commit carries the window's application
transactions, so that it counts once, like a commit that adds files. This module must not decide
whether a window is in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tubemq_provider.rows.ddl import quoted
from tubemq_provider.sinks._deleted_keys import refuse_moved
from tubemq_provider.windows.following import OP, Following

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

__all__ = ["merge"]


def merge(
    table: DeltaTable, files: Sequence[Path], following: Following, properties: CommitProperties
) -> None:
    """Merge the rows of `files` into `table`. Raises `ChangeOrderUnclear` before anything is sent
    if a row came from another partition and no version says which change is the last."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    changes = pa.concat_tables([pq.read_table(path) for path in files])
    changes = changes.replace_schema_metadata(None)
    if following.version is None:
        _refuse_other_partition(table, changes, following)
    deleted = f"s.{quoted(OP)} = 'd'"
    newer = "true"
    if following.version is not None:
        version = quoted(following.version)
        newer = f"(t.{version} IS NULL OR s.{version} >= t.{version})"
    values = {quoted(name): f"s.{quoted(name)}" for name in changes.schema.names if name != OP}
    if following.soft_delete is not None:
        values[quoted(following.soft_delete)] = deleted
    same_key = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in following.key)
    merger = table.merge(
        changes, same_key, source_alias="s", target_alias="t", commit_properties=properties
    )
    if following.soft_delete is None:
        merger = (
            merger.when_matched_delete(f"{deleted} AND {newer}")
            .when_matched_update(values, f"NOT ({deleted}) AND {newer}")
            .when_not_matched_insert(values, f"NOT ({deleted})")
        )
    else:
        merger = merger.when_matched_update(values, newer).when_not_matched_insert(values)
    merger.execute()


def _refuse_other_partition(table: DeltaTable, changes: pa.Table, following: Following) -> None:
    import pyarrow.compute as pc

    columns = [*following.key, "partition"]
    first = following.key[0]
    wanted = pc.field(first).isin(pc.unique(changes.column(first)))
    there = table.to_pyarrow_dataset().to_table(columns=columns, filter=wanted)
    refuse_moved(there, changes.select(columns), list(following.key))

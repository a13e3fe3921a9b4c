"""Changes merged into a Delta table by delta-rs, in one commit.

The changes hold the last one of each key. The commit carries the window's application
transactions, so that it counts once, like a commit that adds files. This module must not decide
whether a window is in the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_provider.rows.ddl import quoted
from tubemq_provider.sinks._deleted_keys import refuse_unclear
from tubemq_provider.windows.following import OP, Following

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

__all__ = ["merge"]


def merge(
    table: DeltaTable, changes: pa.Table, following: Following, properties: CommitProperties
) -> None:
    """Merge `changes` into `table`. Raises `ChangeOrderUnclear` before anything is sent if a row
    came from another partition and no version says which change is the last."""
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
    """Look at the rows with changed keys, in files that may have some by their statistics; those
    with older rows only are not opened."""
    import pyarrow.compute as pc

    if not changes.num_rows:
        return
    key, columns, version = list(following.key), following.of_deleted, following.version
    wanted = pc.field(key[0]).isin(pc.unique(changes.column(key[0])))
    if version is not None:
        wanted = (pc.field(version) >= pc.min(changes.column(version))) & wanted
    mine, dataset = changes.select(columns), table.to_pyarrow_dataset()
    for file in dataset.get_fragments(filter=wanted):
        # Unfiltered: texts in files of a merge are views, which pyarrow compares with no text.
        there = file.to_table(schema=dataset.schema, columns=columns).cast(mine.schema)
        there = there.filter(wanted)
        refuse_unclear(there, mine, key, version)

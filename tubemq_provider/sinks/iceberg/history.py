"""Expiry of snapshots of windows that are not needed any more.

Each snapshot is in the metadata that every later commit reads and writes, so windows would get
slower for ever. With each window, snapshots of old windows leave the table. Only those that the
sink made, whose marker is noted beside the table, and of which every file is in the table's newest
state too: readers of the table see no difference, only time travel to that snapshot ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["KEPT", "NEW_TABLE", "clear_up", "outdated", "remove_snapshots"]

KEPT: Final = 10
"""Newest snapshots of a branch that always stay, unless the table wants more."""

_AT_ONCE: Final = 20
"""Snapshots that leave with one window: a table of an earlier release has thousands."""

_MIN_KEPT: Final = "history.expire.min-snapshots-to-keep"
_MAX_AGE: Final = "history.expire.max-snapshot-age-ms"

NEW_TABLE: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
"""Properties of a table that the sink makes: old metadata files are deleted."""


def outdated(
    metadata: TableMetadata, mark: str, is_noted: Callable[[Snapshot], bool]
) -> list[Snapshot]:
    """Snapshots that leave with the next window, oldest first. `mark` is the property of those that
    the sink made.

    Goes back from the newest as long as files were only added. The table's own
    ``history.expire.min-snapshots-to-keep`` and ``history.expire.max-snapshot-age-ms`` are obeyed.
    """
    properties = metadata.properties
    minimum = max(KEPT, _number(properties.get(_MIN_KEPT), 0))
    age_ms = _number(properties.get(_MAX_AGE), 0)
    before_ms = time.time_ns() // 1_000_000 - age_ms
    pinned = {ref.snapshot_id for ref in metadata.refs.values()}
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshots: list[Snapshot] = []
    current, seen = by_id.get(metadata.current_snapshot_id or 0), 0
    while current is not None:
        seen += 1
        summary = current.summary
        ours = summary is not None and mark in summary.additional_properties
        if seen > minimum and ours and current.timestamp_ms <= before_ms:
            snapshots.append(current)
        if summary is None or summary.operation.value != "append":
            break  # Files that went with this one may be nowhere but in older snapshots.
        current = by_id.get(current.parent_snapshot_id or 0)
    oldest = [each for each in reversed(snapshots) if each.snapshot_id not in pinned][:_AT_ONCE]
    return [snapshot for snapshot in oldest if is_noted(snapshot)]


def remove_snapshots(change: Transaction, snapshots: Sequence[Snapshot]) -> None:
    """Let `snapshots` leave in the commit of `change`."""
    from pyiceberg.table.update import RemoveSnapshotsUpdate

    if snapshots:
        ids = [snapshot.snapshot_id for snapshot in snapshots]
        change._apply((RemoveSnapshotsUpdate(snapshot_ids=ids),))  # noqa: SLF001 (pyiceberg's own expiry makes a separate commit)


def clear_up(table: Table, snapshots: Sequence[Snapshot]) -> None:
    """Delete the lists of manifests of `snapshots` that have left: nothing else names them. What
    fails stays, and does no harm."""
    for snapshot in snapshots:
        with suppress(Exception):
            table.io.delete(snapshot.manifest_list)


def _number(text: str | None, default: int) -> int:
    try:
        return int(text or default)
    except ValueError:
        return default

"""``airflow tubemq offsets epoch``: start a new epoch of a group whose topic was recreated.

The command stores a cursor without a position: it names the epoch, those that have ended, and the
begin of the new one. The next run plans its first window. Windows of earlier epochs stay in the
sink, under other ids. Stop the tasks of the group first.
"""

from __future__ import annotations

from typing import Any

from tubemq_provider.cli._show import changed, command, confirm, people
from tubemq_provider.ingest.maintenance import beginning, epoch_document, epochs_of
from tubemq_provider.offsets.commit_events import RECENT
from tubemq_provider.offsets.metadata_db import open_group
from tubemq_provider.windows.cursor import newer_position

_UNSEEN = (
    "note: runs of this group may keep no cursor; tasks with offset_store='events' do not read the "
    "new one, and begin an epoch by their arguments epoch and epoch_seen"
)


@command
def begin(args: Any) -> None:
    """Start an epoch; the group's next run reads its first window."""
    with open_group(args.asset) as group:
        store, cursor = group.cursor()
        event = group.newest_position()
        epochs = epochs_of(cursor, event, group.events(most=RECENT))
        after = epoch_document(
            group.parts,
            args.name,
            beginning(args.begin),
            epochs,
            before=cursor,
            by="airflow tubemq",
            source=group.source,
            seen=args.seen,
        )
        begun = {name: after.get(name) for name in ("epoch", "begin", "seen")}
        changed(args, {"epoch": epochs.present, "last_window": epochs.last}, begun)
        if newer_position(cursor, event) is not cursor and people(args):
            print(_UNSEEN)
        confirm(args)
        group.store_cursor(store, after)
        # Samples are ends of logs that are gone: boundaries of the new epoch must not rest on them.
        group.forget_timeline()

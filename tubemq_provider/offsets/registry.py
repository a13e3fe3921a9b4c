"""Which store a task keeps its progress in: the one place where a name becomes a store.

`asset_state` is the default; `ledger` needs the deployment's help and allows runs of one group side
by side; `events` needs nothing but asset events. A group may move from one to another: each finds
its position in the newest commit event, which all of them emit. Claims do not move: a group that
leaves the ledger finishes them first, and one that comes back to it rebuilds its position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol

from tubemq_client import errors
from tubemq_provider.offsets.asset_state import AssetProgress, AssetStateOffsetStore
from tubemq_provider.offsets.commit_events import CommitEventStore
from tubemq_provider.offsets.ledger.envelope import CURSOR
from tubemq_provider.offsets.ledger.store import LedgerStore, VersionedState
from tubemq_provider.windows.cursor import cursor_in_use, newer_position
from tubemq_provider.windows.protocols import Document, OffsetStore

__all__ = ["STORES", "StoreName", "TaskStore", "refuse_other_store", "store_for"]

StoreName = Literal["asset_state", "events", "ledger"]


class TaskStore(OffsetStore, Protocol):
    """The store of a task, which can also have samples of ends."""

    def load_timeline(self) -> Document | None:
        """The samples that another task keeps on the same asset, or None."""


STORES: Final[Mapping[str, Callable[[Mapping[str, Any], Any], TaskStore]]] = {
    "asset_state": AssetStateOffsetStore.from_context,
    "events": CommitEventStore.from_context,
    "ledger": LedgerStore.from_context,
}


def store_for(name: str, context: Mapping[str, Any], asset: Any) -> TaskStore:
    """The store called `name` for the running task, which has `asset` as inlet and outlet.

    Raises `errors.ConfigError` for an unknown name, and for ``ledger`` where the API server has
    none: progress must not silently end up elsewhere.
    """
    if name not in STORES:
        known = ", ".join(STORES)
        raise errors.ConfigError(f"{name!r} is none of {known}", subject="offset_store")
    return STORES[name](context, asset)


def refuse_other_store(name: str, context: Mapping[str, Any], asset: Any) -> None:
    """Raise `errors.ConfigError` if runs go by the cursor of another store than `name`: a change of
    this one would have no effect. The running task has `asset` as inlet."""
    progress = AssetProgress.of_inlet(context, asset)
    kept = progress.load_cursor()
    states = context.get("asset_state_store")
    claimed = None if states is None else VersionedState(states[asset]).load(CURSOR)
    used = cursor_in_use(kept, claimed.document if claimed else None)
    found = "asset_state" if used is kept else "ledger"
    if name == "events" and newer_position(used, progress.newest_position()) is not used:
        return  # a cursor that was left behind
    if used is not None and found != name:
        raise errors.ConfigError(
            f"the progress of {asset.name} is kept in {found}, and a change in {name} would have "
            f"no effect; say offset_store={found!r}, or, if its runs keep it in {name} by now, let "
            f"one of them publish a window first",
            subject="offset_store",
        )

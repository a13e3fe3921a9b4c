"""Registry of offset stores by name.

`asset_state` is the default; `ledger` must be configured in the deployment and allows concurrent
runs of one group; `events` needs nothing but asset events. A group may move from one to another:
each finds the position in the newest commit event, which all of them emit. Claims do not move: a
group that leaves the ledger must finish them first, and one that returns to it rebuilds its
position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator

from tubemq_client import errors
from tubemq_provider.extensions import call, is_known, plugin_of
from tubemq_provider.offsets.asset_state import AssetProgress, AssetStateOffsetStore
from tubemq_provider.offsets.commit_events import CommitEventStore
from tubemq_provider.offsets.ledger.envelope import CURSOR
from tubemq_provider.offsets.ledger.store import LedgerStore, VersionedState
from tubemq_provider.windows.cursor import cursor_in_use, newer_position
from tubemq_provider.windows.protocols import Document, OffsetStore

__all__ = [
    "StoreName",
    "TaskStore",
    "asset_state",
    "events",
    "ledger",
    "refuse_other_store",
    "store_for",
]


def _known(name: str) -> str:
    if not is_known("offset_store", name):
        try:
            plugin_of("offset_store", name)
        except errors.ConfigError as exc:
            raise ValueError("; ".join(exc.problems)) from None
    return name


StoreName = Annotated[str, AfterValidator(_known)]
"""Word of an offset store: of this package, or of a plug-in."""


class TaskStore(OffsetStore, Protocol):
    """Offset store of a task that can also read samples of ends."""

    def load_timeline(self) -> Document | None:
        """Return the samples that another task stores on the same asset, or None."""


def store_for(
    name: str | Callable[[Mapping[str, Any], Any], TaskStore],
    context: Mapping[str, Any],
    asset: Any,
) -> TaskStore:
    """Create the store `name` for the running task, which has `asset` as inlet and outlet.

    Raises `errors.ConfigError` for an unknown name, and for ``ledger`` if the API server has none:
    progress must not silently go elsewhere.
    """
    if not isinstance(name, str):
        return name(context, asset)
    store: TaskStore = call("offset_store", name, context, asset)
    return store


def asset_state(context: Mapping[str, Any], asset: Any) -> TaskStore:
    """Return the store in the state of the offsets asset."""
    return AssetStateOffsetStore.from_context(context, asset)


def events(context: Mapping[str, Any], asset: Any) -> TaskStore:
    """Return the store that has nothing but the events of the offsets asset."""
    return CommitEventStore.from_context(context, asset)


def ledger(context: Mapping[str, Any], asset: Any) -> TaskStore:
    """Return the store with claims in Airflow's metadata database."""
    return LedgerStore.from_context(context, asset)


def refuse_other_store(name: str, context: Mapping[str, Any], asset: Any) -> None:
    """Raise `errors.ConfigError` if runs use the cursor of another store than `name`, so that a
    change in `name` would have no effect. The running task has `asset` as inlet."""
    progress = AssetProgress.of_inlet(context, asset)
    plain = progress.load_cursor()
    states = context.get("asset_state_store")
    claimed = None if states is None else VersionedState(states[asset]).load(CURSOR)
    used = cursor_in_use(plain, claimed.document if claimed else None)
    current = "asset_state" if used is plain else "ledger"
    if name == "events" and newer_position(used, progress.newest_position()) is not used:
        return  # the cursor is outdated
    if used is not None and current != name:
        raise errors.ConfigError(
            f"the progress of {asset.name} is kept in {current}, and a change in {name} would have "
            f"no effect; set offset_store={current!r}, or, if its runs use {name} now, let one of "
            f"them publish a window first",
            subject="offset_store",
        )

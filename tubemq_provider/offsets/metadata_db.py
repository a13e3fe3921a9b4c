"""Progress as Airflow's metadata database has it: assets, their state, their events, the ledger.

For what runs beside the metadata database and not in a task: the command line, a page. Values are
written through the state backend that the deployment has, exactly where a task's store looks for
them. The only module here with a session of its own; it decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from airflow.models.asset import AssetEvent, AssetModel
from airflow.state import AssetScope, get_state_backend
from airflow.utils.session import create_session
from sqlalchemy import inspect, select

from tubemq_client import errors
from tubemq_provider.offsets.asset_state import TIMELINE, DocumentState
from tubemq_provider.offsets.commit_events import commit_event
from tubemq_provider.offsets.ledger.backend import TubeMQStateBackend, ledger_of
from tubemq_provider.offsets.ledger.envelope import CURSOR
from tubemq_provider.offsets.ledger.store import VersionedState
from tubemq_provider.offsets.ledger.tables import CURSORS, WindowRow
from tubemq_provider.windows.cursor import epoch_of, past_epochs
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import Document

__all__ = ["Group", "groups", "has_ledger", "open_group", "state_backend"]

_PREFIX = "tubemq:"
_EVENTS = 1_000
_EVENTS_AT_ONCE = 5


def state_backend() -> str:
    """Class of the configured state backend."""
    backend = type(get_state_backend())
    return f"{backend.__module__}.{backend.__name__}"


@dataclass
class Group:
    """Progress of one (cluster, topic, group)."""

    name: str
    asset_id: int
    session: Any
    _revision: int = 0
    _seen: Document | None = None

    @property
    def label(self) -> str:
        """``<cluster>/<topic>/<group>``."""
        return self.name.removeprefix(_PREFIX)

    @property
    def parts(self) -> tuple[str, str, str]:
        """Cluster, topic and group."""
        cluster, topic, group = self.label.split("/", 2)
        return cluster, topic, group

    def events(self) -> Generator[Document]:
        """Commit events of successful runs, the newest first; at most a thousand, of which a few
        are in memory at a time: one of ten thousand partitions has about a megabyte."""
        statement = select(AssetEvent.extra).where(AssetEvent.asset_id == self.asset_id)
        newest = statement.order_by(AssetEvent.timestamp.desc(), AssetEvent.id.desc())
        streamed = newest.limit(_EVENTS).execution_options(yield_per=_EVENTS_AT_ONCE)
        with closing(self.session.scalars(streamed)) as extras:
            for extra in extras:
                document = commit_event(extra)
                if document is not None:
                    yield document

    def newest_position(self) -> Document | None:
        """The newest commit event that has a position, or None."""
        with closing(self.events()) as events:
            return next((event for event in events if event.get("position")), None)

    def cursor(self, *, of_ledger: bool = False) -> tuple[str, Document | None]:
        """Which store has the cursor (``ledger`` or ``asset_state``), and the cursor.

        Where both have one, the group has moved: the ledger's counts unless it is behind, or unless
        `of_ledger` asks for it all the same.
        """
        self._seen = DocumentState(self._state()).load("cursor")
        found = VersionedState(self._state()).load(CURSOR) if self._ledgers() else None
        self._revision = found.rev if found else 0
        left = found and self._seen and self._seen["seq"] > found.document["seq"]
        if left and found and epoch_of(self._seen) in past_epochs(found.document):
            left = False
        if found is None or (left and not of_ledger):
            return "asset_state", self._seen
        return "ledger", found.document

    def store_cursor(self, store: str, document: Document) -> None:
        """Replace what `cursor` gave. Raises `StoreConflict` if a task has written it since; asset
        state has no compare-and-set, so there it is only looked at once more."""
        if store == "ledger":
            VersionedState(self._state()).store(CURSOR, document, self._revision)
            return
        state = DocumentState(self._state())
        if state.load("cursor") != self._seen:
            raise StoreConflict("cursor: a task has written it since it was read; look again")
        state.store("cursor", document)

    def forget_timeline(self) -> None:
        """Drop the samples of ends, if there are any."""
        DocumentState(self._state()).delete(TIMELINE)

    def windows(self) -> list[WindowRow]:
        """The ledger's windows, if there is a ledger."""
        return list(ledger_of(self.session).windows(self.name)) if self._ledgers() else []

    def _ledgers(self) -> bool:
        return isinstance(get_state_backend(), TubeMQStateBackend) and has_ledger(self.session)

    def _state(self) -> _SessionState:
        return _SessionState(self.session, AssetScope(asset_id=self.asset_id))


class _SessionState:
    """Asset state over a session, in the shape that a task's accessor has."""

    def __init__(self, session: Any, scope: AssetScope) -> None:
        self._session = session
        self._scope = scope

    def get(self, key: str, default: Any = None) -> Any:
        text = get_state_backend().get(self._scope, key, session=self._session)
        return default if text is None else json.loads(text)

    def set(self, key: str, value: Any) -> None:
        backend: Any = get_state_backend()
        backend.set(self._scope, key, json.dumps(value), session=self._session)

    def delete(self, key: str) -> None:
        get_state_backend().delete(self._scope, key, session=self._session)


def has_ledger(session: Any) -> bool:
    """Whether the ledger's tables are there."""
    return bool(inspect(session.get_bind()).has_table(CURSORS.name))


@contextmanager
def groups() -> Iterator[list[Group]]:
    """All offsets assets; what is written inside is committed at the end."""
    with create_session() as session:
        named = select(AssetModel).where(AssetModel.name.like(f"{_PREFIX}%/%/%"))
        found = session.scalars(named.order_by(AssetModel.name, AssetModel.id)).all()
        # A name may have had several ids; the last is the one in use.
        by_name = {model.name: model.id for model in found}
        yield [Group(name, asset_id, session) for name, asset_id in by_name.items()]


@contextmanager
def open_group(label: str) -> Iterator[Group]:
    """One group by its label. Raises `errors.ConfigError` if Airflow has no such asset."""
    with groups() as every:
        found = next((g for g in every if g.label == label.removeprefix(_PREFIX)), None)
        if found is None:
            known = ", ".join(group.label for group in every) or "none"
            raise errors.ConfigError(
                f"no offsets asset {label!r}; there are: {known}", subject="asset"
            )
        yield found

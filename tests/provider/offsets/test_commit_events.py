"""The store of commit events alone, on both shapes of inlet events that Airflow has had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.provider.offsets.accessors import Event, Inlet
from tubemq_provider.offsets.commit_events import CommitEventStore
from tubemq_provider.testing.offset_store_suite import EventSuite, OpenTry
from tubemq_provider.windows.protocols import OffsetStore


class Listed(Sequence[Event]):
    """Events of one asset as a plain sequence, oldest first."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def __getitem__(self, index: Any) -> Any:
        return self.events[index]

    def __len__(self) -> int:
        return len(self.events)


@pytest.mark.parametrize("shape", [Listed, Inlet])
class TestCommitEventStore(EventSuite):
    @pytest.fixture
    def open_try(self, shape: type[Any]) -> OpenTry:
        self.inlet = shape([])
        self.outlets: dict[int, Event] = {}

        def open_try(name: str) -> CommitEventStore:
            outlet = Event({})
            store = CommitEventStore(inlet_events=self.inlet, outlet_event=outlet, writer=name)
            self.outlets[id(store)] = outlet
            return store

        return open_try

    def finish_task(self, store: OffsetStore) -> None:
        self.inlet.events.append(self.outlets[id(store)])

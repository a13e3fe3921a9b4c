"""Stand-ins of what a task is handed by Airflow, that keep state as Airflow does.

`LedgerState` is the API server with the ledger's backend: the same service on the same tables, on a
database of the test's, one transaction per request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from tubemq_provider.offsets.ledger.envelope import PREFIX
from tubemq_provider.offsets.ledger.service import delete_value, get_value, set_value
from tubemq_provider.offsets.ledger.store import LedgerStore
from tubemq_provider.offsets.ledger.tables import LedgerTables
from tubemq_provider.windows.errors import StoreConflict

ASSET = "tubemq:c1/orders/g1"


class State(dict[str, str]):
    """State that goes through JSON, as Airflow's does."""

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self[key]) if key in self else default

    def set(self, key: str, value: Any) -> None:
        self[key] = json.dumps(value)

    def delete(self, key: str) -> None:
        self.pop(key, None)


class Event:
    def __init__(self, extra: dict[str, Any]) -> None:
        self.extra = extra


class Inlet:
    """Events of one asset, oldest first, with Airflow's fluent order and limit."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.requests: list[int] = []

    def ascending(self, ascending: bool = True) -> Inlet:
        assert not ascending
        return self

    def limit(self, limit: int) -> Inlet:
        self.requests.append(limit)
        return self

    def __iter__(self) -> Any:
        return iter(self.events[::-1][: self.requests[-1]])


class RuntimeErrorOfAirflow(Exception):
    """Error of the task SDK when the API server refuses."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.error = type("ErrorResponse", (), {"detail": {"status_code": status}})()


class LedgerState(State):
    """Asset state as the ledger's backend serves it; `lose_answers` makes Airflow's client repeat a
    request whose answer did not come."""

    def __init__(self, engine: sa.Engine, asset: str = ASSET) -> None:
        super().__init__()
        self.engine = engine
        self.asset = asset
        self.lose_answers = False
        self.longest = 0

    def get(self, key: str, default: Any = None) -> Any:
        if not key.startswith(PREFIX):
            return super().get(key, default)
        return self._request(lambda ledger: get_value(ledger, self.asset, key)) or default

    def set(self, key: str, value: Any) -> None:
        if not key.startswith(PREFIX):
            super().set(key, value)
            return
        self.longest = max(self.longest, len(json.dumps(value)))
        for _ in range(1 + self.lose_answers):
            try:
                self._request(lambda ledger: set_value(ledger, self.asset, key, value))
            except StoreConflict as exc:
                raise RuntimeErrorOfAirflow(409, str(exc)) from exc

    def delete(self, key: str) -> None:
        if not key.startswith(PREFIX):
            super().delete(key)
            return
        self._request(lambda ledger: delete_value(ledger, self.asset, key))

    def _request(self, work: Callable[[LedgerTables], Any]) -> Any:
        with self.engine.begin() as connection:
            return work(LedgerTables(connection, self.engine.dialect.name))


def before_set(state: State, key: str, act: Callable[[], None]) -> None:
    """Let another run `act` just before `key` is set for the next time."""
    store, waiting = state.set, [act]

    def set_after(name: str, value: Any) -> None:
        if name == key and waiting:
            waiting.pop()()
        store(name, value)

    state.set = set_after  # type: ignore[assignment, method-assign]


def ledger_store(
    engine: sa.Engine,
    writer: str,
    *,
    inlet: Inlet | None = None,
    outlet: Event | None = None,
    task_state: State | None = None,
    is_over: Callable[[str], bool] = lambda _: False,
) -> LedgerStore:
    """Return a store as the task `writer` sees it."""
    return LedgerStore(
        asset_state=LedgerState(engine),
        task_state=State() if task_state is None else task_state,
        inlet_events=inlet or Inlet([]),
        outlet_event=outlet or Event({}),
        writer=writer,
        is_over=is_over,
    )

"""Choice of a task's offset store, and its effect on the operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.provider.grouped import grouped
from tests.provider.offsets.accessors import Event, Inlet, State
from tubemq_client import errors
from tubemq_provider.extensions import BUILT_IN
from tubemq_provider.offsets.registry import store_for
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.windows.protocols import OffsetStore

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


class WithLedger(State):
    """The asset state of an API server that has the ledger."""

    def get(self, key: str, default: Any = None) -> Any:
        return {"ledger": 1} if key == "tubemq-ledger/probe" else super().get(key, default)


def context(state: State) -> dict[str, Any]:
    return {
        "asset_state_store": {"a": state},
        "task_state_store": State(),
        "inlet_events": {"a": Inlet([])},
        "outlet_events": {"a": Event({})},
        "ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1),
    }


def operator(kind: Any = TubeMQCursorIngestOperator, **arguments: Any) -> Any:
    given = {"topic": "orders", "group": "lake", "path": "/lake", **arguments}
    return kind(task_id="ingest", **grouped(**given))


@pytest.mark.parametrize("name", BUILT_IN["offset_store"])
def test_a_name_becomes_a_store_that_knows_who_writes(name: str) -> None:
    store = store_for(name, context(WithLedger()), "a")
    assert isinstance(store, OffsetStore)
    assert store.writer == "d|r|t|-1"


def test_the_ledger_is_refused_where_there_is_none() -> None:
    with pytest.raises(errors.ConfigError, match="external_db_managers"):
        store_for("ledger", context(State()), "a")
    with pytest.raises(errors.ConfigError, match="asset_state, events, ledger"):
        store_for("redis", context(State()), "a")


def test_only_the_ledger_lets_cursor_windows_run_side_by_side() -> None:
    assert operator().max_active_tis_per_dag == 1
    assert operator(offset_store="events").max_active_tis_per_dag == 1
    free = operator(offset_store="ledger", initial_position="stable")
    assert free.max_active_tis_per_dag is None


def test_a_store_that_cannot_serve_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(errors.ConfigError, match="offset_store"):
        operator(offset_store="redis")
    with pytest.raises(errors.ConfigError, match="needs asset state"):
        operator(TubeMQWindowIngestOperator, resolver="timeline", offset_store="events")
    with pytest.raises(errors.ConfigError, match=r"on_clear='rewrite'.*forgets"):
        operator(path=None, sink="s3://b/lake", on_clear="rewrite", offset_store="events")

"""Airflow before 3.3: names are in other modules or absent, and features that need them raise."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import tubemq_provider
from tubemq_client.errors import ConfigError
from tubemq_provider import _airflow
from tubemq_provider.offsets.asset_state import AssetProgress

pytestmark = pytest.mark.airflow

ROOT = Path(tubemq_provider.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "_airflow.py")
BASE = {"task_id": "t", "topic": "orders", "group": "lake", "cluster": "test", "path": "/lake"}


class Events:
    """An inlet's events as Airflow 3.1 gives them: a sequence."""

    def __init__(self, *documents: dict[str, object]) -> None:
        self._extras = [type("E", (), {"extra": {"tubemq": found}})() for found in documents]

    def __iter__(self) -> object:
        return iter(self._extras)


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide `airflow.state`, as in an older Airflow."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        _airflow, "find_spec", lambda name: None if name == "airflow.state" else found(name)
    )
    _airflow.has_asset_state.cache_clear()
    yield
    _airflow.has_asset_state.cache_clear()


def test_names_that_have_moved_are_taken_from_one_place() -> None:
    taken = {
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow")
        for alias in node.names
        if alias.name in _airflow.__all__ and node.module != "airflow.configuration"
    }
    assert taken == set()


def test_each_of_them_is_there_on_this_airflow() -> None:
    assert not [
        name for name in _airflow.__all__ if isinstance(getattr(_airflow, name), _airflow._Absent)
    ]


def test_using_an_absent_name_reports_the_needed_version() -> None:
    absent = _airflow._Absent("RetryAction")
    with pytest.raises(ConfigError, match=r"RetryAction is of Airflow 3\.3, and Airflow \d"):
        absent.FAIL  # noqa: B018 - the access is the use
    with pytest.raises(ConfigError, match="is installed"):
        absent("x")


@pytest.mark.usefixtures("older")
@pytest.mark.parametrize("store", ["asset_state", "ledger"])
def test_a_store_that_needs_state_of_assets_is_refused_with_the_way_out(store: str) -> None:
    from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

    said = rf"'{store}' needs Airflow 3\.3.*say offset_store='events'"
    with pytest.raises(ConfigError, match=said):
        TubeMQCursorIngestOperator(**BASE, engine="inline", offset_store=store)
    TubeMQCursorIngestOperator(**BASE, engine="inline", offset_store="events")


@pytest.mark.usefixtures("older")
def test_the_lag_trigger_names_the_sensor_instead() -> None:
    from tubemq_provider.triggers.lag import TubeMQLagTrigger

    with pytest.raises(ConfigError, match=r"TubeMQLagTrigger needs Airflow 3\.3.*LagSensor"):
        TubeMQLagTrigger(topic="orders", group="lake")


def test_without_asset_state_a_position_comes_from_events() -> None:
    events = Events({"position": {"seq": 1}, "next": {"1:0": 28}, "seq": 1})
    found = AssetProgress.of_inlet({"inlet_events": {"asset": events}}, "asset")
    assert found.load_cursor() is None
    assert (found.newest_position() or {})["seq"] == 1

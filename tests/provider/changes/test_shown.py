"""Routed windows as users see them: events of tables, rows of the page, commands."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.provider.changes.test_from_airflow import Scene
from tests.provider.changes.test_from_airflow import scene as scene  # noqa: PLC0414 - fixture
from tools.devkit.airflow.history import add_asset, add_event, empty_tables, window
from tubemq_provider.assets import offsets_asset, sink_asset, tables_alias
from tubemq_provider.cli import tables, windows
from tubemq_provider.hooks.lineage import window_lineage
from tubemq_provider.offsets.commit_events import EVENT_KEY
from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.operators.announce import announce
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.overview.routed_tables import table_rows
from tubemq_provider.windows.run.result import WindowResult

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TABLES = {
    "/lake/a": {"window_id": "x", "values": ["a"], "read": 3, "rows": 2},
    "delta:/lake/b": {"window_id": "y", "values": ["b"], "read": 1, "rows": 0, "failed": "full"},
}
RESULT = WindowResult(
    "cursor", "t", "g", window_id="c-2-h", records={"1:0": 2}, tables=TABLES,
    made_good={"c-1-h": ["delta:/lake/b"]}, sink_ref="/w/window_id=c-2-h",
)  # fmt: skip


def ask(command: Callable[..., Any], **arguments: Any) -> Any:
    """Run a command without what Airflow wraps around it."""
    given = {"asset": None, "sink_conn_id": None, "start": None, "end": None, "output": "json"}
    return inspect.unwrap(command)(SimpleNamespace(**{**given, **arguments}))


def test_each_table_has_an_event_with_its_counts() -> None:
    routes = {"name": "n", "tables": {"a": "/lake/a", "b": "delta:/lake/b"}}
    task = TubeMQCursorIngestOperator(
        task_id="i", topic="topic", group="group", cluster="c", sink="/w", routes=routes,
        engine="inline", initial_position="earliest",
    )  # fmt: skip
    asset = offsets_asset("c", "topic", "group")
    alias = tables_alias(asset)
    assert alias in task.outlets
    added: dict[str, list[Any]] = {}

    def add(asset: Any, extra: Any) -> None:
        added.setdefault(asset.uri, []).append(extra[EVENT_KEY])

    events = {alias: SimpleNamespace(add=add), sink_asset("/w"): SimpleNamespace(extra={})}
    context: Any = {
        "ti": SimpleNamespace(task=task),
        "inlet_events": {asset: []},
        "outlet_events": events,
    }
    announce(context, sink_asset("/w"), asset, RESULT, emit_replayed=False)
    assert list(added) == [sink_asset("/lake/a").uri, sink_asset("delta:/lake/b").uri]
    (first,), (second,) = added.values()
    assert (first["records"], first["window_id"]) == (2, "c-2-h")
    assert (second["made_good"], second["window_id"]) == (True, "c-1-h")


def test_lineage_has_a_dataset_for_each_table(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = ("OperatorLineage", "Dataset", "OutputDataset", "OutputStatisticsOutputDatasetFacet")
    stand_in: Any = SimpleNamespace(**dict.fromkeys(classes, SimpleNamespace))
    for name in ("openlineage.extractors", "common.compat.openlineage.facet"):
        monkeypatch.setitem(sys.modules, f"airflow.providers.{name}", stand_in)
    lineage = window_lineage("c", "t", "/w", RESULT)
    counts = {
        output.name: output.outputFacets.get("outputStatistics") for output in lineage.outputs
    }
    assert list(counts) == ["/w", "/lake/a", "/lake/b"]
    assert (counts["/lake/a"].rowCount, counts["/lake/b"]) == (2, None)


def test_the_page_has_a_row_for_each_table() -> None:
    with empty_tables() as session:
        group = Group("tubemq:c/t/g", add_asset(session, "tubemq:c/t/g"), session)
        for number, good in ((1, {}), (2, {"made_good": {"c-1-h": ["delta:/lake/b"]}})):
            event = {**window(f"c-{number}-h", {"1:0": [0, 28]}), "tables": TABLES, **good}
            add_event(session, group.asset_id, number, event)
        by_hand = {**window("c-3-h", {}), "tables": {"x": {"rows": "y"}}}
        add_event(session, group.asset_id, 3, by_hand)
        failed, well = table_rows(group)["tables"]
    assert (failed["table"], failed["failed"], failed["windows"]) == ("delta:/lake/b", 1, 1)
    assert failed["reason"] == "full"
    assert (well["rows"], well["windows"], well["failed"], well["window"]) == (4, 2, 0, "c-2-h")


def test_commands_show_tables_and_the_windows_that_a_route_missed(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = f"{tmp_path}/w"
    routes: Any = {"name": "n", "unrouted": "ignore", "on_route_failure": "isolate",
                   "tables": {"a": f"{tmp_path}/a", "b": f"{tmp_path}/later/b"}}  # fmt: skip
    for number in (1, 2):
        scene.produce(("a", b"a"), ("b", b"b"), ("late_1", b"%d" % number))
        scene.run(f"t{number}", sink=home, routes=routes)
    assert ask(tables.show_tables, sink=home) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["table"], first["rows"], first["windows"]) == (f"{tmp_path}/a", 2, 2)
    assert (second["rows"], len(second["failed"])) == (0, 2)
    assert ask(windows.show_coverage, sink=home) == 1
    (scope,) = json.loads(capsys.readouterr().out)
    assert len(scope["failed_tables"]) == 2

    routes["tables"]["late_*"] = f"{tmp_path}/{{stream_id}}"
    (tmp_path / "later").mkdir()
    scene.produce(("late_1", b"3"))
    scene.run("t3", sink=home, routes=routes)
    assert ask(tables.show_tables, sink=home) == 0
    capsys.readouterr()
    given = {"sink": home, "routes": json.dumps(routes), "route": None}
    assert ask(tables.show_missed, **given) == 1
    (missed,) = json.loads(capsys.readouterr().out)
    assert (missed["route"], len(missed["windows"])) == ("late_*", 2)
    assert ask(tables.show_missed, **given, output="table") == 1
    assert "TubeMQWindowIngestOperator(" in capsys.readouterr().out
    fill = {"sink": f"{home}_fill", "group": "lake_fill", "mode": "time"}
    offsets = {
        name: json.dumps({"orders": missed[name]})
        for name in ("starting_offsets", "ending_offsets")
    }
    routes = {"name": "fill", "unrouted": "ignore",
              "tables": {"late_*": routes["tables"]["late_*"]}}  # fmt: skip
    result = scene.run("f", **fill, **offsets, routes=routes, initial_position=None)
    assert result.total == 2


def canal(table: str, id_: int) -> bytes:
    rows = [{"id": str(id_), "name": table}]
    body = {"type": "INSERT", "isDdl": False, "database": "d", "table": table, "es": 1}
    return json.dumps({**body, "data": rows, "old": None}).encode()


def test_the_printed_task_fills_the_tables_of_a_database_to_the_letter(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It divides records as the routes do. A pattern that also matches values of another route is
    named, because their records would be written twice."""
    decode = {"format": "canal", "schema": "id bigint, name string"}
    member = {"sink": f"{tmp_path}/{{_table}}", "decode": decode}
    routes: Any = {"name": "n", "by": "_table", "format": "canal", "unrouted": "ignore",
                   "tables": {"goods": member, "shop_1": member}}  # fmt: skip
    bodies = [canal(name, number) for number, name in enumerate(["goods", "shop_1", "shop_2"])]
    scene.produce(*(("s", body) for body in bodies))
    scene.run("t1", sink=f"{tmp_path}/w", routes=routes)

    def printed(pattern: str) -> str:
        now = {**routes, "tables": {**routes["tables"], pattern: member}}
        given = {"sink": f"{tmp_path}/w", "routes": json.dumps(now), "route": pattern}
        capsys.readouterr()
        assert ask(tables.show_missed, **given, output="table") == 1
        return capsys.readouterr().out

    assert "Not so: 'shop_*' matches shop_1, which another route takes" in printed("shop_*")
    text = printed("shop_2")
    assert "Not so" not in text
    task = text[text.index("TubeMQWindowIngestOperator(") :].replace("…", repr(member))
    given = eval(task, {"TubeMQWindowIngestOperator": dict})
    del given["task_id"]
    given |= {name: json.dumps(given[name]) for name in ("starting_offsets", "ending_offsets")}
    result = scene.run("f", **given, mode="time", initial_position=None)
    assert (result.total, result.notices) == (1, {"unrouted": 2})
    assert (tmp_path / "shop_2").exists()

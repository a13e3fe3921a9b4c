"""Output besides the log: metrics, links, lineage, notifications; none has a secret."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.observability.stats import Stats

from tubemq_client import OffsetRange, Partition
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_provider import links
from tubemq_provider.assets import create_asset, offsets_asset, sink_asset, without
from tubemq_provider.hooks import lineage, metrics
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.notifications import TubeMQNotifier
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.operators.offsets import TubeMQOffsetsOperator
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.planning.read_limits import Throughput
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.spaces import space_of

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

DOCS = Path(__file__).parents[3] / "docs"


class Backend:
    """Keeps what is sent, as a StatsD server does."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []

    def incr(self, stat: str, count: int = 1, rate: float = 1, *, tags: Any = None) -> None:
        self.sent.append(("incr", stat, count))

    def gauge(self, stat: str, value: float, rate: float = 1, *, tags: Any = None) -> None:
        self.sent.append(("gauge", stat, value))

    def timing(self, stat: str, dt: Any, *, tags: Any = None) -> None:
        self.sent.append(("timing", stat, dt.total_seconds()))


@pytest.fixture
def backend() -> Any:
    kept: Any = Backend()
    Stats.initialize(factory=lambda: kept, export_legacy_names=True)
    yield kept
    Stats.initialize(factory=None, export_legacy_names=True)  # type: ignore[arg-type]


def result(**members: Any) -> WindowResult:
    given = {"window_id": "c-1-x", "records": {"1:0": 5}, "bytes": 50, "pace": Throughput(5, 250)}
    return WindowResult("cursor", "orders", "lake", **{**given, **members})


def test_a_window_is_counted_with_tags_and_with_a_legacy_name(backend: Backend) -> None:
    metrics.count_window(result(gaps={"1:0": [[0, 56]]}), "eu.west", SPACE)
    sent = {name: value for _, name, value in backend.sent}
    assert sent["tubemq.window.records"] == 5
    assert sent["tubemq.eu__west.orders.lake.window.records"] == 5
    assert sent["tubemq.window.bytes"] == 50
    assert sent["tubemq.window.gap_entries"] == 2
    assert sent["tubemq.window.seconds"] == 0.25
    assert "tubemq.window.replayed" not in sent


def test_a_window_lost_to_retention_counts_its_gap(backend: Backend) -> None:
    gone = {"records": {}, "empty": True, "gaps": {"1:0": [[0, 56]]}}
    metrics.count_window(result(**gone), "test", SPACE)
    assert ("incr", "tubemq.window.gap_entries", 2) in backend.sent
    backend.sent.clear()
    metrics.count_window(result(**gone, replayed=True), "test", SPACE)
    assert "tubemq.window.gap_entries" not in {name for _, name, _ in backend.sent}


def test_the_length_of_an_entry_is_the_sources(backend: Backend) -> None:
    gaps = {"broker-a:0": [[0, 56]]}
    metrics.count_window(result(gaps=gaps), "test", space_of("rocketmq"))
    assert ("incr", "tubemq.window.gap_entries", 56) in backend.sent


@pytest.mark.parametrize(
    ("members", "counted"),
    [
        ({"replayed": True}, "window.replayed"),
        ({"window_id": None, "empty": True, "records": {}}, "window.empty"),
        ({"replayed": True, "recovered": ("c-0-x",)}, "window.recovered"),
    ],
)
def test_a_window_not_written_counts_no_records(
    members: dict[str, Any], counted: str, backend: Backend
) -> None:
    metrics.count_window(result(**members), "test", SPACE)
    names = {name for _, name, _ in backend.sent}
    assert f"tubemq.{counted}" in names
    assert "tubemq.window.records" not in names


def test_a_backend_that_fails_fails_no_task() -> None:
    Stats.initialize(factory=object, export_legacy_names=True)  # type: ignore[arg-type]
    try:
        metrics.count_window(result(), "test", SPACE)
        metrics.gauge_group("test", "orders", "lake", lag=3, behind_seconds=1.0)
    finally:
        Stats.initialize(factory=None, export_legacy_names=True)  # type: ignore[arg-type]


def test_the_table_and_the_dashboard_name_what_is_sent() -> None:
    page = (DOCS / "metrics.md").read_text()
    assert set(re.findall(r"^\| `tubemq\.([\w.]+)`", page, re.MULTILINE)) == set(metrics.NAMES)
    dashboard = json.loads((DOCS / "grafana" / "tubemq.json").read_text())
    asked = {target["expr"] for panel in dashboard["panels"] for target in panel["targets"]}
    known = {"airflow_tubemq_" + name.replace(".", "_") for name in metrics.NAMES}
    named = {name for expr in asked for name in re.findall(r"airflow_tubemq_\w+", expr)}
    assert named <= known | {
        "airflow_tubemq_window_seconds_sum",
        "airflow_tubemq_window_seconds_count",
    }
    assert len(named) >= 6


def test_links_lead_to_assets_and_the_master_without_secrets() -> None:
    task = TubeMQOffsetsOperator(task_id="t", topic="orders", group="lake", cluster="test")
    key: Any = None
    assert (
        links.TubeMQOffsetsLink()
        .get_link(task, ti_key=key)
        .endswith("/assets?name_pattern=tubemq%3Atest%2Forders%2Flake")
    )
    assert links.TubeMQTopicLink().get_link(task, ti_key=key) == ""
    task.admin_url = "http://m1:8080"
    assert links.TubeMQTopicLink().get_link(task, ti_key=key) == (
        "http://m1:8080/webapi.htm?method=admin_query_topic_info&topicName=orders"
    )
    assert links.TubeMQSinkLink().get_link(task, ti_key=key) == ""


def test_the_link_to_the_sink_leads_to_no_other_asset() -> None:
    """A run without records takes the sink's asset off its outlets; the author's own was the last
    one then."""
    task = TubeMQCursorIngestOperator(
        task_id="t",
        topic="orders",
        group="lake",
        path="/lake/orders",
        outlets=[Asset(name="mine", uri="file:///mine")],
    )
    key: Any = None
    found = links.TubeMQSinkLink().get_link(task, ti_key=key)
    assert found.endswith("name_pattern=file%3A%2F%2F%2Flake%2Forders")
    task.outlets = without(task.outlets, sink_asset("/lake/orders"))
    assert links.TubeMQSinkLink().get_link(task, ti_key=key) == ""


def test_the_link_to_the_page_is_of_the_tasks_dag_and_gone_with_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = TubeMQOffsetsOperator(task_id="t", topic="orders", group="lake", cluster="test")
    key: Any = SimpleNamespace(dag_id="loads & more")
    found = links.TubeMQPageLink().get_link(task, ti_key=key)
    assert found.endswith("/tubemq/?dag_id=loads%20%26%20more")
    monkeypatch.setenv("AIRFLOW__TUBEMQ__PAGE", "False")
    assert links.TubeMQPageLink().get_link(task, ti_key=key) == ""


def test_assets_of_this_provider_are_one_group_in_the_ui() -> None:
    made = (offsets_asset("c", "t", "gg"), create_asset(cluster="c", topic="t"), sink_asset("/l"))
    assert {asset.group for asset in made} == {"tubemq"}
    assert all(isinstance(asset, Asset) for asset in made)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("/lake/orders", ("file", "/lake/orders")),
        ("delta:/lake/orders", ("file", "/lake/orders")),
        ("s3://lake/orders/", ("s3://lake", "orders")),
        ("iceberg:main/sales.orders", ("iceberg://main", "sales.orders")),
        ("postgresql://u:p@h:5432/db?table=s.t", ("postgresql://h:5432", "db/s.t")),
    ],
)
def test_a_sinks_data_has_a_name_in_lineage(spec: str, expected: tuple[str, str]) -> None:
    assert lineage.sink_dataset(spec) == expected


def test_hooks_report_input_and_output_to_the_lineage_collector(
    hook: TubeMQHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.lineage import HookLineageCollector

    collector = HookLineageCollector()
    monkeypatch.setattr(lineage, "get_hook_lineage_collector", lambda: collector)
    TubeMQNotifier(topic="orders", message="hello").notify({})  # type: ignore[arg-type]
    partition = Partition.from_key("orders", "1:0")
    list(hook.read_range(OffsetRange(partition, 0, 0), group="lake"))
    told = collector.collected_assets
    assert [item.asset.uri for item in told.outputs] == ["tubemq://test/orders"]
    assert [item.asset.uri for item in told.inputs] == ["tubemq://test/orders?group=lake"]


def test_a_notification_is_a_record(mq: EmbeddedTubeMQ, hook: TubeMQHook) -> None:
    said = TubeMQNotifier(topic="orders", message={"dag": "{{ dag }}"}, stream_id="alert")
    said.message = {"dag": "orders_to_lake"}
    said.notify({})  # type: ignore[arg-type]
    asyncio.run(said.async_notify({}))  # type: ignore[arg-type]
    for broker_id in (1, 2):
        for store in (0, 1):
            mq.broker(broker_id).store("orders", store).flush()
    ends = hook.ends("orders", "lake")
    ranges = [OffsetRange(partition, 0, found.max_offset) for partition, found in ends.items()]
    found = [(m.stream_id, m.body) for r in ranges for m in hook.read_range(r, group="lake")]
    assert found == [("alert", b'{"dag": "orders_to_lake"}')] * 2


def test_a_notification_of_each_run_names_its_own(mq: EmbeddedTubeMQ, hook: TubeMQHook) -> None:
    """The Dag processor calls one notifier for all runs that have failed since its last look: each
    record named the first of them."""
    notifier = TubeMQNotifier(topic="orders", message="{{ run_id }} failed")
    for run_id in ("r1", "r2"):
        notifier({"dag": DAG("d", schedule=None), "run_id": run_id})
    ends = hook.ends("orders", "lake", stable=False)
    ranges = [OffsetRange(partition, 0, found.max_offset) for partition, found in ends.items()]
    found = [m.body for r in ranges for m in hook.read_range(r, group="lake")]
    assert sorted(found) == [b"r1 failed", b"r2 failed"]


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"dag_run": {"dag_id": "d", "dag_run_id": "r"}, "deadline": {"id": "1"}}, "d r"),
        ({"dag": DAG("d", schedule=None), "run_id": "r", "reason": "timed_out"}, "d r"),
        (
            {
                "dag": DAG("d", schedule=None),
                "ti": SimpleNamespace(task_id="t"),
                "run_id": "r",
            },
            "d t r",
        ),
    ],
)
def test_the_default_message_needs_no_more_than_a_callback_has(context: Any, said: str) -> None:
    """A deadline has no task, and no Dag but that of its run; nothing was sent."""
    notifier = TubeMQNotifier(topic="alerts")
    notifier.render_template_fields(context)
    assert notifier.message == said

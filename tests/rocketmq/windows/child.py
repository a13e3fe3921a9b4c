"""One window of RocketMQ into a sink, in this process or in one that kills itself."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from rocketmq_client import ClientSettings, Credentials
from rocketmq_client.model import Address
from tests.kit.forked import CONTEXT
from tests.provider.windows.kill_child import Killer, Point
from tests.provider.windows.run.test_kill_points import CHILD_TIMEOUT
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sources.base import Source
from tubemq_provider.sources.registry import open_source
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Sink
from tubemq_provider.windows.run._base import Planner
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

GROUP = "lake"


def sink_of(kind: str, root: str) -> Sink:
    """Return the sink below `root`: a directory, or a table in its own file."""
    place = f"{root}/{kind}"
    if kind == "iceberg":
        Path(place).mkdir(exist_ok=True)
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{place}/catalog.db",
            "warehouse": f"file://{place}",
        }
        return sink_for("iceberg:lake/sales.orders", catalog_properties=catalog)
    specs = {
        "parquet": f"{root}/lake",
        "delta": f"delta:{place}",
        "jdbc": f"sqlite:///{place}.db?table=orders",
    }
    return sink_for(specs[kind], staging_root=None if kind == "parquet" else f"{root}/staging")


def run_window(
    name_server: Address,
    topic: str,
    root: str,
    task: str,
    kill_at: Point | None = None,
    *,
    policies: Mapping[str, str] | None = None,
    tags: tuple[str, ...] = (),
    max_records: int | None = None,
    between: tuple[datetime, datetime] | None = None,
    kind: str = "parquet",
    auth: Credentials | None = None,
) -> WindowResult:
    """Run one window: to the stable end of the topic, or `between` two instants."""
    chosen = Policies.of(**(policies or {}))
    sink = sink_of(kind, root)
    scope = WindowScope("test", topic, GROUP, sink.identity, tags, source="rocketmq")
    with open_source(
        "rocketmq",
        ClientSettings((name_server,), auth=auth),
        identity="test",
        topic=topic,
        group=GROUP,
        filters=tags,
    ) as source:
        if between is None:
            planner = _cursor(scope, source, chosen, max_records)
        else:
            resolver = source.resolver("store_time", {})
            planner = TimePlanner(scope, *between, resolver, source.ends, sink.boundaries, chosen)
        return window_run(
            planner,
            FileOffsetStore(Path(root) / f"offsets-{scope.scope_hash}", task=task),
            sink,
            InlineEngine.for_source(source, policies=chosen, row_group_bytes=100),
            attempt=task,
            observer=Killer(kill_at),
            mirror=source.mirror,
        ).run()


def run_killed(
    name_server: Address, topic: str, root: str, task: str, kill_at: Point, **options: object
) -> None:
    """Run `run_window` in a process that kills itself at a point, which it must reach."""
    words = (name_server, topic, root, task, kill_at)
    child = CONTEXT.Process(target=run_window, args=words, kwargs=options)
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL


def _cursor(
    scope: WindowScope, source: Source, policies: Policies, max_records: int | None
) -> Planner:
    return CursorPlanner(
        scope,
        source.ends,
        initial_position="earliest",
        policies=policies,
        max_records=max_records,
        witness=source.record_lookup(),
    )

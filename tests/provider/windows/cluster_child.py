"""One cursor run against a cluster, in this process or in one that kills itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.kit.engines import inline_engine
from tests.provider.windows.kill_child import Killer, Point
from tubemq_client.config import ClientConfig
from tubemq_client.sync import Metadata, RangeReader
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

TOPIC = "orders"
GROUP = "g1"


def run_window(
    masters: str,
    root: str,
    task: str,
    kill_at: Point | None = None,
    policies: Mapping[str, str] | None = None,
    epoch: str = "",
) -> WindowResult:
    """Run one window to the stable end of the topic."""
    settings = ClientConfig.parse({"masters": masters}).settings()
    chosen = Policies.of(**(policies or {}))
    sink = ParquetSink(Path(root) / "lake")
    scope = WindowScope("test", TOPIC, GROUP, sink.identity, epoch=epoch)
    with Metadata(settings) as metadata, RangeReader(settings, group=GROUP) as witness:
        planner = CursorPlanner(
            scope,
            lambda: metadata.reachable_ends(TOPIC, GROUP),
            initial_position="earliest",
            policies=chosen,
            witness=witness,
        )
        return window_run(
            planner,
            FileOffsetStore(Path(root) / "offsets", task=task),
            sink,
            inline_engine(settings, policies=chosen, row_group_bytes=100),
            attempt=task,
            observer=Killer(kill_at),
            mirror=lambda _: None,
        ).run()

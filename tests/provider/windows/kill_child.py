"""One cursor run in a separate process, which kills itself at a given point.

File store, Parquet sink and inline engine are the real ones; only the reader is a fake. The kill is
SIGKILL, so nothing gets the chance to clean up. Imported by a fork server: importing it must start
no thread and touch no file.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from tests.provider.windows.fake_reader import TOPIC, ends_of, open_fake
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.protocols import Step
from tubemq_provider.windows.run.kinds import window_run

Point = tuple[str, str, int]
"""Step, point, and which occurrence of it (from 1)."""


@dataclass
class Killer:
    """Counts points and ends the process at one of them."""

    at_point: Point | None = None
    seen: list[Point] = field(default_factory=list)

    def at(self, step: Step, point: str) -> None:
        count = sum(known[:2] == (step, point) for known in self.seen) + 1
        self.seen.append((str(step), point, count))
        if self.seen[-1] == self.at_point:
            os.kill(os.getpid(), signal.SIGKILL)


def run_window(
    root: str, task: str, ends: dict[str, int], kill_at: Point | None, result_path: str | None
) -> None:
    """Run one window up to `ends`; leave result and points seen in `result_path`."""
    sink = ParquetSink(Path(root) / "lake")
    scope = WindowScope("c1", TOPIC, "g1", sink.identity)
    killer = Killer(kill_at)
    run = window_run(
        CursorPlanner(scope, lambda: ends_of(ends), initial_position="earliest"),
        FileOffsetStore(Path(root) / "offsets", task=task),
        sink,
        InlineEngine(open_fake, row_group_bytes=200),
        attempt=f"{task}-{os.getpid()}",
        observer=killer,
        mirror=lambda _: None,
    )
    result = run.run()
    if result_path:
        outcome = {"result": result.to_document(), "points": killer.seen}
        Path(result_path).write_text(json.dumps(outcome))

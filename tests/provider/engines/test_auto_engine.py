"""Choice of the engine by the size of a window, which is known only when it is planned."""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any

import pytest

from tests.provider.windows.fake_reader import KEYS, TOPIC
from tubemq_provider.engines.auto import AutoEngine
from tubemq_provider.ingest.progress import ProgressLogger
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import Engine, IngestCounts, IngestWatch, Staging


class Noting(Engine):
    """Engine that records its calls only."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self._name, self.asked = name, asked

    @property
    def name(self) -> str:
        return self._name

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        self.asked.append(self.name)
        watch.on_read(plan, "1:0", 1, 1)
        return IngestCounts(dict.fromkeys(plan.ranges, 0))

    def cancel(self) -> None:
        self.asked.append(f"{self.name} cancelled")


def plan_of(entries: int) -> WindowPlan:
    scope = WindowScope("c1", TOPIC, "g1", "s")
    return WindowPlan.cursor(scope, 1, {KEYS[0]: (0, 28 * entries)})


@pytest.mark.parametrize(("entries", "name"), [(10, "inline"), (11, "session")])
def test_small_windows_are_read_here_and_large_ones_in_spark(entries: int, name: str) -> None:
    asked: list[str] = []
    told: list[Any] = []
    engine = AutoEngine(
        lambda: Noting("inline", asked), lambda: Noting("session", asked), inline_up_to=10
    )
    assert engine.name == "auto"
    watch = IngestWatch(on_read=lambda _, *seen: told.append(seen))
    engine.ingest(plan_of(entries), Staging("w", "a", ""), watch)
    assert asked == [name]
    assert engine.name == name
    assert told == [("1:0", 1, 1)]
    engine.cancel()
    assert asked == [name, f"{name} cancelled"]


def test_a_killed_engine_reads_nothing() -> None:
    asked: list[str] = []
    engine = AutoEngine(lambda: Noting("inline", asked), lambda: Noting("session", asked))
    engine.cancel()
    with pytest.raises(WindowError, match="cancelled"):
        engine.ingest(plan_of(1), Staging("w", "a", ""), IngestWatch())
    assert asked == []


def test_the_url_of_sparks_ui_is_available_as_soon_as_it_exists() -> None:
    class Spark(Noting):
        def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
            watch.on_page("http://driver:4040")
            pages.append("before the read")
            return super().ingest(plan, staging, watch)

    pages: list[str] = []
    asked: list[str] = []
    log: Any = logging.getLogger("test")
    progress_logger = ProgressLogger(log, threading.Event(), "/lake", on_page=pages.append)
    auto = AutoEngine(
        lambda: Noting("inline", asked), lambda: Spark("session", asked), inline_up_to=1
    )
    auto.ingest(plan_of(5), Staging("w", "a", ""), progress_logger.watch())
    assert pages == ["http://driver:4040", "before the read"]


def test_the_progress_of_spark_is_reported_as_by_the_engine_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Spark(Noting):
        def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
            watch.on_tasks(plan, 3, 8)
            return IngestCounts(dict.fromkeys(plan.ranges, 0))

    log: Any = logging.getLogger("test")
    progress_logger = ProgressLogger(
        log, threading.Event(), "/lake", clock=itertools.count(0, 60).__next__
    )
    auto = AutoEngine(lambda: Noting("inline", []), lambda: Spark("session", []), inline_up_to=1)
    with caplog.at_level(logging.INFO, "test"):
        auto.ingest(plan_of(5), Staging("w", "a", ""), progress_logger.watch())
    assert "3 of 8 tasks are done" in caplog.text

"""Windows on two genuine brokers: one dies and comes back, then it is retired for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.system.real import topics
from tests.system.real.pipeline import GROUP, Pipeline, wait_for
from tools.devkit.tubemq.second_broker import SecondBroker
from tools.devkit.tubemq.two_brokers import TwoBrokers
from tubemq_client import ClientSettings, Metadata
from tubemq_provider.ingest.maintenance import book_of
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.errors import BoundaryConflict
from tubemq_provider.windows.plan import WindowScope

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC = topics.RETIRED.name


def partitions(metadata: Metadata) -> int:
    return len(metadata.topic(TOPIC, GROUP).subscribable)


def brokers(keys: Iterable[str]) -> set[str]:
    return {key.partition(":")[0] for key in keys}


def test_one_of_two_brokers_dies_comes_back_and_is_retired(
    two_brokers: TwoBrokers, tmp_path: Path
) -> None:
    second = two_brokers.second
    settings = ClientSettings(masters=two_brokers.masters, heartbeat_period_ms=1_000)
    pipeline = Pipeline(settings, tmp_path, TOPIC)
    with Metadata(settings) as metadata:
        boundaries = [pipeline.ends(metadata, stable=True)]
        assert pipeline.cursor_window().begun  # with every broker there
        pipeline.produce(24, over=4)
        boundaries.append(pipeline.ends(metadata, stable=True))
        assert brokers(boundaries[1]) == {"1", "2"}

        # It dies with twelve records that no window has: they wait, those of the other do not.
        second.kill()
        meanwhile = pipeline.cursor_window()
        assert (meanwhile.total, brokers(meanwhile.absent)) == (12, {"2"})
        assert any("keep their place" in warning for warning in meanwhile.warnings)
        second.start()
        wait_for(lambda: partitions(metadata) == 4)
        late = pipeline.cursor_window()
        assert (late.total, brokers(late.absent)) == (12, set())
        assert pipeline.time_window(0, boundaries).total == 24

        it_is_retired(pipeline, metadata, second, boundaries)

    assert pipeline.each_once("cursor")
    assert pipeline.each_once("time")


def it_is_retired(
    pipeline: Pipeline,
    metadata: Metadata,
    second: SecondBroker,
    boundaries: list[Mapping[str, int]],
) -> None:
    """Remove the broker for good: windows of time continue after the command."""
    second.decommission()
    wait_for(lambda: partitions(metadata) == 2)
    second.kill()
    pipeline.produce(12)
    boundaries.append(pipeline.ends(metadata, stable=True))
    assert brokers(boundaries[2]) == {"1"}
    assert pipeline.cursor_window().total == 12
    with pytest.raises(BoundaryConflict, match="offsets retire"):
        pipeline.time_window(1, boundaries)
    sink = ParquetSink(pipeline.root / "time")
    book_of(sink, WindowScope("genuine", TOPIC, GROUP, sink.identity)).retire(second.id)
    assert pipeline.time_window(1, boundaries).total == 12

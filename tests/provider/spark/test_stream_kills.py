"""A stream on a cluster whose driver and one of whose executors are killed: a small drill. By hand
(minutes on a busy machine); CI kills workers of a local stream (`test_streams.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.devkit.spark import SparkCluster
from tools.drill.stream_driver import delta_batch
from tools.drill.streams import TOPIC, Feed, StreamDrill
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_the_table_has_each_record_once_after_kills_of_driver_and_executor(
    cluster: SparkCluster, tmp_path: Path, sink: str
) -> None:
    topic = TopicSpec(TOPIC, partitions=2)
    with EmbeddedTubeMQ(brokers=2, topics=[topic], http=False) as server:
        drill = StreamDrill(cluster, Feed(server), tmp_path / "job", sink=sink)
        found = drill.play(kills=2, batches=6, limit_s=400)
    assert found.kills == {"driver": 1, "executor": 1}, found.report()
    assert found.clean, found.report()
    assert found.records > 0


class Batch:
    """Part of a frame that the function for `foreachBatch` uses."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def toArrow(self) -> Any:  # noqa: N802 - Spark's name
        return pa.table({"n": pa.array(self._numbers, pa.int64())})


def test_a_batch_that_comes_again_is_not_written_again(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = str(tmp_path / "table")
    commit: Any = delta_batch(table, "job")
    commit(Batch(1, 2), 0)
    commit(Batch(1, 2), 0)  # killed after the commit, before the checkpoint
    commit(Batch(3), 1)
    commit(Batch(3), 1)
    delta_batch(table, "another job")(Batch(4), 0)  # type: ignore[arg-type]
    found = deltalake.DeltaTable(table).to_pyarrow_table()["n"].to_pylist()
    assert sorted(found) == [1, 2, 3, 4]

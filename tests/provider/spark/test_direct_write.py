"""The direct write: files of tasks, acceptance by the driver, and sizes of files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.provider.spark.world import World
from tubemq_client import OffsetRange
from tubemq_client.errors import ConfigError
from tubemq_client.sync import RangeReader
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import IngestWatch, Staging
from tubemq_provider.windows.verify import check_counts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

pyspark = pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")

from pyspark.sql import SparkSession  # noqa: E402

from tubemq_provider.engines.direct_write_job import accept_manifest  # noqa: E402
from tubemq_provider.engines.session import SessionEngine  # noqa: E402
from tubemq_provider.spark import spark_options  # noqa: E402
from tubemq_provider.spark.direct_write_tasks import (  # noqa: E402
    OPTION,
    DirectWriteSource,
    TaskCommit,
    WriteTask,
)


def silent(point: str) -> None:
    """Ignore progress."""


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    (tmp_path / "_direct_write").mkdir()
    return Staging("w-1", "try-1", str(tmp_path))


class Job:
    """Tasks of a window as Spark would run them, here one after the other in this process."""

    def __init__(self, world: World, plan: WindowPlan, staging: Staging, **order: Any) -> None:
        options = {**spark_options(world.settings, plan), "corruptRecords": "drop"}
        options |= order.pop("source", {})
        if parts := order.pop("min_partitions", None):
            options["minPartitions"] = str(parts)
        told = WriteTask(str(Path(staging.path) / "_direct_write"), **order)
        source = DirectWriteSource({**options, OPTION: told.to_json()})
        self.reader = source.reader(None)  # type: ignore[arg-type]
        self.tasks = self.reader.partitions()

    def run(self, task: int) -> list[TaskCommit]:
        found = [b.to_pylist() for b in self.reader.read(self.tasks[task])]
        return [TaskCommit(**row) for rows in found for row in rows]

    def run_all(self) -> list[TaskCommit]:
        return [row for task in range(len(self.tasks)) for row in self.run(task)]


def bodies(staging: Staging) -> list[bytes]:
    files = Path(staging.path).glob("*.parquet")
    return sorted(body for f in files for body in pq.read_table(f).column("value").to_pylist())


def test_files_of_other_tries_are_never_accepted(world: World, staging: Staging) -> None:
    world.produce(200)
    plan = world.plan(world.whole())
    job = Job(world, plan, staging, min_partitions=6)
    job.run(0)  # a try that Spark gave up: its files are there, its manifest is not
    manifest = job.run_all()
    job.run(1)  # a copy that finished after the winner
    landed = list((Path(staging.path) / "_direct_write").iterdir())
    counts = accept_manifest(plan, staging, manifest)
    assert counts.total == 200
    assert bodies(staging) == world.expected(world.whole())
    files = list(Path(staging.path).glob("*.parquet"))
    assert len(landed) == len(files) + 2
    assert not (Path(staging.path) / "_direct_write").exists()
    with pytest.raises(FileNotFoundError):
        job.run(0)  # a task that still runs has nowhere to write


def test_over_several_connections_files_are_the_same(
    world: World, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = RangeReader.read, []

    def spied(reader: RangeReader, range_: OffsetRange, *, parallel: int = 1) -> Any:
        asked.append(parallel)
        return read(reader, range_, parallel=parallel)

    monkeypatch.setattr(RangeReader, "read", spied)
    world.produce(2 * 4_096 * 3, size=4)  # less than 4096 entries are read over one
    ranges = {"1:0": world.whole()["1:0"]}
    job = Job(world, world.plan(ranges), staging, source={"connectionsPerTask": "3"})
    (told,) = job.run_all()
    table = pq.read_table(Path(staging.path) / "_direct_write" / told.path)
    assert table.column("value").to_pylist() == world.expected(ranges)  # and in this order
    assert (told.start, told.end, told.rows) == (*ranges["1:0"], table.num_rows)
    assert asked == [3]


def test_a_try_that_still_writes_does_not_hold_up_a_window(
    world: World, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(40)
    plan = world.plan(world.whole())
    job = Job(world, plan, staging)
    manifest, remove = job.run_all(), shutil.rmtree

    def remove_while_a_copy_runs(path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            job.run(0)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", remove_while_a_copy_runs)
    assert accept_manifest(plan, staging, manifest).total == 40
    assert [path.suffix for path in Path(staging.path).iterdir()].count("") == 0


@pytest.mark.parametrize("doubled", [False, True])
def test_a_manifest_that_does_not_tile_the_plan_is_refused(
    world: World, staging: Staging, *, doubled: bool
) -> None:
    world.produce(80)
    plan = world.plan(world.whole())
    manifest = Job(world, plan, staging).run_all()
    counts = accept_manifest(plan, staging, [*manifest, manifest[0]] if doubled else manifest[1:])

    with pytest.raises(CountMismatch, match="planned"):
        check_counts(plan, counts)


def test_executors_with_another_file_system_are_detected(world: World, staging: Staging) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    manifest = Job(world, plan, staging).run_all()
    for path in (Path(staging.path) / "_direct_write").iterdir():
        path.unlink()
    with pytest.raises(ConfigError, match="staging_root"):
        accept_manifest(plan, staging, manifest)


def test_small_splits_share_a_file_and_large_ones_are_cut(world: World, staging: Staging) -> None:
    world.produce(400, size=2_000)
    plan = world.plan(world.whole())
    together = Job(world, plan, staging, target_bytes=1 << 30, tasks=1, min_partitions=8)
    assert len({row.path for row in together.run_all() if row.path}) == 1
    target = 100_000
    cut = Job(world, plan, staging, target_bytes=target, tasks=2, min_partitions=8)
    assert len(cut.tasks) == 2
    manifest = cut.run_all()
    folder = Path(staging.path) / "_direct_write"
    sizes = {row.path: (folder / row.path).stat().st_size for row in manifest if row.path}
    assert len(sizes) > 4
    full = [size for size in sizes.values() if size >= target]
    assert len(full) >= len(sizes) - len(cut.tasks)  # but for the last one of each task
    # The bodies do not compress, so a row group in memory is about as large on disk.
    assert max(full) < 4 * target
    assert accept_manifest(plan, staging, manifest).total == 400
    assert bodies(staging) == world.expected(world.whole())
    groups = pq.read_metadata(next(Path(staging.path).glob("*.parquet")))
    for index in range(groups.num_row_groups):
        known = groups.row_group(index).column(1).statistics
        assert known.min == known.max  # one partition, known from the footer alone


def test_a_window_is_written_by_tasks_published_once_and_read_by_spark(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.produce(120)
    plan = world.plan(world.whole())
    sink = ParquetSink(tmp_path)
    engine = SessionEngine(
        world.settings, target_file_bytes=1 << 20, options={"minPartitions": "5"}
    )
    for attempt in ("first", "second"):
        staging = sink.begin(plan, attempt)
        counts = engine.ingest(plan, staging, IngestWatch())
        assert sink.publish(staging, plan, counts, silent).won == (attempt == "first")
    assert len(sink.marker(plan.window_id).files) == 2  # type: ignore[union-attr]
    assert spark.read.parquet(str(tmp_path)).count() == 120


def test_corrupt_records_are_quarantined_next_to_the_window(world: World, tmp_path: Path) -> None:
    world.produce(40)
    plan = world.plan({"1:0": (0, world.end("1:0"))})
    world.mq.broker(1).corrupt_next(1)
    sink = ParquetSink(tmp_path)
    staging = sink.begin(plan, "try")
    (Path(staging.path) / "_direct_write").mkdir()
    counts = accept_manifest(plan, staging, Job(world, plan, staging, quarantine=True).run_all())
    assert counts.corrupt > 0
    publication = sink.publish(staging, plan, counts, silent)
    (aside,) = (Path(publication.marker.ref) / "_corrupt").iterdir()
    kept = pq.read_table(aside)
    assert kept.num_rows == publication.marker.counts.corrupt
    whole = len(world.expected({"1:0": (0, world.end("1:0"))}))
    assert counts.total + kept.num_rows == whole == read_windows(sink).count_rows() + kept.num_rows


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"direct_write": "off", "target_file_bytes": 5}, "needs the direct write"),
        ({"direct_write": "off", "corrupt_records": "quarantine"}, "needs the direct write"),
        (
            {"direct_write": "off", "corrupt_records": "quarantine", "transform": lambda f: f},
            "needs the direct write",
        ),
        ({"direct_write": "perhaps"}, "none of auto, on, off"),
    ],
)
def test_options_without_effect_are_refused(
    world: World, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        SessionEngine(world.settings, **options)

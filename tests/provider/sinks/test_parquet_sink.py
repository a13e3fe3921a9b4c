"""The Parquet sink: whole windows or nothing, first come first served, loud about strangers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.parquet import MARKER_NAME, ParquetSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.testing.sink_suite import SinkSuite
from tubemq_provider.windows.errors import CountMismatch, SinkDamaged
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, Sink, Staging


class TestParquetSink(SinkSuite):
    points = ("files verified", "marker staged", "staging on disk", "renamed", "root on disk")

    def make(self, tmp_path: Path) -> Sink:
        return ParquetSink(tmp_path / "lake")


def ignore(_: str) -> None:
    """Ignore progress."""


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "orders")


def plan_of(sink: ParquetSink, seq: int = 1, end: int = 280) -> WindowPlan:
    scope = WindowScope("c1", "orders", "g1", sink.identity)
    return WindowPlan.cursor(scope, seq, {"1:0": (0, end), "1:1": (0, end)})


def write(staging: Staging, name: str, partitions: list[str]) -> None:
    path = Path(staging.path) / name
    path.parent.mkdir(exist_ok=True)
    values = [f"value {index}".encode() for index in range(len(partitions))]
    pq.write_table(pa.table({"partition": partitions, "value": values}), path)


def publish(sink: ParquetSink, plan: WindowPlan, attempt: str = "a") -> bool:
    staging = sink.begin(plan, attempt)
    write(staging, "part-0.parquet", ["1:0", "1:0", "1:1"])
    counts = IngestCounts({"1:0": 2, "1:1": 1}, 21)
    return sink.publish(staging, plan, counts, ignore).won


def test_a_published_window_is_found_with_plan_counts_and_files(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    assert sink.marker(plan.window_id) is None
    assert publish(sink, plan)
    marker = sink.marker(plan.window_id)
    assert isinstance(sink, Sink)
    assert marker is not None
    assert marker.plan == plan
    assert marker.counts == IngestCounts({"1:0": 2, "1:1": 1}, 21)
    assert marker.files == ("part-0.parquet",)
    assert marker.ref == str(sink.root / f"window_id={plan.window_id}")
    assert list(sink.window_ids()) == [plan.window_id]


def test_nothing_is_visible_before_it_is_published(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    write(sink.begin(plan, "a"), "part-0.parquet", ["1:0"])
    assert list(sink.window_ids()) == []
    assert published_windows(sink.root) == []


def test_of_many_tries_one_wins_and_the_others_learn_whose_it_is(sink: ParquetSink) -> None:
    plans = [plan_of(sink, end=28 * (10 + number)) for number in range(8)]

    def one(number: int) -> tuple[bool, str]:
        staging = sink.begin(plans[number], f"try-{number}")
        write(staging, f"part-{number}.parquet", ["1:0", "1:1"])
        counts = IngestCounts({"1:0": 1, "1:1": 1})
        found = sink.publish(staging, plans[number], counts, ignore)
        return found.won, found.marker.plan.hash

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(one, range(8)))
    assert [won for won, _ in outcomes].count(True) == 1
    winner = next(number for number, (won, _) in enumerate(outcomes) if won)
    assert {found for _, found in outcomes} == {plans[winner].hash}
    assert read_windows(sink.root).count_rows() == 2
    sink.tidy(plans[0].window_id)
    assert list(staging_of(sink).iterdir()) == []


def test_a_directory_without_write_permission_is_reported_with_a_remedy(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse writes as a read-only mount does; root, whom tests may run as, is refused nothing."""
    sink.root.mkdir()
    monkeypatch.setattr("tubemq_provider.files.durable.os.access", lambda *_, **__: False)
    with pytest.raises(ConfigError, match=r"cannot be written to on .* by user .*; name a"):
        sink.begin(plan_of(sink), "a")
    assert list(sink.root.iterdir()) == []


def test_files_that_do_not_hold_what_was_counted_are_not_published(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    write(staging, "part-0.parquet", ["1:0", "1:1"])
    with pytest.raises(CountMismatch, match="1:0: 1 records in files, 2 counted"):
        sink.publish(staging, plan, IngestCounts({"1:0": 2, "1:1": 0}), ignore)
    assert sink.marker(plan.window_id) is None
    sink.discard(staging)
    sink.discard(staging)
    assert publish(sink, plan, "b")


def test_what_spark_leaves_beside_its_files_is_removed(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    root = Path(staging.path)
    write(staging, "partition=1%3A0/part-0.parquet", ["1:0"])
    (root / "_SUCCESS").touch()
    (root / "partition=1%3A0" / ".part-0.parquet.crc").write_bytes(b"crc")
    (root / "_temporary" / "0").mkdir(parents=True)
    (root / "_temporary" / "0" / "half.parquet").write_bytes(b"half")
    found = sink.publish(staging, plan, IngestCounts({"1:0": 1, "1:1": 0}), ignore)
    window = sink.root / f"window_id={plan.window_id}"
    names = sorted(str(path.relative_to(window)) for path in window.rglob("*") if path.is_file())
    assert names == [MARKER_NAME, "partition=1%3A0/part-0.parquet"]
    assert found.marker.files == ("partition=1%3A0/part-0.parquet",)


def test_partitions_are_counted_from_directories_columns_and_mixed_row_groups(
    sink: ParquetSink,
) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    mixed = pa.table({"partition": ["1:0", "1:1", "1:1", "1:0"], "value": [b"a"] * 4})
    pq.write_table(mixed, Path(staging.path) / "mixed.parquet", row_group_size=3)
    (Path(staging.path) / "partition=1%3A1").mkdir()
    pq.write_table(mixed.select(["value"]), Path(staging.path) / "partition=1%3A1" / "d.parquet")
    assert sink.publish(staging, plan, IngestCounts({"1:0": 2, "1:1": 6}), ignore).won


def test_files_without_a_partition_are_checked_by_their_total(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    pq.write_table(pa.table({"value": [b"a"] * 3}), Path(staging.path) / "part.parquet")
    with pytest.raises(CountMismatch, match="3 records in files, 4 counted"):
        sink.publish(staging, plan, IngestCounts({"1:0": 2, "1:1": 2}), ignore)
    assert sink.publish(staging, plan, IngestCounts({"1:0": 2, "1:1": 1}), ignore).won


def test_an_empty_window_is_a_marker_alone(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    assert sink.publish(staging, plan, IngestCounts({"1:0": 0, "1:1": 0}), ignore).won
    assert read_windows(sink.root).count_rows() == 0


def test_a_stranger_in_the_windows_place_is_reported_and_left_alone(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    place = sink.root / f"window_id={plan.window_id}"
    place.mkdir(parents=True)
    assert sink.marker(plan.window_id) is None
    (place / "somebody.parquet").write_bytes(b"?")
    with pytest.raises(SinkDamaged, match="not empty"):
        sink.marker(plan.window_id)
    with pytest.raises(SinkDamaged):
        publish(sink, plan)
    assert (place / "somebody.parquet").read_bytes() == b"?"


def test_an_empty_directory_in_the_windows_place_does_no_harm(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    (sink.root / f"window_id={plan.window_id}").mkdir(parents=True)
    assert publish(sink, plan)


@pytest.mark.parametrize(
    "change", [{"v": 2}, {"hash": "0" * 64}, {"records": None}, {"plan": {"v": 1}}]
)
def test_a_marker_that_is_not_valid_is_reported(
    sink: ParquetSink, change: dict[str, object]
) -> None:
    plan = plan_of(sink)
    publish(sink, plan)
    path = sink.root / f"window_id={plan.window_id}" / MARKER_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SinkDamaged):
        sink.marker(plan.window_id)
    path.write_text("{")
    with pytest.raises(SinkDamaged):
        sink.marker(plan.window_id)


def staging_of(sink: ParquetSink) -> Path:
    """Beside the root, where no reader of it looks."""
    return sink.root.with_name(f".{sink.root.name}.tubemq-staging")


def test_two_tries_of_one_name_get_two_places(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    places = {sink.begin(plan, "dag/run:1 ä").path for _ in range(3)}
    assert len(places) == 3
    assert {Path(place).parent for place in places} == {staging_of(sink)}


@pytest.mark.parametrize("root", ["s3://bucket/x", "gs://bucket/x", "abfss://c@a/x", "hdfs://n/x"])
def test_places_without_an_atomic_rename_are_refused_with_a_hint(root: str) -> None:
    with pytest.raises(ConfigError, match="local or mounted directory"):
        ParquetSink(root)


def test_one_place_has_one_identity_and_may_be_given_another(tmp_path: Path) -> None:
    plain = ParquetSink(tmp_path / "a" / ".." / "b")
    assert plain.identity == ParquetSink((tmp_path / "b").as_uri()).identity
    assert ParquetSink(tmp_path / "b", identity="orders").identity == "orders"


def test_reading_gives_published_records_with_their_window(sink: ParquetSink) -> None:
    first, second = plan_of(sink), plan_of(sink, 2)
    publish(sink, first)
    publish(sink, second)
    write(sink.begin(plan_of(sink, 3), "a"), "part-0.parquet", ["1:0"])
    (sink.root / f"window_id={first.window_id}" / "stranger.parquet").write_bytes(b"?")
    table = read_windows(sink.root).to_table()
    assert table.num_rows == 6
    assert set(table["window_id"].to_pylist()) == {first.window_id, second.window_id}
    assert read_windows(sink.root, [second.window_id]).count_rows() == 3
    with pytest.raises(ConfigError, match="not published"):
        read_windows(sink.root, ["c-9-0000000000"])


def test_readers_that_know_nothing_of_windows_see_published_ones_only(sink: ParquetSink) -> None:
    publish(sink, plan_of(sink))
    write(sink.begin(plan_of(sink, 2), "a"), "part-0.parquet", ["1:0"])
    assert pq.read_table(sink.root).num_rows == 3


def test_boundaries_are_kept_beside_the_data_and_fixed_once(sink: ParquetSink) -> None:
    book = sink.boundaries
    assert book.read("20261121T120000Z-0123456789") is None
    assert book.fix("20261121T120000Z-0123456789", {"v": 1}) == {"v": 1}
    assert book.fix("20261121T120000Z-0123456789", {"v": 2}) == {"v": 1}
    assert (sink.root / "_boundaries" / "20261121T120000Z-0123456789.json").is_file()


def test_a_directory_is_made_only_in_one_that_is_there(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "not_mounted" / "orders")
    with pytest.raises(ConfigError, match=r"not_mounted is no directory there.*not mounted"):
        sink.begin(plan_of(sink), "a")
    with pytest.raises(ConfigError, match="not_mounted is no directory"):
        sink.boundaries.fix("2026-01-01T00:00:00Z", {"v": 1})
    assert not (tmp_path / "not_mounted").exists()
    (tmp_path / "not_mounted").mkdir()
    assert publish(sink, plan_of(sink))

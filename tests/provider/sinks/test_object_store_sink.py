"""Windows by manifest, on a loopback object store that speaks S3 and in a local directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.openers import object_store
from tests.provider.sinks.windows import COUNTS, OpenSink, ignore, plan_of, publish, stage
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.testing.sink_suite import Row, SinkSuite, rows_of, written_by
from tubemq_provider.windows.errors import SinkDamaged, StoreConflict
from tubemq_provider.windows.protocols import Sink


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_server() as found:
        yield found


class _Common(SinkSuite):
    def rows(self, sink: Sink) -> Counter[Row]:
        return rows_of(sink)


class TestOnS3(_Common):
    points = ("files verified", "files settled", "manifest written")

    @pytest.fixture
    def open_sink(self, options: dict[str, str], request: pytest.FixtureRequest) -> OpenSink:
        return partial(object_store, f"s3://lake/{request.node.name}", None, options)


class TestInADirectory(_Common):
    points = ("files verified", "file uploaded", "manifest written")

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return partial(object_store, str(tmp_path / "lake"), tmp_path / "staging")


@pytest.fixture
def sink(
    tmp_path: Path, options: dict[str, str], request: pytest.FixtureRequest
) -> ObjectStoreSink:
    return object_store(f"s3://lake/{request.node.name}/", tmp_path / "staging", options)


def test_readers_get_windows_by_name_with_their_id(sink: ObjectStoreSink) -> None:
    first, second = plan_of(sink), plan_of(sink, 2)
    publish(sink, first, "one")
    publish(sink, second, "two")
    table = read_windows(sink, [second.window_id]).to_table()
    assert set(table["window_id"].to_pylist()) == {second.window_id}
    assert table.num_rows == 3
    assert [marker.plan for marker in published_windows(sink)] == [first, second]
    with pytest.raises(ConfigError, match="not published"):
        read_windows(sink, ["c-9-0000000000"])


def test_readers_may_name_the_url(sink: ObjectStoreSink, options: dict[str, str]) -> None:
    publish(sink, plan_of(sink))
    assert read_windows(sink.storage.url, storage_options=options).count_rows() == 3


def test_tidy_removes_what_losers_and_the_dead_uploaded(sink: ObjectStoreSink) -> None:
    plan = plan_of(sink)

    class Killed(Exception):
        """The try dies."""

    def die(point: str) -> None:
        if point == "file uploaded":
            raise Killed

    dead = sink.begin(plan, "dead")
    stage(dead, "dead")
    with pytest.raises(Killed):
        sink.publish(dead, plan, COUNTS, die)
    assert publish(sink, plan, "a").won
    assert not publish(sink, plan, "b").won
    marker = sink.marker(plan.window_id)
    assert marker is not None
    assert len(list(sink.storage.names("data"))) == 2
    sink.tidy(plan.window_id)
    assert tuple(sink.storage.names("data")) == marker.files


def test_files_keep_the_directories_that_spark_made(sink: ObjectStoreSink) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    root = Path(staging.path)
    table = pq.read_table(root / "part-0.parquet").drop_columns(["partition"])
    (root / "part-0.parquet").unlink()
    (root / "partition=1%3A1").mkdir()
    pq.write_table(table, root / "partition=1%3A1" / "part-0.parquet")
    (root / "_SUCCESS").touch()
    counts = type(COUNTS)({"1:0": 0, "1:1": 3})
    assert sink.publish(staging, plan, counts, ignore).won
    assert set(read_windows(sink).to_table()["partition"].to_pylist()) == {"1:1"}


def test_a_manifest_that_is_not_valid_is_reported(sink: ObjectStoreSink) -> None:
    plan = plan_of(sink)
    sink.storage.create(f"_tubemq/windows/{plan.window_id}.json", {"v": 1})
    with pytest.raises(SinkDamaged):
        sink.marker(plan.window_id)


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    with object_server("careless", careless=True) as options:
        careless = object_store("s3://careless/x", tmp_path, options)
        with pytest.raises(ConfigError, match="only if absent"):
            publish(careless, plan_of(careless))
        assert list(careless.window_ids()) == []


@pytest.mark.parametrize(
    "url", ["s3://key:hush-hush@host/bucket", "s3://b/p?secret=hush-hush", "ftp://host/x"]
)
def test_other_addresses_are_refused_without_repeating_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match="storage_options") as refused:
        ObjectStoreSink(url)
    assert "hush" not in str(refused.value)


def test_credentials_stay_out_of_sight(sink: ObjectStoreSink) -> None:
    publish(sink, plan_of(sink))
    marker = sink.marker(plan_of(sink).window_id)
    shown = f"{sink!r} {sink.storage!r} {sink.identity} {marker!r}"
    assert "hush" not in shown
    assert "s3://lake/" in repr(sink)


def test_the_parquet_sink_names_the_sink_for_object_stores() -> None:
    with pytest.raises(ConfigError, match="ObjectStoreSink"):
        ParquetSink("s3://bucket/x")


def test_a_conflict_with_a_request_under_way_is_asked_again(tmp_path: Path) -> None:
    """S3 answers 409 ConditionalRequestConflict, which does not say that there is an object."""
    with object_server("busy", conflicts=2) as options:
        sink = object_store("s3://busy/orders", tmp_path / "staging", options)
        assert publish(sink, plan_of(sink)).won
        assert not publish(sink, plan_of(sink), "b").won
        assert rows_of(sink) == written_by("a")
        staging = sink.begin(plan_of(sink), "c")
        stage(staging, "c")
        assert sink.replace(staging, plan_of(sink), COUNTS, ignore).won
        assert rows_of(sink) == written_by("c")


def test_a_conflict_that_does_not_end_is_left_to_a_retry(tmp_path: Path) -> None:
    with object_server("busier", conflicts=7) as options:
        sink = object_store("s3://busier/orders", tmp_path / "staging", options)
        with pytest.raises(StoreConflict, match="under way") as busy:
            publish(sink, plan_of(sink))
        assert busy.value.retriable
        for _ in range(2):  # the probe and the manifest are asked six times by each try
            with suppress(StoreConflict):
                publish(sink, plan_of(sink), "again")
        assert rows_of(sink) == written_by("again")

"""`read_windows` over windows whose columns are not the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.provider.sinks.windows import COUNTS, ignore, plan_of
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.protocols import RecountingSink, SchemaSink, Sink
from tubemq_provider.windows.verify import check_marker


@pytest.fixture(params=["parquet", "object_store"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    if request.param == "parquet":
        return ParquetSink(tmp_path / "lake")
    return ObjectStoreSink(str(tmp_path / "lake"), staging_root=tmp_path / "staging")


def publish(sink: Sink, seq: int, **columns: Any) -> str:
    """A window of three records with more columns than `partition`, as after a new transform."""
    plan = plan_of(sink, seq)
    staging = sink.begin(plan, "a")
    table = pa.table({"partition": ["1:0", "1:0", "1:1"], **columns})
    pq.write_table(table, Path(staging.path) / "part-0.parquet")
    assert sink.publish(staging, plan, COUNTS, ignore).won
    return plan.window_id


def test_columns_of_every_window_are_read(sink: Sink) -> None:
    first = publish(sink, 1, n=pa.array([1, 2, 3], pa.int32()))
    second = publish(sink, 2, n=pa.array([4, 5, 2**40], pa.int64()), note=["a", "b", "c"])
    third = publish(sink, 3, note=["d", "e", "f"])
    table = read_windows(sink).to_table().sort_by([("window_id", "ascending")])
    assert table["window_id"].to_pylist() == [first] * 3 + [second] * 3 + [third] * 3
    assert table["n"].to_pylist() == [1, 2, 3, 4, 5, 2**40, None, None, None]
    assert table["note"].to_pylist() == [None] * 3 + ["a", "b", "c", "d", "e", "f"]


def test_a_column_that_became_something_else_is_an_error_with_the_way_out(sink: Sink) -> None:
    numbers = publish(sink, 1, n=[1, 2, 3])
    words = publish(sink, 2, n=["one", "two", "three"])
    with pytest.raises(ConfigError, match="differ in the type of a column") as refused:
        read_windows(sink)
    assert "window_ids=" in str(refused.value)
    assert read_windows(sink, [numbers]).to_table()["n"].to_pylist() == [1, 2, 3]
    assert read_windows(sink, [words]).to_table()["n"].to_pylist() == ["one", "two", "three"]


def test_integers_may_become_real_numbers_that_have_them(sink: Sink) -> None:
    publish(sink, 1, n=pa.array([1, -(2**53), 2**53], pa.int64()))
    publish(sink, 2, n=pa.array([0.5, None, 2.0]))
    found = read_windows(sink).to_table()["n"].drop_null().to_pylist()
    assert sorted(found) == [-(2.0**53), 0.5, 1.0, 2.0, 2.0**53]


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1])
def test_integers_that_real_numbers_have_not_are_an_error_before_reading(
    sink: Sink, large: int
) -> None:
    whole = publish(sink, 1, n=pa.array([1, 2, large], pa.int64()))
    publish(sink, 2, n=[0.5, 1.5, 2.5])
    with pytest.raises(ConfigError, match=r"n is int64 .*has not all of them.*window_ids=") as no:
        read_windows(sink)
    assert whole in str(no.value)
    assert read_windows(sink, [whole]).to_table()["n"].to_pylist() == [1, 2, large]


@pytest.mark.parametrize("name", ["window_id", "Window_ID"])
def test_a_column_that_is_called_as_windows_are_is_refused(sink: Sink, name: str) -> None:
    """Readers would show the window's id in its place."""
    assert isinstance(sink, SchemaSink)
    with pytest.raises(ConfigError, match=f"column '{name}' has the name of the folders.*rename"):
        sink.check_columns(pa.schema([("partition", pa.string()), (name, pa.int64())]))
    with pytest.raises(ConfigError, match=f"column '{name}' has the name of the folders.*rename"):
        publish(sink, 1, **{name: [1, 2, 3]})
    first = publish(sink, 1, n=[1, 2, 3])
    assert {*read_windows(sink).to_table()["window_id"].to_pylist()} == {first}


@pytest.mark.parametrize("cells", [[{"a": 1}] * 3, [[1]] * 3], ids=["struct", "list"])
def test_a_column_of_several_leaves_that_is_called_so_is_refused(sink: Sink, cells: Any) -> None:
    """Footers of Spark's own writer have no name of the column but in the paths of its leaves."""
    with pytest.raises(ConfigError, match="column 'window_id' has the name of the folders"):
        publish(sink, 1, window_id=cells)


def test_a_window_without_partitions_in_its_files_is_counted_as_a_whole(sink: Sink) -> None:
    """Engines of others may write no column `partition`; the marker has the counts all the same."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    file = Path(staging.path) / "part-0.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), file)
    assert sink.publish(staging, plan, COUNTS, ignore).won
    marker = sink.marker(plan.window_id)
    assert marker is not None
    assert isinstance(sink, RecountingSink)
    check_marker(marker, sink.recount(marker))
    root = sink.root if isinstance(sink, ParquetSink) else Path(sink.storage.url)  # type: ignore[attr-defined]
    (published,) = root.rglob("*.parquet")
    pq.write_table(pa.table({"n": [1, 2]}), published)
    with pytest.raises(SinkDamaged, match="2 rows in the sink, 3 were published"):
        sink.recount(marker)

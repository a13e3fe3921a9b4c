"""`read_windows` over windows whose columns are not the same."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.provider.sinks.windows import COUNTS, ignore, plan_of
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.protocols import Sink
from tubemq_provider.windows.verify import check_marker


@pytest.fixture(params=["parquet", "object_store"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    if request.param == "parquet":
        return ParquetSink(tmp_path / "lake")
    return ObjectStoreSink(str(tmp_path / "lake"), staging_root=tmp_path / "staging")


def publish(sink: Sink, seq: int, **columns: Any) -> str:
    """Publish a window of three records with more columns than `partition`, as after a new
    transform."""
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


CENTS = pa.array([Decimal("12345678901234567890.12")] * 3, pa.decimal128(38, 2))
LOCAL = pa.array([datetime(2026, 11, 22, tzinfo=UTC)] * 3, pa.timestamp("us"))
FAR = pa.array([datetime(9999, 12, 31, tzinfo=UTC)] * 3, pa.timestamp("us"))
REAL = pa.array([0.5, 1.5, 2.5])

LOSING: dict[str, tuple[Any, Any]] = {
    "decimal and double": (CENTS, REAL),
    "decimal and float": (CENTS, REAL.cast(pa.float32())),
    "unsigned and signed": (pa.array([2**64 - 1] * 3, pa.uint64()), [-1, 2, 3]),
    "unsigned and double": (pa.array([2**64 - 1] * 3, pa.uint64()), REAL),
    "long in a list": ([[2**60]] * 3, [[0.5]] * 3),
    "long in a struct": ([{"a": 2**60}] * 3, [{"a": 0.5}] * 3),
    "long in a map": (
        pa.array([[("k", 2**60)]] * 3, pa.map_(pa.string(), pa.int64())),
        pa.array([[("k", 0.5)]] * 3, pa.map_(pa.string(), pa.float64())),
    ),
    "instants beyond nanoseconds": (FAR, LOCAL.cast(pa.timestamp("ns"))),
    "instants with and without a zone": (LOCAL, LOCAL.cast(pa.timestamp("us", "UTC"))),
    "zones": (
        LOCAL.cast(pa.timestamp("us", "Europe/Berlin")),
        LOCAL.cast(pa.timestamp("us", "UTC")),
    ),
    "days and instants": ([date(2026, 11, 22)] * 3, LOCAL),
    "text and bytes": (["a", "b", "c"], [b"\xff", b"b", b"c"]),
    "digits beyond any decimal": (
        pa.array([Decimal(1)] * 3, pa.decimal128(38, 0)),
        pa.array([Decimal(1)] * 3, pa.decimal256(76, 70)),
    ),
    "bool and int": ([True] * 3, [1, 2, 3]),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", LOSING)
def test_types_that_lose_digits_together_are_refused_with_windows_and_column(
    name: str, turned: bool, tmp_path: Path
) -> None:
    sink = ParquetSink(tmp_path / "lake")
    pair = LOSING[name][::-1] if turned else LOSING[name]
    windows = [publish(sink, at + 1, n=values, sound=[1, 2, 3]) for at, values in enumerate(pair)]
    with pytest.raises(ConfigError, match=r"differ in the type of a column: n is ") as refused:
        read_windows(sink)
    text = str(refused.value)
    assert all(window in text for window in windows)
    assert "sound is" not in text
    for window, values in zip(windows, pair, strict=True):
        found = read_windows(sink, [window]).to_table()["n"].to_pylist()
        assert found == (values if isinstance(values, list) else values.to_pylist())


KEEPING: dict[str, tuple[Any, Any]] = {
    "int and decimal": (pa.array([2**31 - 1] * 3, pa.int32()), CENTS),
    "decimals": (CENTS, pa.array([Decimal("1.2345")] * 3, pa.decimal128(9, 4))),
    "instants": (LOCAL, LOCAL.cast(pa.timestamp("ns"))),
    "float and double": (REAL.cast(pa.float32()), REAL),
    "unsigned": (pa.array([7] * 3, pa.uint64()), [-1, 2, 3]),
    "parts": ([{"a": 1}] * 3, [{"a": 1, "b": "x"}] * 3),
    "nothing": (pa.nulls(3), REAL),
}


@pytest.mark.parametrize("name", KEEPING)
def test_types_that_keep_all_values_together_are_read(name: str, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "lake")
    values = [value if isinstance(value, pa.Array) else pa.array(value) for value in KEEPING[name]]
    windows = [publish(sink, at + 1, n=each) for at, each in enumerate(values)]
    table = read_windows(sink).to_table()
    for window, each in zip(windows, values, strict=True):
        mine = table.filter(pc.field("window_id") == window)["n"].to_pylist()
        wanted = each.to_pylist()
        if name == "parts" and "b" not in wanted[0]:
            wanted = [{**value, "b": None} for value in wanted]
        assert mine == wanted


@pytest.mark.parametrize("name", ["window_id", "Window_ID"])
def test_a_column_that_is_called_as_windows_are_is_refused(sink: Sink, name: str) -> None:
    """Readers would show the window's id in its place."""
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
    check_marker(marker, sink.recount(marker) or {})
    root = sink.root if isinstance(sink, ParquetSink) else Path(sink.storage.url)  # type: ignore[attr-defined]
    (published,) = root.rglob("*.parquet")
    pq.write_table(pa.table({"n": [1, 2]}), published)
    with pytest.raises(SinkDamaged, match="2 rows in the sink, 3 were published"):
        sink.recount(marker)

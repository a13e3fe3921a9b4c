"""Filters of readers that prune by what files say of themselves: they lose no row.

Columns are such that files have bounds of all of them, without which nothing is pruned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.provider.sinks.openers import iceberg_catalog
from tests.provider.sinks.partitioned import SCHEMA, TEXTS, write
from tests.provider.sinks.test_partition_by import FileSink, OpenSink, filtered
from tubemq_provider.files.columns import ColumnSet
from tubemq_provider.files.data_file import DataFile
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sources.tubemq.columns import RECORDS


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_sink(kind: str, tmp_path: Path) -> OpenSink:
    makers: dict[str, Callable[[], FileSink]] = {
        "parquet": lambda: ParquetSink(tmp_path / "lake"),
        "delta": lambda: DeltaSink(tmp_path / "table"),
        "iceberg": lambda: IcebergSink("sales.orders", catalog=iceberg_catalog(tmp_path / "ice")),
    }
    return makers[kind]


def test_a_filter_on_another_column_loses_nothing(open_sink: OpenSink) -> None:
    """Each window has one text, which is the least and the largest of its file."""
    schema = pa.schema([SCHEMA.field(name) for name in ("partition", "country", "id")])
    for seq, text in enumerate(TEXTS[:-1], 1):
        write(open_sink(), seq, [{"partition": "1:0", "country": text, "id": seq}], schema)
    for seq, text in enumerate(TEXTS[:-1], 1):
        assert filtered(open_sink(), "country", text) == {seq}, text


@pytest.mark.parametrize("known", [None, RECORDS], ids=["made", "decoded"])
@pytest.mark.parametrize("real", [pa.float32(), pa.float64()], ids=str)
def test_a_filter_finds_what_is_no_number(
    real: pa.DataType, known: ColumnSet | None, tmp_path: Path
) -> None:
    """Beside one other value, which would be the least and the largest of the file."""
    inner = pa.struct([("x", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("real", real), ("inner", inner)])
    rows = [{"id": 1, "real": 1.0}, {"id": 2, "real": math.nan}]
    file = DataFile(LocalLocation(tmp_path), "a.parquet", schema, columns=known)
    file.write([pa.RecordBatch.from_pylist(rows, schema)])
    fact = file.close()
    dataset = ds.dataset(tmp_path)
    assert dataset.to_table(filter=~(pc.field("real") == 1.0))["id"].to_pylist() == [2]
    assert (fact.leaves["id"].low, fact.leaves["id"].high) == (1, 2)
    assert fact.null_count("real") == 0


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_filter_on_a_column_with_a_dot_loses_nothing(open_sink: OpenSink, beside: bool) -> None:
    """Alone, and beside a column whose part has the same path in files."""
    schema = pa.schema([("partition", pa.string()), ("a.b", pa.int64()), ("id", pa.int64())])
    row: dict[str, Any] = {"partition": "1:0", "a.b": 3, "id": 1}
    if beside:
        schema = schema.append(pa.field("a", pa.struct([("b", pa.int64())])))
        row |= {"a": {"b": 4}}
    write(open_sink(), 1, [row], schema)
    dataset = (
        DeltaTable(sink.storage.url).to_pyarrow_dataset()
        if isinstance(sink := open_sink(), DeltaSink)
        else read_windows(sink)
    )
    assert dataset.to_table(filter=pc.field("a.b") == 3)["id"].to_pylist() == [1]
    assert dataset.to_table(filter=pc.field("id") == 1)["a.b"].to_pylist() == [3]

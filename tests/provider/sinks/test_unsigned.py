"""Types that tables do not have. Unsigned integers: what fits is there, and what does not is
refused before a reader can stumble over it. Others are refused by the column's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.provider.sinks.openers import iceberg_catalog
from tests.provider.sinks.test_partition_by import table_of, write
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.iceberg import IcebergSink


def opened(kind: str, root: Path) -> DeltaSink | IcebergSink:
    if kind == "delta":
        return DeltaSink(root / "table")
    return IcebergSink("sales.orders", catalog=iceberg_catalog(root / "iceberg"))


def row(kind: pa.DataType, value: Any) -> tuple[dict[str, Any], pa.Schema]:
    schema = pa.schema([("partition", pa.string()), ("value", kind), ("id", pa.int64())])
    return {"partition": "1:0", "value": value, "id": 1}, schema


STRUCT = pa.struct([("x", pa.string()), ("y", pa.uint64())])


@pytest.mark.parametrize(
    ("sink", "kind", "good", "bad", "said"),
    [
        ("delta", pa.uint8(), 127, 128, "has 128.*8 bits go to 127: cast it to bigint"),
        ("delta", pa.uint32(), 2**31 - 1, 2**31, "cast it to bigint"),
        ("delta", pa.uint64(), 2**63 - 1, 2**63, r"cast it to decimal\(20, 0\)"),
        ("delta", STRUCT, {"x": "a", "y": 5}, {"x": "a", "y": 2**63}, r"column 'value\.y'"),
        ("delta", pa.list_(pa.uint16()), [5, None], [2**15], "column 'value.list.element'"),
        ("iceberg", pa.uint8(), 255, None, ""),
        ("iceberg", pa.uint32(), 2**31 - 1, 2**31, "32 bits go to .*cast it to bigint"),
        ("iceberg", pa.uint64(), 2**63 - 1, 2**63, r"cast it to decimal\(20, 0\)"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_the_way_out(
    sink: str, kind: pa.DataType, good: Any, bad: Any, said: str, tmp_path: Path
) -> None:
    first, schema = row(kind, good)
    write(opened(sink, tmp_path), 1, [first, {**first, "value": None}], schema)
    if said:
        with pytest.raises(ConfigError, match=said):
            write(opened(sink, tmp_path), 2, [row(kind, bad)[0]], schema)
    table = table_of(opened(sink, tmp_path))
    assert [good, None] == sorted(table["value"].to_pylist(), key=lambda value: value is None)


INTERVAL = pa.duration("us")


@pytest.mark.parametrize(
    ("sink", "kind", "value"),
    [
        ("delta", INTERVAL, 1),
        ("delta", pa.struct([("x", INTERVAL)]), {"x": 1}),
        ("delta", pa.time64("ns"), 1),
        ("delta", pa.timestamp("ns", "UTC"), 1),
        ("delta", pa.list_(pa.timestamp("ns")), [1]),
        ("delta", pa.uuid(), b"a" * 16),
        ("iceberg", INTERVAL, 1),
        ("iceberg", pa.list_(INTERVAL), [1]),
        ("iceberg", pa.time64("ns"), 1),
        ("iceberg", pa.timestamp("ns", "UTC"), 1),
        ("iceberg", pa.struct([("x", pa.timestamp("ns"))]), {"x": 1}),
        ("iceberg", pa.null(), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("windows", [0, 1])
def test_a_type_that_a_table_cannot_have_is_named_with_its_column(
    sink: str, kind: pa.DataType, value: Any, windows: int, tmp_path: Path
) -> None:
    if windows:
        write(opened(sink, tmp_path), 1, [row(pa.string(), "a")[0]], row(pa.string(), "a")[1])
    given, schema = row(kind, value)
    refused = r"column 'value' is .*no type; cast it in a transform"
    with pytest.raises(ConfigError, match=refused):
        opened(sink, tmp_path).check_columns(schema)
    with pytest.raises(ConfigError, match=refused):
        write(opened(sink, tmp_path), 2, [given], schema)

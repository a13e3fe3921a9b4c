"""Maps, structs and lists in a database: as JSON, with whatever is in them, or refused before a
window is read; on SQLite and on a PostgreSQL that a wheel brings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from tests.provider.sinks.openers import jdbc
from tests.provider.sinks.postgres import postgres_server
from tests.provider.sinks.windows import ignore, plan_of
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.sql import SqlSink
from tubemq_provider.windows.protocols import IngestCounts

BERLIN = pa.timestamp("us", tz="Europe/Berlin")
NINE = datetime(2026, 11, 21, 9, 0, 0, 5, tzinfo=UTC)
COUNTS = pa.map_(pa.string(), pa.int64())
COLUMNS: dict[str, tuple[pa.DataType, object, object]] = {
    "instant": (pa.struct([("t", BERLIN)]), {"t": NINE}, {"t": "2026-11-21T09:00:00.000005+00:00"}),
    "plain": (
        pa.list_(pa.timestamp("s")),
        [NINE.replace(microsecond=0, tzinfo=None), None],
        ["2026-11-21T09:00:00", None],
    ),
    "day": (pa.struct([("d", pa.date32())]), {"d": date(2026, 11, 21)}, {"d": "2026-11-21"}),
    "price": (pa.list_(pa.decimal128(12, 9)), [Decimal("1e-7")], ["0.000000100"]),
    "body": (pa.list_(pa.binary()), [b"\0\xff", b""], ["AP8=", ""]),
    "map_in_struct": (pa.struct([("m", COUNTS)]), {"m": [("k", 1)]}, {"m": {"k": 1}}),
    "maps_in_list": (pa.list_(COUNTS), [[("k", 1), ("l", None)], []], [{"k": 1, "l": None}, {}]),
    "map_in_map": (pa.map_(pa.string(), COUNTS), [("a", [("k", 1)])], {"a": {"k": 1}}),
    "days_of_map": (
        pa.map_(pa.date32(), pa.list_(BERLIN)),
        [(date(2026, 11, 21), [NINE])],
        {"2026-11-21": ["2026-11-21T09:00:00.000005+00:00"]},
    ),
    "numbers": (pa.map_(pa.int32(), pa.float64()), [(7, 0.1 + 0.2)], {"7": 0.1 + 0.2}),
    "exact": (pa.list_(pa.uint64()), [2**64 - 1], [2**64 - 1]),
    "words": (
        pa.struct([("a", pa.list_(pa.string())), ("b", pa.bool_()), ("n", pa.null())]),
        {"a": ["ä", None], "b": True, "n": None},
        {"a": ["ä", None], "b": True, "n": None},
    ),
}
WITHOUT_FORM = [
    pa.struct([("t", pa.time64("us"))]),
    pa.list_(pa.duration("s")),
    pa.struct([("deep", pa.list_(pa.timestamp("ns")))]),
    pa.map_(pa.struct([("a", pa.int8())]), pa.string()),
    pa.struct([("a", pa.int8()), ("a", pa.string())]),
]
WITHOUT_JSON: list[tuple[pa.DataType, object]] = [
    (pa.struct([("n", pa.float64())]), {"n": float("nan")}),
    (pa.list_(pa.float32()), [float("inf")]),
    (pa.map_(pa.string(), pa.struct([("n", pa.float64())])), [("k", {"n": float("-inf")})]),
    (COUNTS, [("k", 1), ("k", 2)]),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, postgres: str) -> SqlSink:
    url = postgres if request.param == "postgres" else f"sqlite:///{tmp_path}/lake.db"
    for name in ("nested", "tubemq_windows"):
        rows_of(url, f"DROP TABLE IF EXISTS {name}")
    return jdbc(url, "nested", tmp_path / "staging")


def rows_of(url: str, statement: str) -> list[dict[str, object]]:
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        found = connection.execute(sa.text(statement))
        return [dict(row) for row in found.mappings()] if found.returns_rows else []


def publish(sink: SqlSink, columns: dict[str, tuple[pa.DataType, object]]) -> None:
    """Publish a window of one record with the values, and one of nulls."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    arrays = [pa.array([value, None], kind) for kind, value in columns.values()]
    table = pa.table([pa.array(["1:0", "1:1"]), *arrays], ["partition", *columns])
    sink.check_columns(table.schema)
    pq.write_table(table, Path(staging.path) / "part.parquet")
    assert sink.publish(staging, plan, IngestCounts({"1:0": 1, "1:1": 1}), ignore).won


def test_whatever_is_nested_becomes_json(sink: SqlSink) -> None:
    publish(sink, {name: (kind, value) for name, (kind, value, _) in COLUMNS.items()})
    first, second = rows_of(sink._url, 'SELECT * FROM nested ORDER BY "partition"')
    for name, (_, _, wanted) in COLUMNS.items():
        found = first[name]
        assert (name, json.loads(found) if isinstance(found, str) else found) == (name, wanted)
        assert second[name] is None


@pytest.mark.parametrize("kind", WITHOUT_FORM, ids=str)
def test_types_that_json_has_no_form_of_are_refused_before_a_window_is_read(
    sink: SqlSink, kind: pa.DataType
) -> None:
    columns = pa.schema([("partition", pa.string()), ("inner", kind)])
    with pytest.raises(ConfigError, match="column 'inner' has"):
        sink.check_columns(columns)


@pytest.mark.parametrize(("kind", "value"), WITHOUT_JSON)
def test_what_json_cannot_say_names_its_column(
    sink: SqlSink, kind: pa.DataType, value: object
) -> None:
    with pytest.raises(ConfigError, match="in 'inner', which JSON cannot say") as refused:
        publish(sink, {"outer": (pa.string(), "a"), "inner": (kind, value)})
    assert "take it out in a transform" in str(refused.value)
    assert sink.marker(plan_of(sink).window_id) is None
    assert rows_of(sink._url, "SELECT * FROM nested") == []

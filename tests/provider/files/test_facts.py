"""Facts of files: they survive serialisation, and equal those of the footer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client.model import OffsetRange, Partition
from tubemq_provider.files.footers import (
    arrow_schema_of,
    fact_from_json,
    fact_of,
    fact_to_json,
    inspect,
)
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.writer import StagedWriter, with_file_parts
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.windows.facts import FileFact, LeafFact

SCHEMA = RECORDS.arrow_schema(("partition", "offset", "msg_time", "value"))
BOUNDS = (
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.datetimes(timezones=st.just(UTC))
)
LEAVES = st.builds(
    LeafFact, st.text(), st.integers(0), st.integers(0), st.none() | st.integers(0), BOUNDS, BOUNDS
)
FACTS = st.builds(
    FileFact,
    path=st.text(),
    rows=st.integers(0),
    size=st.integers(0),
    tag=st.text(),
    schema=st.binary(),
    leaves=st.dictionaries(st.text(), LEAVES),
    nulls=st.dictionaries(st.text(), st.integers(0)),
    splits=st.lists(st.integers(0)).map(tuple),
)


@given(FACTS)
def test_facts_arrive_as_they_were_sent(fact: FileFact) -> None:
    assert fact_from_json(fact_to_json(fact)) == fact


def batch(key: str, offsets: list[int | None]) -> pa.RecordBatch:
    columns = [
        [key] * len(offsets),
        offsets,
        [datetime(2026, 11, 22, 12, 0, n, tzinfo=UTC) for n in range(len(offsets))],
        [b"body"] * len(offsets),
    ]
    arrays = [pa.array(*pair) for pair in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def test_a_writer_says_what_the_footers_of_its_files_say(tmp_path: Path) -> None:
    location = LocalLocation(tmp_path)
    with StagedWriter(
        location, "part", SCHEMA, target_bytes=1, row_group_bytes=1, columns=RECORDS
    ) as writer:
        for key, offsets in (("1:0", [0, 28]), ("1:1", [56, None])):
            writer.begin_range(OffsetRange(Partition.from_key("orders", key), 0, 280))
            for number, offset in enumerate(offsets):
                writer.add(batch(key, [offset]), 4, 28 * number)
            writer.end_range()
    told = with_file_parts(writer.files, writer.pieces)
    stored = location.stored()
    assert sorted(stored) == [fact.path for fact in sorted(told, key=lambda fact: fact.path)]
    for fact in told:
        found = inspect(location, fact.path, stored[fact.path])
        assert replace(fact, pieces=(), nulls={}) == found
        assert arrow_schema_of(fact).equals(SCHEMA)
    assert sum(fact.rows for fact in told) == 4
    assert sum(fact.null_count("offset") or 0 for fact in told) == 1
    pieces = sorted(file_part for fact in told for file_part in fact.pieces)
    assert [file_part[3] for file_part in pieces] == [1] * 4


@pytest.mark.parametrize(
    ("groups", "nulls", "low", "told"),
    [
        ([[1, 5], [3]], 0, 1, True),
        ([[1, None], [3, 3]], 1, 1, False),
        ([[None, None], [3, 4]], 2, 3, False),
        ([[None], [None]], 2, None, True),
    ],
)
def test_bounds_of_a_file_are_those_of_all_its_row_groups(
    groups: list[list[int | None]], nulls: int, low: int | None, told: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    schema = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    with pq.ParquetWriter(path, schema, write_statistics=["offset"]) as writer:
        for group in groups:
            values = pa.array([b"x"] * len(group), pa.binary())
            writer.write_table(pa.table([pa.array(group, pa.int64()), values], schema=schema))
    stored = LocalLocation(tmp_path).stored()["a.parquet"]
    fact = fact_of("a.parquet", stored, pq.read_metadata(path))
    leaf = fact.leaves["offset"]
    assert (leaf.nulls, leaf.low, leaf.told) == (nulls, low, told)
    assert fact.leaves["value"].nulls is None
    assert not fact.leaves["value"].told


def test_a_file_that_is_given_up_leaves_no_footer(tmp_path: Path) -> None:
    class Stopped(Exception):
        """The task is killed."""

    writer = StagedWriter(LocalLocation(tmp_path), "part", SCHEMA, row_group_bytes=1)

    def write() -> None:
        with writer:
            writer.begin_range(OffsetRange(Partition.from_key("orders", "1:0"), 0, 280))
            writer.add(batch("1:0", [0]), 4, 0)
            raise Stopped

    with pytest.raises(Stopped):
        write()
    assert writer.files == []
    (left,) = tmp_path.iterdir()
    with pytest.raises(pa.ArrowInvalid):
        pq.read_metadata(left)

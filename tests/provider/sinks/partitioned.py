"""Rows that sinks with `partition_by` get, and how an engine publishes them.

Values that folders and logs must escape, nulls in every column but the first, days on both sides of
1970. Imported by tests only.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from tests.provider.sinks.windows import ignore, plan_of
from tubemq_provider.files.footers import fact_from_json, fact_to_json
from tubemq_provider.files.locations import location_of
from tubemq_provider.files.partitioned import staged_writer
from tubemq_provider.files.writer import with_file_parts
from tubemq_provider.windows.protocols import IngestCounts, Sink

TEXTS = ["a/b", "ü ñ𠮷", "50%", "x=y", "#1:?*", "a b+c&d", ".._-", "%2F", "'q\"\U0010ffff", None]
SCHEMA = pa.schema(
    [
        ("partition", pa.string()),
        ("country", pa.string()),
        ("number", pa.int32()),
        ("flag", pa.bool_()),
        ("on", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "partition": f"1:{index % 2}",
        "country": TEXTS[index % len(TEXTS)],
        "number": None if index == 3 else index % 3 - 1,
        "flag": None if index == 4 else index % 2 == 0,
        "on": None if index == 5 else date(1969, 12, 31 - index % 2),
        "at": None if index == 6 else datetime(2026, 11, 22, 22 + index % 2, 59, tzinfo=UTC),
        "id": index,
    }
    for index in range(20)
]


def write(
    sink: Sink, seq: int, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA
) -> IngestCounts:
    """Publish `rows` as an engine does, in batches of three."""
    plan = plan_of(sink, seq)
    staging = sink.begin(plan, "a")
    records: dict[str, int] = {}
    with staged_writer(location_of(staging), "part", schema, staging.partition_by) as writer:
        for range_ in plan.reads():
            key = range_.partition.key
            mine = [row for row in rows if row["partition"] == key]
            records[key] = len(mine)
            writer.begin_range(range_)
            for at in range(0, len(mine), 3):
                writer.add(pa.RecordBatch.from_pylist(mine[at : at + 3], schema), 1, range_.start)
            writer.end_range()
    # As they come back from tasks on other machines.
    told = [fact_from_json(fact_to_json(fact)) for fact in writer.files]
    pieces: dict[str, list[list[int]]] = {}
    for file_part in writer.pieces:
        pieces.setdefault(file_part.partition, []).append([file_part.start, file_part.end])
    files = with_file_parts(told, writer.pieces)
    counts = IngestCounts(records, sum(p.bytes for p in writer.pieces), pieces=pieces, files=files)
    assert sink.publish(staging, plan, counts, ignore).won
    return counts

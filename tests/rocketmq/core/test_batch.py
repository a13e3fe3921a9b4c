"""Batches as Arrow: a row does not depend on other rows, with any clock of a producer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rocketmq_client._core.batch import RecordBatch
from rocketmq_client._wire.records import scan
from tests.rocketmq.core.script import QUEUE, record

TIMES = (0, -5, 253_402_300_800_000, 10**16, 2**62, -(2**62), 1_795_000_000_000)
"""Ordinary times, before 1970, the year 10000, and times beyond the finer units."""


def born(times, unit: str) -> list[int | None]:
    data = b"".join(record(n, born_ms=ms) for n, ms in enumerate(times))
    batch = RecordBatch(QUEUE, 0, len(times), scan(data, "orders", 0))
    schema = pa.schema([("born_time", pa.timestamp(unit, "UTC"))])
    return batch.to_arrow(schema).column(0).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1), ("us", 1_000), ("ns", 1_000_000)])
def test_a_time_that_the_unit_cannot_hold_is_null_and_others_are_unchanged(unit, scale) -> None:
    expected = [ms * scale if abs(ms * scale) < 2**63 or scale == 1 else None for ms in TIMES]

    assert born(TIMES, unit) == expected
    assert [born([ms], unit)[0] for ms in TIMES] == expected


def test_a_batch_without_records_has_no_times() -> None:
    assert born([], "us") == []

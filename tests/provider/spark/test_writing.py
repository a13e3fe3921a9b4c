"""What the rows of a frame become before they are sent."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tubemq_provider.spark.writing import _by_topic


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_minutes_are_those_of_utc_in_every_session(zone: str) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("UTC"))
    times = pa.array([noon, None], pa.timestamp("us", tz=zone))
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), times], ["value", "msg_time"])

    records = _by_topic(batch, "orders")["orders"]

    assert [record.msg_time for record in records] == ["202601011200", None]

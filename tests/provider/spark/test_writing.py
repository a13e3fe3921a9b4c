"""Conversion of a frame's rows to records."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tubemq_client.errors import ConfigError
from tubemq_provider.spark.writing import _by_topic


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_minutes_are_those_of_utc_in_every_session(zone: str) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("UTC"))
    times = pa.array([noon, None], pa.timestamp("us", tz=zone))
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), times], ["value", "msg_time"])

    records = _by_topic(batch, "orders")["orders"]

    assert [record.msg_time for record in records] == ["202601011200", None]


def test_years_before_1000_have_four_digits_too() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"a"]), pa.array([datetime(988, 7, 6, 5, 4)], pa.timestamp("us"))],  # noqa: DTZ001
        ["value", "msg_time"],
    )

    assert [record.msg_time for record in _by_topic(batch, "orders")["orders"]] == ["098807060504"]


@pytest.mark.parametrize(
    ("column", "cells", "sentence"),
    [
        ("value", [b"a", None], "row 1 of a batch has no value; filter such rows out"),
        (
            "attributes",
            pa.array([[("n", "1")], [("n", None)]], pa.map_(pa.string(), pa.string())),
            "row 1 of a batch has null for 'n' in 'attributes'; filter such rows out",
        ),
        ("partition", ["1:0", "one"], "row 1 of a batch has partition 'one', which is none"),
    ],
)
def test_a_row_that_is_no_record_is_named(column: str, cells: Any, sentence: str) -> None:
    columns = {"value": [b"a", b"b"], column: cells}

    with pytest.raises(ConfigError) as caught:
        _by_topic(pa.RecordBatch.from_pydict(columns), "orders")

    assert sentence in str(caught.value)

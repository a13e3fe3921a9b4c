"""A window through Spark into Delta: tasks read Kafka in Python, in Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
deltalake = pytest.importorskip("deltalake")


@pytest.mark.timeout(600)
def test_a_window_through_spark_into_delta(kafka: Any, topics: Any, tmp_path: Path) -> None:
    from lake import Lake

    topic = topics.create(partitions=2)
    topics.transaction(topic, [f"a{n}" for n in range(50)])
    topics.transaction(topic, ["no"] * 20, commit=False)
    headers = [("h", b"\xff"), ("h", b"2")]
    topics.send(topic, [f"b{n}" for n in range(50)], partition=1, key="k", headers=headers)
    lake = Lake(kafka.address, topic, tmp_path / "unused")
    place = tmp_path / "table"

    result = lake.run(sink=f"delta:{place}", engine="session")
    again = lake.run(sink=f"delta:{place}", engine="session")

    assert (result.total, result.engine, again.empty) == (100, "session", True)
    rows = deltalake.DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    assert sorted(row["value"].decode() for row in rows) == sorted(
        f"{letter}{n}" for letter in "ab" for n in range(50)
    )
    last = next(row for row in rows if row["value"] == b"b7")
    assert [(each["key"], each["value"]) for each in last["headers"]] == headers
    assert (last["key"], last["offset"], last["timestamp_type"]) == (b"k", 7, "CreateTime")

"""JSON and CSV bodies against Spark's `from_json` and `from_csv`.

Spark reads more (it rounds decimals, takes numbers for times and `+1` for a number, cuts
nanoseconds) and returns null for a value that it cannot read. Values that both read are equal,
except for the rules in `_differs_on_purpose`.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.provider.rows.decoded import decode
from tests.provider.rows.differential import csv as csv_cases
from tests.provider.rows.differential import json as json_cases
from tests.provider.spark.conftest import spark as spark  # noqa: PLC0414 - the one session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.spark

TYPES = [
    *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,2)", "boolean", "date"),
    *("decimal(38,10)", "timestamp", "timestamp_ntz", "string", "binary"),
]


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isnan(ours) == math.isnan(theirs) and (math.isnan(ours) or ours == theirs)
    if isinstance(ours, datetime):
        ours = (ours.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
            microseconds=1
        )
    elif isinstance(ours, date):
        ours = (ours - date(1970, 1, 1)).days
    return type(ours) is type(theirs) and bool(ours == theirs)


def _plain(type_: str) -> str:
    """Return times as numbers: Spark has more years than Python."""
    forms = {
        "date": "unix_date(c)",
        "timestamp": "unix_micros(c)",
        "timestamp_ntz": "unix_micros(cast(c as timestamp))",
    }
    return forms.get(type_, "c")


def _differs_on_purpose(format_: str, type_: str, body: bytes) -> bool:
    """Spark's CSV treats a backslash as an escape, the product only with the option `escape`."""
    return format_ == "csv" and b"\\" in body and type_ in ("string", "binary")


@pytest.fixture(autouse=True)
def in_utc(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_what_spark_reads_too_is_the_same_value(spark: SparkSession, format_: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - as users write it

    random, compared, problems = Random(5), 0, []
    for type_ in TYPES:
        if format_ == "json":
            bodies = [json_cases.object_of(random, {"c": type_}).encode() for _ in range(150)]
        else:
            bodies = [_csv_body(random) for _ in range(150)]
        rows, _ = decode({"format": format_, "schema": f"c {type_}", "nanoseconds": "cut"}, bodies)
        frame = spark.createDataFrame(
            [(place, body.decode(errors="replace")) for place, body in enumerate(bodies)],
            "place int, body string",
        )
        read = F.from_json if format_ == "json" else F.from_csv
        parsed = frame.select("place", read("body", f"c {type_}")["c"].alias("c"))
        cells = parsed.selectExpr("place", f"{_plain(type_)} as c").collect()
        theirs = {row["place"]: row["c"] for row in cells}
        for row in rows:
            place = row["offset"] // 28
            other = theirs[place]
            other = bytes(other) if isinstance(other, bytearray) else other
            if row["c"] is None or other is None:
                continue
            compared += 1
            if not _same(row["c"], other) and not _differs_on_purpose(
                format_, type_, bodies[place]
            ):
                problems.append(f"{type_} {bodies[place]!r}: {row['c']!r}, Spark {other!r}")
    assert problems[:5] == []
    assert compared > 200


def _csv_body(random: Random) -> bytes:
    while True:
        types, body = csv_cases.case(random)
        if len(types) == 1 and b"\n" not in body and b"\r" not in body:
            return body.lstrip("\ufeff".encode())

"""Schemas against Spark's own parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.provider.rows.differential.ddl import compare, spark_of
from tests.provider.spark.conftest import spark as spark  # noqa: PLC0414 - the one session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow")


@pytest.mark.spark
def test_schemas_are_read_as_spark_reads_and_prints_them(spark: SparkSession) -> None:
    count, problems = compare(1_000, 1, spark_of(spark))
    assert problems[:3] == []
    assert count == 1_000

"""Avro bodies against Avro's Java library (needs Java) and fastavro."""

from __future__ import annotations

import pytest

from tests.provider.rows.differential import avro
from tests.provider.rows.differential.__main__ import spark_jars

pytest.importorskip("pyarrow")


def test_avro_is_read_as_fastavro_reads_it_or_refused_by_a_rule() -> None:
    pytest.importorskip("fastavro")
    count, problems = avro.run(2_000, 1, None)
    assert problems[:3] == []
    assert count >= 2_000


@pytest.mark.spark
def test_avro_is_read_as_java_reads_it_or_refused_by_a_rule() -> None:
    pytest.importorskip("fastavro")
    jars = spark_jars()
    if jars is None:
        pytest.skip("needs PySpark's jars")
    count, problems = avro.run(8_000, 2, jars)
    assert problems[:3] == []
    assert count >= 8_000

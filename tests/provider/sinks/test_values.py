"""Generated values through sinks and independent readers; more of them by hand (`values`)."""

from __future__ import annotations

import pytest

from tests.provider.sinks.values import run


@pytest.mark.parametrize("sink", ["parquet", "delta", "iceberg", "sqlite"])
def test_values_and_filters_are_those_that_were_published(sink: str) -> None:
    tally, problems = run(600, 3, rows=60, sinks=[sink])
    assert problems[:3] == []
    assert sum(tally.values()) >= 600

"""JSON bodies against Python's module and the grammar of the columns, and against Spark."""

from __future__ import annotations

import pytest

from tests.provider.rows.differential import json as cases

pytest.importorskip("pyarrow")


def test_json_is_read_by_its_grammar_or_refused() -> None:
    count, problems = cases.run(4_000, 1, None)
    assert problems[:3] == []
    assert count >= 4_000

"""Each option of an ingest has an example in the reference, and the example is accepted."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider.ingest import values
from tubemq_provider.ingest.arguments import OPTIONS
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

EXAMPLES = tomllib.loads(
    (Path(__file__).parents[2] / "docs" / "examples.toml").read_text(encoding="utf-8")
)
NAMES = {
    "timedelta": timedelta,
    **{name: getattr(values, name) for name in values.__all__},
}


def test_each_option_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_example_makes_an_operator(name: str) -> None:
    chosen: dict[str, Any] = eval(f"dict({EXAMPLES[name]})", {}, NAMES)
    arguments: dict[str, Any] = {"task_id": "ingest", "topic": "orders", "group": "lake"}
    if "sink" not in chosen:
        arguments["path"] = "/lake/orders"
    if "time" in OPTIONS[name].modes:
        if not {"resolver", "starting_offsets"} & chosen.keys():
            arguments["boundaries"] = "/lake/hours.json"
        TubeMQWindowIngestOperator(**{**arguments, **chosen})
    else:
        arguments["initial_position"] = "earliest"
        TubeMQCursorIngestOperator(**{**arguments, **chosen})
    assert name in EXAMPLES[name] or OPTIONS[name].via

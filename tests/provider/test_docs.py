"""The page on Airflow names everything a Dag author can write."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tubemq_provider.hooks.connection import ConnectionConfig
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.sample import TubeMQSampleEndsOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

PAGE = (Path(__file__).parents[2] / "docs" / "airflow.md").read_text()


@pytest.mark.parametrize(
    "kind",
    [
        TubeMQCursorIngestOperator,
        TubeMQWindowIngestOperator,
        TubeMQSampleEndsOperator,
        TubeMQLagSensor,
        TubeMQPartitionReadySensor,
    ],
)
def test_every_argument_is_documented(kind: type) -> None:
    names = {
        name
        for level in kind.__mro__
        if level.__module__.startswith("tubemq_provider.operators") or level is kind
        for name in inspect.signature(level.__init__).parameters
    } - {"self", "kwargs"}
    assert kind.__name__ in PAGE
    assert not [name for name in names if not re.search(rf"\b{name}\b", PAGE)]
    ours = (level for level in kind.__mro__ if level.__module__.startswith("tubemq_provider"))
    doc = "\n".join(inspect.getdoc(level) or "" for level in ours)
    assert not [name for name in names if f":param {name}:" not in doc]


def test_every_connection_field_is_documented() -> None:
    fields = set(ConnectionConfig.model_fields) - {"masters", "auth"}
    assert not [name for name in fields if f"| `{name}` |" not in PAGE]

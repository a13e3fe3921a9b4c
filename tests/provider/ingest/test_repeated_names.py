"""JSON that users give with a name twice: refused, by that name, wherever JSON is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tubemq_client.cli import boundaries as client_boundaries
from tubemq_client.cli import groups as client_groups
from tubemq_client.config import ConsumerConfig
from tubemq_client.errors import ConfigError
from tubemq_client.json_text import load_unique_json
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.maintenance import beginning
from tubemq_provider.ingest.validation import parse
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

TWICE = '{"orders": {"1:0": 28, "1:1": 0, "1:0": 56}}'
BASE = {"topic": "orders", "group": "g1", "path": "/lake", "cluster": "c1"}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"initial_position": TWICE}, "1:0"),
        ({"mode": "time", "starting_offsets": TWICE, "ending_offsets": TWICE}, "1:0"),
        ({"mode": "time", "boundaries": '{"a": 1, "a": 2}'}, "a"),
        ({"mode": "time", "boundaries": '{"2026-01-01T00:00:00Z": ' + TWICE + "}"}, "1:0"),
        ({"decode": '{"format": "json", "schema": "a int", "schema": "a text"}'}, "schema"),
    ],
)
def test_in_arguments(given: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' occurs twice"):
        parse(IngestArguments, {**BASE, **given})


def test_in_files_and_commands(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    file.write_text('{"2026-01-01T00:00:00Z": ' + TWICE + "}")
    with pytest.raises(ConfigError, match="'1:0' occurs twice"):
        Boundaries.load(str(file), "orders")
    with pytest.raises(ConfigError, match="'1:0' occurs twice"):
        client_boundaries._load(file)
    file.write_text('[{"rule": 1, "rule": 2}]')
    with pytest.raises(ConfigError, match="'rule' occurs twice"):
        client_groups._rules(file)
    with pytest.raises(ConfigError, match="'1:0' occurs twice"):
        beginning(TWICE)


def test_in_topics_of_a_consumer() -> None:
    given = {"masters": "m:1", "group": "g1", "topics": '{"orders": ["a"], "orders": []}'}
    with pytest.raises(ConfigError, match="'orders' occurs twice"):
        ConsumerConfig.parse(given)


def test_the_same_name_in_two_objects_is_fine() -> None:
    assert load_unique_json('[{"a": {"a": 1}}, {"a": 2}]') == [{"a": {"a": 1}}, {"a": 2}]
    with pytest.raises(ValueError, match="'a' occurs twice"):
        load_unique_json('[{"b": [{"a": 1, "a": 1}]}]')

"""What Dagster shows of an asset before it runs, its checks, and the sensor on lag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.provider.dagster.test_same_as_airflow import TOPIC, asset, materialize, mq
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.dagster import (
    TubeMQResource,
    build_coverage_check,
    build_lag_check,
    build_lag_sensor,
)

__all__ = ["mq"]


def spec(sink: object, **options: Any) -> dg.AssetSpec:
    (found,) = asset(sink, **options).specs
    return found


def test_a_definition_says_what_the_asset_is(lake: Path) -> None:
    decode = {"format": "json", "schema": "id bigint, place string"}
    found = spec(lake, decode=decode)
    schema = found.metadata["dagster/column_schema"]
    assert {column.name: column.type for column in schema.columns}["id"] == "int64"
    assert found.kinds == {"tubemq", "parquet"}
    assert "orders" in (found.description or "")
    assert found.metadata["topic"] == TOPIC
    assert "dagster/table_name" not in found.metadata


def test_a_table_has_its_name_and_kind() -> None:
    found = spec("iceberg:lake/sales.orders", catalog_properties={"type": "in-memory"})
    assert found.metadata["dagster/table_name"] == "lake.sales.orders"
    assert found.kinds == {"tubemq", "iceberg"}


def test_what_the_author_gives_is_kept(lake: Path) -> None:
    found = spec(lake, kinds={"bronze"}, description="Mine.", metadata={"topic": "other"})
    assert (found.kinds, found.description) == ({"bronze"}, "Mine.")
    assert found.metadata["topic"] == "other"
    made = asset(lake, required_resource_keys={"mail"})
    assert made.required_resource_keys >= {"tubemq", "mail"}


def test_a_misspelt_option_names_its_neighbour(lake: Path) -> None:
    with pytest.raises(ConfigError, match="bondaries: unknown option; did you mean boundaries"):
        asset(lake, bondaries={})


def test_a_sensor_and_a_check_follow_the_lag(
    resource: TubeMQResource, lake: Path, mq: EmbeddedTubeMQ
) -> None:
    following = asset(lake, initial_position="earliest")
    names = {"topic": TOPIC, "group": "lake"}
    sensor = build_lag_sensor("new_orders", target=following, **names)
    check = build_lag_check("orders", max_lag=10, **names)

    def sensed(instance: dg.DagsterInstance) -> Any:
        context = dg.build_sensor_context(instance, resources={"tubemq": resource})
        return sensor._raw_fn(context)

    def judged() -> bool:
        defs = [following, check]
        only = dg.AssetSelection.checks(check)
        done = dg.materialize(defs, resources={"tubemq": resource}, selection=only)
        (evaluation,) = done.get_asset_check_evaluations()
        return bool(evaluation.passed)

    with dg.instance_for_test() as instance:
        request = sensed(instance)
        assert isinstance(request, dg.RunRequest)
        assert not judged()
        instance.create_run_for_job(_job(), tags=request.tags)
        assert "has not ended" in sensed(instance).skip_message
    assert materialize(following, resource)["records"] == 20
    with dg.instance_for_test() as instance:
        assert "lag 0" in sensed(instance).skip_message
    assert judged()


def _job() -> dg.JobDefinition:
    @dg.job
    def other() -> None:
        """Any job: only the tags of its run matter."""

    return other


def test_coverage_asks_for_every_partition_that_has_ended(
    resource: TubeMQResource, lake: Path
) -> None:
    """Neighbours alone would call one published hour complete."""
    hours = dg.HourlyPartitionsDefinition("2026-11-21-08:00", end_offset=0)
    boundaries = {
        f"2026-11-21T{hour:02}:00:00Z": {TOPIC: {"1:0": 28 * hour}} for hour in (8, 9, 10)
    }
    made = asset(lake, partitions_def=hours, boundaries=boundaries, initial_position=None)
    dg.materialize([made], resources={"tubemq": resource}, partition_key="2026-11-21-09:00")
    for definition, passes in ((None, True), (hours, False)):
        check = build_coverage_check("orders", lake, partitions_def=definition)
        (judgement,) = dg.materialize(
            [made, check],
            resources={"tubemq": resource},
            selection=dg.AssetSelection.checks(check),
        ).get_asset_check_evaluations()
        assert judgement.passed is passes
    assert int(str(judgement.metadata["missing_partitions"].value)) > 1

"""Component for YAML: an ingest asset with its resource, ends, check and sensor, for ``dg``.

Arguments are judged by the table of `build_tubemq_asset` when definitions are loaded. Found by
``dg`` through the entry point of the group ``dagster_dg_cli.registry_modules``.
"""

from collections.abc import Mapping
from typing import Any, Literal

import dagster as dg
from dagster.components import scaffold_component
from pydantic import Field

from tubemq_client.errors import ConfigError
from tubemq_provider.dagster.ingest import build_rocketmq_asset, build_tubemq_asset
from tubemq_provider.dagster.observe import (
    build_coverage_check,
    build_lag_sensor,
    build_tubemq_ends_asset,
)
from tubemq_provider.dagster.resource import (
    PluginResource,
    RocketMQResource,
    SourceResource,
    TubeMQResource,
)
from tubemq_provider.sources.rocketmq.space import SPACE as ROCKETMQ
from tubemq_provider.windows.spaces import FIRST_SOURCE

__all__ = ["IngestComponent"]

_EVERY: Mapping[str, Any] = {
    "hour": dg.HourlyPartitionsDefinition,
    "day": dg.DailyPartitionsDefinition,
    "week": dg.WeeklyPartitionsDefinition,
    "month": dg.MonthlyPartitionsDefinition,
}


class IngestScaffolder(dg.Scaffolder[Any]):
    """Writes a ``defs.yaml`` that loads as it is."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write it."""
        example = {
            "name": request.target_path.name,
            "topic": "orders",
            "group": "lake",
            "sink": "/data/orders",
            "arguments": {"initial_position": "earliest"},
            "resource": {"masters": "127.0.0.1:8715", "offsets_dir": "/data/offsets"},
        }
        scaffold_component(request, example)


@dg.scaffold_with(IngestScaffolder)
class IngestComponent(dg.Component, dg.Resolvable, dg.Model):
    """Asset that ingests a topic, exactly once; with partitions of time, or from the cursor.

    With `partitions` it comes with the asset of samples (unless another resolver is chosen) and a
    check of coverage, without them with a sensor on lag.
    """

    name: str = Field(description="name of the asset")
    topic: str = Field(description="topic to read")
    group: str = Field(description="group that the progress belongs to")
    sink: str = Field(description="where the records go, as sink= of the asset")
    source: str = Field(FIRST_SOURCE, description="kind of the topic: tubemq, rocketmq, a plug-in")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="further arguments of build_tubemq_asset"
    )
    every: Literal["hour", "day", "week", "month"] | None = Field(
        None, description="length of partitions of time; none: windows of a cursor"
    )
    since: str | None = Field(None, description="begin of the first partition, with every")
    min_lag: int = Field(1, description="lag for which the sensor of a cursor asset requests a run")
    resource_key: str | None = Field(
        None, description="key of the resource; default: the kind of the topic"
    )
    resource: dict[str, Any] | None = Field(
        None,
        description="fields of the resource, with {{ env.NAME }} for secrets; none: the project "
        "defines it under resource_key",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002 - as Dagster calls it
        """Return asset, samples, check, sensor and resource.

        Raises `ConfigError` with every problem.
        """
        key = self.resource_key or self.source
        if (self.every is None) != (self.since is None):
            raise ConfigError("give both every and since, or neither", subject=self.name)
        partitions = _EVERY[self.every](self.since) if self.every else None
        rocketmq = self.source == ROCKETMQ.source
        build: Any = build_rocketmq_asset if rocketmq else build_tubemq_asset
        arguments = dict(self.arguments)
        if self.source not in (FIRST_SOURCE, ROCKETMQ.source):
            arguments["source"] = self.source
        names: dict[str, Any] = {"topic": self.topic, "group": self.group, "resource_key": key}
        asset = build(self.name, sink=self.sink, partitions_def=partitions, **names, **arguments)
        resources = {} if self.resource is None else {key: self._resource()}
        if partitions is None:
            sensor = build_lag_sensor(
                f"{self.name}_lag", target=asset, min_lag=self.min_lag, **names
            )
            return dg.Definitions(assets=[asset], sensors=[sensor], resources=resources)
        check = build_coverage_check(self.name, self.sink, partitions_def=partitions)
        assets = [asset]
        if not rocketmq and {"resolver", "boundaries"}.isdisjoint(arguments):
            assets.append(build_tubemq_ends_asset(f"{self.name}_ends", **names))
        return dg.Definitions(assets=assets, asset_checks=[check], resources=resources)

    def _resource(self) -> SourceResource:
        fields = dict(self.resource or {})
        if self.source == FIRST_SOURCE:
            return TubeMQResource(**fields)
        if self.source == ROCKETMQ.source:
            return RocketMQResource(**fields)
        return PluginResource(kind=self.source, **fields)

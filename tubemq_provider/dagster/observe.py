"""Observation of a topic and its sink between windows: samples of ends, and coverage.

Moves neither records nor progress.
"""

from datetime import UTC, datetime
from os import PathLike

import dagster as dg

from tubemq_provider.dagster.resource import SourceResource
from tubemq_provider.offsets.file_timeline import FileTimeline
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.canonical import rfc3339, sha256_hex
from tubemq_provider.windows.coverage import Coverage, coverage, report
from tubemq_provider.windows.protocols import Sink
from tubemq_provider.windows.time_resolvers.samples import instant_of
from tubemq_provider.windows.time_resolvers.timeline import record_sample


def build_tubemq_ends_asset(
    name: str, *, topic: str, group: str, resource_key: str = "tubemq"
) -> dg.AssetsDefinition:
    """Return an asset that samples the topic's ends: schedule it every minute or so.

    Its samples are the clock of time windows: a boundary between two windows is as sharp as the
    samples are dense. Its data version is the ends themselves.
    """

    @dg.asset(name=name, required_resource_keys={resource_key}, kinds={"tubemq"})
    def sampled(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        resource: SourceResource = getattr(context.resources, resource_key)
        timeline = record_sample(
            topic,
            FileTimeline(resource.directory(topic, group)),
            lambda: resource.reachable_ends(topic, group, stable=False),
            lambda: datetime.now(UTC),
            source=resource.source(topic, group).space.source,
        )
        newest = timeline.samples[-1]
        ends = dict(newest.ends)
        return dg.MaterializeResult(
            metadata={
                "at": rfc3339(instant_of(newest.at_ms)),
                "samples": len(timeline.samples),
                "ends": dg.MetadataValue.json(ends),
            },
            data_version=dg.DataVersion(sha256_hex(ends)),
        )

    return sampled


def build_coverage_check(
    asset: dg.AssetKey | str, sink: str | PathLike[str] | Sink
) -> dg.AssetChecksDefinition:
    """Return a check that fails while windows are missing or overlap in `sink`, or none exist.

    Judged by the sink's markers. `sink` is the asset's.
    """
    opened_sink = sink_for(sink)

    @dg.asset_check(asset=asset, name="coverage")
    def check() -> dg.AssetCheckResult:
        scopes = coverage(published_windows(opened_sink))
        blocks = list(map(_block, scopes)) or [
            f"no window is published in `{opened_sink.identity}`"
        ]
        return dg.AssetCheckResult(
            passed=bool(scopes) and all(scope.complete for scope in scopes),
            metadata={"report": dg.MetadataValue.md("\n\n".join(blocks))},
        )

    return check


def _block(scope: Coverage) -> str:
    return f"```\n{report(scope)}\n```"

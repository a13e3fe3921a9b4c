"""Observation of a topic and its sink between windows: samples of ends, and coverage.

Moves neither records nor progress.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from os import PathLike
from typing import Any, Final

import dagster as dg

from tubemq_provider.dagster.resource import SourceResource
from tubemq_provider.files.durable import read_document
from tubemq_provider.offsets.file import CLAIMS_FILE, CURSOR_FILE
from tubemq_provider.offsets.file_timeline import FileTimeline
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.canonical import parse_instant, rfc3339, sha256_hex
from tubemq_provider.windows.coverage import Coverage, coverage, report
from tubemq_provider.windows.lag import Lag, lag_between
from tubemq_provider.windows.protocols import Marker, Sink
from tubemq_provider.windows.time_resolvers.samples import instant_of
from tubemq_provider.windows.time_resolvers.timeline import record_sample

_SHOWN: Final = 10
_SENSOR_TAG: Final = "tubemq/lag_sensor"
_UNFINISHED: Final = [
    status
    for status in dg.DagsterRunStatus
    if status.value not in ("SUCCESS", "FAILURE", "CANCELED")
]


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
    asset: dg.AssetKey | str,
    sink: str | PathLike[str] | Sink,
    *,
    partitions_def: dg.TimeWindowPartitionsDefinition | None = None,
) -> dg.AssetChecksDefinition:
    """Return a check that fails while windows are missing or overlap in `sink`, or none exist.

    Judged by the sink's markers. `sink` is the asset's. With the asset's `partitions_def` every
    partition that has ended must be published, the first and the newest ones too; without it only
    what lies between published windows is judged.
    """
    opened_sink = sink_for(sink)

    @dg.asset_check(asset=asset, name="coverage")
    def check() -> dg.AssetCheckResult:
        markers = published_windows(opened_sink)
        scopes = coverage(markers)
        blocks = list(map(_block, scopes)) or [
            f"no window is published in `{opened_sink.identity}`"
        ]
        missing = _unpublished(partitions_def, markers)
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            blocks.append(f"partitions without a window: {', '.join(missing[:_SHOWN])}{more}")
        return dg.AssetCheckResult(
            passed=bool(scopes) and all(scope.complete for scope in scopes) and not missing,
            metadata={
                "report": dg.MetadataValue.md("\n\n".join(blocks)),
                "missing_partitions": len(missing),
            },
        )

    return check


def _unpublished(
    partitions: dg.TimeWindowPartitionsDefinition | None, markers: Iterable[Marker]
) -> list[str]:
    """Return the keys of partitions up to now whose interval is not in published windows."""
    if partitions is None:
        return []
    spans = sorted(
        (parse_instant(start), parse_instant(end))
        for marker in markers
        if marker.plan.time
        for start, end in [marker.plan.time]
    )
    missing = []
    for key in partitions.get_partition_keys():
        window = partitions.time_window_for_partition_key(key)
        reached = window.start
        for start, end in spans:
            if start <= reached < end:
                reached = end
        if reached < window.end:
            missing.append(key)
    return missing


def build_lag_check(
    asset: dg.AssetKey | str,
    *,
    topic: str,
    group: str,
    max_lag: int,
    resource_key: str = "tubemq",
) -> dg.AssetChecksDefinition:
    """Return a check of a cursor asset that fails while its group is more than `max_lag` index
    entries behind the stable ends: an upper bound on records. Schedule it with the asset."""

    @dg.asset_check(asset=asset, name="lag", required_resource_keys={resource_key})
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        lag = _lag(getattr(context.resources, resource_key), topic, group)
        return dg.AssetCheckResult(passed=lag.total <= max_lag, metadata={"lag": lag.total})

    return check


def build_lag_sensor(
    name: str,
    *,
    topic: str,
    group: str,
    target: Any,
    min_lag: int = 1,
    resource_key: str = "tubemq",
    minimum_interval_seconds: int = 30,
) -> dg.SensorDefinition:
    """Return a sensor that runs `target`, a cursor asset, when its group is at least `min_lag`
    index entries behind the stable ends.

    It requests none while one of its runs is queued or in progress; after a failed run the next
    look requests another.
    """

    @dg.sensor(
        name=name,
        target=target,
        required_resource_keys={resource_key},
        minimum_interval_seconds=minimum_interval_seconds,
    )
    def sense(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        resource: SourceResource = getattr(context.resources, resource_key)
        tags = {_SENSOR_TAG: name}
        unfinished = dg.RunsFilter(tags=tags, statuses=_UNFINISHED)
        if context.instance.get_runs(unfinished, limit=1):
            return dg.SkipReason("a run that this sensor requested has not ended")
        lag = _lag(resource, topic, group)
        if lag.total < min_lag:
            return dg.SkipReason(f"lag {lag.total}, below {min_lag}")
        return dg.RunRequest(tags=tags)

    return sense


def _positions(resource: SourceResource, topic: str, group: str) -> dict[str, int]:
    """Return the next offset of each partition; empty without a cursor. Runs with and without
    claims keep it in different files."""
    directory = resource.directory(topic, group)
    cursors = [read_document(directory / name) or {} for name in (CURSOR_FILE, CLAIMS_FILE)]
    newest = max(cursors, key=lambda cursor: int(cursor.get("seq", -1)))
    return {key: int(offset) for key, offset in newest.get("next", {}).items()}


def _lag(resource: SourceResource, topic: str, group: str) -> Lag:
    space = resource.source(topic, group).space
    ends = resource.reachable_ends(topic, group, stable=True)
    positions = _positions(resource, topic, group)
    return lag_between(ends, {each: positions.get(each.key) for each in ends}, space)


def _block(scope: Coverage) -> str:
    return f"```\n{report(scope)}\n```"

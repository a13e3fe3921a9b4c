"""Observation of a topic and its sink between windows: samples of ends, and coverage.

Moves neither records nor progress.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from typing import Any, Final

import dagster as dg

from tubemq_client.errors import ConfigError
from tubemq_provider.dagster.resource import SourceResource
from tubemq_provider.files.durable import read_document
from tubemq_provider.ingest.validation import offsets_for_topic
from tubemq_provider.offsets.file import CLAIMS_FILE, CURSOR_FILE
from tubemq_provider.offsets.file_timeline import FileTimeline
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.canonical import parse_instant, rfc3339, sha256_hex
from tubemq_provider.windows.coverage import Coverage, coverage, report
from tubemq_provider.windows.cursor import newer_position
from tubemq_provider.windows.lag import Lag, lag_between
from tubemq_provider.windows.protocols import Marker, Sink
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of
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
        resource: SourceResource = getattr(context.resources, resource_key)
        lag = _lag(resource, topic, group, stored_positions(resource, topic, group))
        return dg.AssetCheckResult(passed=lag.total <= max_lag, metadata={"lag": lag.total})

    return check


def build_lag_sensor(
    name: str,
    *,
    topic: str,
    group: str,
    target: Any,
    min_lag: int = 1,
    max_wait: float | None = None,
    resource_key: str = "tubemq",
    minimum_interval_seconds: int = 30,
) -> dg.SensorDefinition:
    """Return a sensor that runs `target`, a cursor asset, when its group is at least `min_lag`
    index entries behind the stable ends.

    It requests none while one of its runs is queued or in progress; after a failed run the next
    look requests another. Its cursor has lag, position and since when there is lag, as JSON.

    :param max_wait: seconds after which any lag requests a run. Default: never.
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
        now = datetime.now(UTC).timestamp()
        positions = stored_positions(resource, topic, group)
        lag = _lag(resource, topic, group, positions)
        since = _lagging_since(context.cursor, positions, now) if lag.total else None
        noted = {"lag": lag.total, "position": positions, "since": since}
        context.update_cursor(json.dumps(noted))
        waited = 0.0 if since is None else now - since
        if lag.total >= min_lag:
            return dg.RunRequest(tags=tags)
        if lag.total and max_wait is not None and waited >= max_wait:
            return dg.RunRequest(tags=tags)
        return dg.SkipReason(f"lag {lag.total}, below {min_lag}")

    return sense


def _lagging_since(cursor: str | None, positions: Mapping[str, int], now: float) -> float:
    """Return since when, in seconds, looks have found lag behind this position."""
    try:
        noted = json.loads(cursor or "{}")
        same = noted["position"] == positions and noted["since"] is not None
        return float(noted["since"]) if same else now
    except (ValueError, TypeError, LookupError):
        return now  # a cursor that a user has edited


def build_ready_sensor(
    name: str,
    *,
    topic: str,
    target: Any,
    partitions: Sequence[str] = (),
    until_offsets: Mapping[str, Any] | None = None,
    group: str = "tubemq_ready",
    source: str = FIRST_SOURCE,
    resource_key: str = "tubemq",
    minimum_interval_seconds: int = 30,
) -> dg.SensorDefinition:
    """Return a sensor that runs `target` once partitions can be read, up to given offsets.

    It requests one run for each condition: its cursor and the run's key have the condition's hash.

    :param partitions: partition keys such as ``["1:0", "2:0"]``. Default: those of `until_offsets`,
        or else all that can be reached, at least one.
    :param until_offsets: ``{"1:0": 2800}``, or the same under the topic's name: the stable end must
        be at or beyond the offset.
    :param group: consumer group for the look-ups.
    :param source: kind of the topic, as of the resource.

    Raises `ConfigError` at once, with every problem.
    """
    until = _until(name, topic, partitions, until_offsets or {}, source)
    condition = sha256_hex({"topic": topic, "partitions": sorted(partitions), "until": until})

    @dg.sensor(
        name=name,
        target=target,
        required_resource_keys={resource_key},
        minimum_interval_seconds=minimum_interval_seconds,
    )
    def sense(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if context.cursor == condition:
            return dg.SkipReason("a run was requested for this condition")
        resource: SourceResource = getattr(context.resources, resource_key)
        ends = resource.reachable_ends(topic, group, stable=True)
        reached = {partition.key: end.max_offset for partition, end in ends.items()}
        waiting = [f"{key} cannot be read" for key in {*partitions, *until} - reached.keys()]
        waiting += [
            f"{key} ends at {reached[key]}, {offset} is wanted"
            for key, offset in until.items()
            if key in reached and reached[key] < offset
        ]
        if waiting or not reached:
            return dg.SkipReason("; ".join(sorted(waiting)) or "no partition can be read yet")
        context.update_cursor(condition)
        return dg.RunRequest(run_key=f"{name}-{condition}", tags={_SENSOR_TAG: name})

    return sense


def _until(
    name: str,
    topic: str,
    partitions: Sequence[str],
    until_offsets: Mapping[str, Any],
    source: str,
) -> dict[str, int]:
    """Return the offsets by partition key. Raises `ConfigError` with every problem."""
    problems, until = [], dict[str, int]()
    for key in partitions:
        try:
            space_of(source).partition(topic, key)
        except ValueError as exc:
            problems.append(f"partitions: {exc}")
    try:
        given = offsets_for_topic(until_offsets, topic, "until_offsets", source=source)
        until = {key: int(offset) for key, offset in given.items()}
    except ValueError as exc:
        problems += str(exc).splitlines()
    if problems:
        raise ConfigError(problems, subject=f"sensor {name!r}")
    return until


def stored_positions(resource: SourceResource, topic: str, group: str) -> dict[str, int]:
    """Return the next offset of each partition; empty without a cursor. Runs with and without
    claims keep it in different files."""
    if resource.offset_store is not None:
        store = resource.progress(topic, group, task="")
        position = newer_position(store.load_cursor(), store.newest_position()) or {}
        return {key: int(offset) for key, offset in position.get("next", {}).items()}
    directory = resource.directory(topic, group)
    cursors = [read_document(directory / name) or {} for name in (CURSOR_FILE, CLAIMS_FILE)]
    newest = max(cursors, key=lambda cursor: int(cursor.get("seq", -1)))
    return {key: int(offset) for key, offset in newest.get("next", {}).items()}


def _lag(resource: SourceResource, topic: str, group: str, positions: Mapping[str, int]) -> Lag:
    space = resource.source(topic, group).space
    ends = resource.reachable_ends(topic, group, stable=True)
    return lag_between(ends, {each: positions.get(each.key) for each in ends}, space)


def _block(scope: Coverage) -> str:
    return f"```\n{report(scope)}\n```"

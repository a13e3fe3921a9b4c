"""One asset per topic and sink: a partition of time is a window, or a run is the next window.

A time-partitioned asset ingests the windows of the partitions it is asked for, in any order and as
often as somebody likes; an unpartitioned one goes on from the cursor. Records are there exactly
once either way: a rerun finds the window's marker in the sink and writes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from typing import Any

import dagster as dg

from tubemq_client import errors
from tubemq_client.errors import ConfigError
from tubemq_provider.dagster.judging import problems_of
from tubemq_provider.dagster.resource import TubeMQResource
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.offsets.file_timeline import FileTimeline
from tubemq_provider.sinks.factory import sink_for, sink_uri
from tubemq_provider.sources.tubemq.source import TubeMQSource
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.canonical import sha256_hex
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.instants import TimeResolver
from tubemq_provider.windows.planning.resolve import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Sink
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.time.boundaries import Boundaries
from tubemq_provider.windows.time.timeline import TimelineResolver

__all__ = ["build_tubemq_asset"]

_NOT_READY_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class _Ingest:
    """What every run of one asset does; `resource` and the window come with the run."""

    name: str
    topic: str
    group: str
    sink: Sink
    filters: tuple[str, ...] = ()
    boundaries: Mapping[str, Any] | str | None = None
    initial_position: str | Mapping[str, Any] | None = None
    max_entries: int | None = None
    policies: Policies = field(default_factory=Policies)
    epoch: str = ""

    def windows(
        self,
        resource: TubeMQResource,
        attempt: str,
        context: dg.AssetExecutionContext,
        partitions: dg.TimeWindowPartitionsDefinition | None,
    ) -> dict[str | None, WindowResult]:
        """A window for each partition of this run, or the next one after the cursor."""
        if partitions is None:
            return {None: self.next_window(resource, attempt)}
        return {
            key: self.window(resource, attempt, key, _span(partitions, key))
            for key in context.partition_keys
        }

    def window(
        self, resource: TubeMQResource, run_id: str, key: str, span: tuple[datetime, datetime]
    ) -> WindowResult:
        """The window `span` of partition `key`."""
        planner = TimePlanner(
            self._scope(resource),
            *span,
            self._resolver(resource),
            lambda: resource.reachable_ends(self.topic, self.group, stable=True),
            self.sink.boundaries,
            self.policies,
        )
        return self._run(resource, planner, task=f"{self.name}|{key}", attempt=run_id)

    def next_window(self, resource: TubeMQResource, run_id: str) -> WindowResult:
        """The window after the cursor."""
        scope = self._scope(resource)
        planner = CursorPlanner(
            scope,
            lambda: resource.reachable_ends(self.topic, self.group, stable=True),
            self.initial_position,
            self.max_entries,
            self.policies,
            # Dagster lets two runs of an asset overlap unless a pool says otherwise.
            serialised=False,
        )
        return self._run(resource, planner, task=f"{self.name}|{run_id}", attempt=run_id)

    def _run(
        self,
        resource: TubeMQResource,
        planner: CursorPlanner | TimePlanner,
        *,
        task: str,
        attempt: str,
    ) -> WindowResult:
        store = FileOffsetStore(resource.directory(self.topic, self.group), task=task)
        with self._source(resource) as source:
            planner.witness = source.life()
            engine = InlineEngine.for_source(source, policies=self.policies)
            return window_run(planner, store, self.sink, engine, attempt=attempt).run()

    def _source(self, resource: TubeMQResource) -> TubeMQSource:
        return TubeMQSource(
            resource.settings(),
            identity=resource.cluster,
            topic=self.topic,
            group=self.group,
            filters=self.filters,
        )

    def _scope(self, resource: TubeMQResource) -> WindowScope:
        return WindowScope(
            resource.cluster,
            self.topic,
            self.group,
            self.sink.identity,
            self.filters,
            self.epoch,
        )

    def _resolver(self, resource: TubeMQResource) -> TimeResolver:
        if self.boundaries is not None:
            return Boundaries.load(self.boundaries, self.topic)
        return TimelineResolver(
            self.topic,
            FileTimeline(resource.directory(self.topic, self.group)).load_timeline,
            lambda: resource.partitions(self.topic, self.group),
        )


def build_tubemq_asset(
    name: str,
    *,
    topic: str,
    group: str,
    sink: str | PathLike[str] | Sink,
    partitions_def: dg.TimeWindowPartitionsDefinition | None = None,
    boundaries: Mapping[str, Any] | str | None = None,
    filters: Sequence[str] = (),
    initial_position: str | Mapping[str, Any] | None = None,
    max_entries: int | None = None,
    policies: Policies | None = None,
    epoch: str = "",
    resource_key: str = "tubemq",
    max_retries: int = 20,
    **asset_options: Any,
) -> dg.AssetsDefinition:
    """An asset that brings `topic` into `sink`, exactly once.

    :param partitions_def: partitions of time; each is a window. None: every run takes the next
        window after the cursor.
    :param boundaries: offsets by instant, see `Boundaries`; by default the samples that
        `build_tubemq_ends_asset` takes are the clock.
    :param initial_position: where the first cursor window begins: ``"earliest"`` or offsets.
    :param max_entries: cap of a cursor window in index entries, an upper bound on records.
    :param epoch: name of the life of the topic that the group follows. A name that was not used
        before begins a new life, from the beginning of the logs, for a topic that was made anew.
    :param max_retries: how often a window that is not ready (its end not on disk yet, or not
        sampled yet) is tried again, 30 s apart.

    Other options go to `dagster.asset`. Runs of one cursor asset that overlap cost work and no
    records; give the asset a `pool` with one slot to avoid it. Raises `ConfigError` at once for
    options that do not go together.
    """
    problems = _problems(partitions_def, boundaries, initial_position, max_entries)
    problems += problems_of(topic, group, sink, filters, initial_position, max_entries)
    if problems:
        raise ConfigError(problems, subject=f"asset {name!r}")
    ingest = _Ingest(
        name,
        topic,
        group,
        sink_for(sink),
        tuple(filters),
        boundaries,
        initial_position,
        max_entries,
        policies or Policies(),
        epoch,
    )
    if isinstance(sink, str | PathLike):
        given = asset_options.get("metadata", {})
        asset_options["metadata"] = {"dagster/uri": sink_uri(sink), **given}
    if partitions_def is not None:
        asset_options["partitions_def"] = partitions_def
    return _asset(name, ingest, resource_key, max_retries, asset_options)


def _asset(
    name: str, ingest: _Ingest, resource_key: str, max_retries: int, options: dict[str, Any]
) -> dg.AssetsDefinition:
    partitions = options.get("partitions_def")

    def ingested(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        resource: TubeMQResource = getattr(context.resources, resource_key)
        attempt = f"{context.run.run_id}-{context.op_execution_context.retry_number}"
        with _in_dagsters_terms(max_retries):
            return _materialized(context, ingest.windows(resource, attempt, context, partitions))

    return dg.asset(  # type: ignore[no-any-return]
        name=name, required_resource_keys={resource_key}, kinds={"tubemq"}, **options
    )(ingested)


def _problems(
    partitions_def: object, boundaries: object, initial_position: object, max_entries: object
) -> list[str]:
    if partitions_def is None:
        return ["boundaries need partitions_def"] if boundaries is not None else []
    problems = []
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        problems.append("partitions_def must be partitions of time (hourly, daily, …)")
    if initial_position is not None:
        problems.append("initial_position has no effect with partitions_def")
    if max_entries is not None:
        problems.append("max_entries has no effect with partitions_def")
    return problems


def _span(partitions: dg.TimeWindowPartitionsDefinition, key: str) -> tuple[datetime, datetime]:
    window = partitions.time_window_for_partition_key(key)
    return window.start, window.end


@contextmanager
def _in_dagsters_terms(max_retries: int) -> Iterator[None]:
    """Trouble that passes asks for a retry, trouble that does not refuses one."""
    try:
        yield
    except WindowNotReady as error:
        raise dg.RetryRequested(max_retries, _NOT_READY_WAIT_S) from error
    except errors.TubeMQError as error:
        if error.fatal:
            raise dg.Failure(description=str(error), allow_retries=False) from error
        raise


def _materialized(
    context: dg.AssetExecutionContext, windows: Mapping[str | None, WindowResult]
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """What each partition of a run is told of its own window, and a version that a rerun of the
    same partitions repeats: Dagster keeps one version for all events of a step."""
    hashes = [result.hash or "" for result in windows.values()]
    version = dg.DataVersion(hashes[0] if len(hashes) == 1 else sha256_hex(hashes))
    if len(windows) > 1:
        for key, result in windows.items():
            context.add_asset_metadata(_metadata(result), partition_key=key)
        return dg.MaterializeResult(data_version=version)
    (result,) = windows.values()
    return dg.MaterializeResult(
        metadata=_metadata(result), data_version=version if result.hash else None
    )


def _metadata(result: WindowResult) -> dict[str, Any]:
    """Numbers that Dagster plots, and the whole result."""
    gaps = (end - start for lost in result.gaps.values() for start, end in lost)
    return {
        "dagster/partition_row_count": result.total,
        "records": result.total,
        "bytes": result.bytes,
        "corrupt": result.corrupt,
        "gap_entries": sum(gaps) // SPACE.step,
        "replayed": result.replayed,
        "has_more": result.has_more,
        "windows": dg.MetadataValue.json([result.to_document()]),
        **({"place": result.sink_ref} if result.sink_ref else {}),
        **({"records_per_second": _rate(result)} if _rate(result) else {}),
    }


def _rate(result: WindowResult) -> float:
    """Index entries a second of the window's own run; 0 where it is not known."""
    if result.replayed or result.pace is None or not result.pace.took_ms:
        return 0.0
    return round(result.pace.entries * 1000 / result.pace.took_ms, 1)

"""Assets for ingest: one per topic and sink; a time partition, or a run, is a window.

A time-partitioned asset ingests the windows of the requested partitions, in any order and as often
as a user likes; an unpartitioned one continues from the cursor. Either way records are there
exactly once: a rerun finds the window's marker in the sink and writes nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from os import PathLike, fspath
from typing import Any, Final

import dagster as dg

from tubemq_client import errors
from tubemq_client.errors import ConfigError
from tubemq_provider.dagster.resource import SourceResource
from tubemq_provider.dagster.validation import (
    UNNAMED,
    asset_arguments,
    is_argument,
    refuse_unknown,
)
from tubemq_provider.engines.function import PlannedWindow
from tubemq_provider.ingest.arguments import IngestArguments, no_destination
from tubemq_provider.ingest.columns import expected_columns
from tubemq_provider.ingest.job import IngestJob, Interval
from tubemq_provider.offsets.file_claims import FileClaimStore
from tubemq_provider.offsets.file_timeline import FileTimeline
from tubemq_provider.rows.routing import escaped
from tubemq_provider.sinks.factory import sink_for, sink_uri, sink_word
from tubemq_provider.sinks.routed import Route, RoutedSink, RouteSet
from tubemq_provider.sources.rocketmq.space import SPACE as ROCKETMQ
from tubemq_provider.windows.canonical import sha256_hex
from tubemq_provider.windows.errors import WindowNotReady, is_final
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import OffsetStore, Sink
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of
from tubemq_provider.windows.time_resolvers.samples import BeforeSamples

_NOT_READY_WAIT_S = 30
_OBJECT_STORES = ("s3", "gs", "az")


@dataclass(frozen=True, slots=True)
class Ingest:
    """Work of every run of one asset; `resource` and the window belong to the run."""

    name: str
    arguments: IngestArguments
    sink: Sink
    claims: bool
    open_table: Callable[[Route, str], Sink]
    function: Callable[[PlannedWindow], object] | None = None

    def windows(
        self,
        resource: SourceResource,
        context: dg.AssetExecutionContext,
        partitions: dg.TimeWindowPartitionsDefinition | None,
    ) -> dict[str | None, WindowResult]:
        """Ingest a window for each partition of this run, or the next one after the cursor."""
        if partitions is None:
            return {None: self._window(resource, context, context.run.run_id, (None, None))}
        windows: dict[str | None, WindowResult] = {}
        for key in context.partition_keys:
            try:
                windows[key] = self._window(resource, context, key, _span(partitions, key))
            except BeforeSamples as error:
                late = self.arguments.late_allowance or timedelta(0)
                raise ConfigError(
                    [*error.problems, _first_partition(partitions, error.first, late)],
                    subject=f"partition {key}",
                ) from error
        return windows

    def _window(
        self,
        resource: SourceResource,
        context: dg.AssetExecutionContext,
        key: str,
        interval: Interval,
    ) -> WindowResult:
        retry = context.op_execution_context.retry_number
        store = self.store(resource, context.instance, f"{self.name}|{key}")
        with ExitStack() as stack:
            job = self.job(resource, interval, stack)
            if self.function is not None:
                job.read_with(self.function)
            progress_logger = job.progress_logger(context.log)
            try:
                result = job.run(
                    store,
                    attempt=f"{context.run.run_id}-{retry}",
                    # Without a pool Dagster lets two runs of an asset overlap.
                    serialised=self.claims,
                    observer=progress_logger,
                    # Materialising a partition again requests it. So does a retry of a step: the
                    # progress of the earlier try is unknown, and reading twice loses nothing.
                    cleared=self.arguments.on_clear == "rewrite",
                )
            except BaseException:
                job.cancel()
                raise
        progress_logger.done(result)
        for warning in result.warnings:
            context.log.warning(warning)
        return result

    def job(self, resource: SourceResource, interval: Interval, stack: ExitStack) -> IngestJob:
        """Return the job of one window, which `stack` closes."""
        arguments, sink = self._of_cluster(resource), self.sink
        routes = arguments.route_set
        if routes is not None:
            sink = RoutedSink(sink, routes, self.open_table)
        samples = FileTimeline(resource.directory(arguments.topic, arguments.group))
        source = resource.source(arguments.topic, arguments.group, arguments.filters)
        return IngestJob(
            arguments, source, sink, stack, interval=interval, timeline=samples.load_timeline
        )

    def _of_cluster(self, resource: SourceResource) -> IngestArguments:
        """Return the arguments, with the resource's cluster.

        Raises `ConfigError` if the asset was defined for another one, whose progress would be mixed
        up.
        """
        cluster = self.arguments.cluster
        if cluster not in (UNNAMED, resource.cluster):
            raise ConfigError(
                f"the resource is of cluster {resource.cluster!r}, asset {self.name!r} is for "
                f"{cluster!r}",
                subject="cluster",
            )
        return self.arguments.model_copy(update={"cluster": resource.cluster})

    def store(
        self, resource: SourceResource, instance: dg.DagsterInstance, task: str
    ) -> OffsetStore:
        """Return the store of the group's progress, for one task.

        Raises `ConfigError` for claims in a plug-in's store.
        """
        names = (self.arguments.topic, self.arguments.group)
        if not self.claims:
            return resource.progress(*names, task=task)
        if resource.offset_store is not None:
            raise ConfigError(
                f"claims are kept in offsets_dir: leave out claims=True, or "
                f"offset_store={resource.offset_store!r} of the resource",
                subject=f"asset {self.name!r}",
            )
        over = partial(_is_over, instance)
        return FileClaimStore(resource.directory(*names), task=task, over=over)


def _is_over(instance: dg.DagsterInstance, task: str) -> bool:
    """Return True if the run of that task has ended, or is unknown."""
    run = instance.get_run_by_id(task.rpartition("|")[2])
    return run is None or run.is_finished


def build_tubemq_asset(
    name: str,
    *,
    topic: str,
    group: str,
    sink: str | PathLike[str] | Sink,
    partitions_def: dg.TimeWindowPartitionsDefinition | None = None,
    policies: Policies | None = None,
    claims: bool = False,
    storage_options: Mapping[str, str] | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    resource_key: str = "tubemq",
    max_retries: int = 20,
    function: Callable[[PlannedWindow], object] | None = None,
    **options: Any,
) -> dg.AssetsDefinition:
    """Return an asset that ingests `topic` into `sink`, exactly once.

    :param partitions_def: partitions of time; each is a window. None: every run takes the next
        window after the cursor, or `starting_offsets` to `ending_offsets`.
    :param policies: all policies in one object, instead of `gap_policy`, `corrupt_records` …
    :param claims: runs of a cursor asset may overlap: each claims a separate window in the
        directory of progress, which must be on a file system with locks that all hosts share.
        Assets of time or of explicit offsets need it too if such an asset uses their group.
    :param storage_options: credentials and options of an object store.
    :param catalog_properties: properties of an Iceberg catalog.
    :param max_retries: number of retries, 30 s apart, for a window that is not ready (its end not
        on disk yet, or not sampled yet).
    :param function: reads the window in place of an engine, see `build_consume_asset`.

    `options` are arguments of the ingest operators, with the same names and meaning: `engine`,
    `verify`, `partition_by`, `schema_evolution`, `spark_conf`, `resolver`
    (by default ``timeline``, with samples of `build_tubemq_ends_asset`, or `boundaries`),
    `filters`, `initial_position`, `max_bytes`, `max_duration`, `epoch`, `epoch_seen`,
    `commit_to_broker`, `cluster` … All others are passed to `dagster.asset`. Runs of one cursor
    asset that overlap without claims waste work but lose no records; a `pool` with one slot avoids
    it. With `routes` the result is a multi-asset with an asset ``<name>/<route>`` for each route,
    and `sink` keeps the windows' markers. Raises `ConfigError` at once, with every problem.
    """
    ingest_options = {key: value for key, value in options.items() if is_argument(key)}
    ingest_options |= {"topic": topic, "group": group}
    asset_options = {key: value for key, value in options.items() if not is_argument(key)}
    refuse_unknown(name, asset_options)
    ingest_options = {key: value for key, value in ingest_options.items() if value is not None}
    arguments = asset_arguments(name, sink, partitions_def, policies, ingest_options, claims=claims)
    opened_sink = sink_for(
        sink,
        storage_options=storage_options,
        catalog_properties=catalog_properties,
        **arguments.sink_options,
    )

    def open_table(route: Route, address: str) -> Sink:
        remote = any(f"{scheme}://" in address for scheme in _OBJECT_STORES)
        of_route: dict[str, Any] = dict(route.options)
        if route.following is not None:
            of_route["following"] = route.following
        return sink_for(
            address,
            storage_options=storage_options if remote else None,
            catalog_properties=catalog_properties if sink_word(address) == "iceberg" else None,
            **of_route,
        )

    ingest = Ingest(name, arguments, opened_sink, claims, open_table, function)
    asset_options["metadata"] = {
        **_definition_metadata(arguments, sink),
        **(asset_options.get("metadata") or {}),
    }
    asset_options.setdefault(
        "description",
        f"Records of the {arguments.source} topic `{topic}`, each exactly once. Group `{group}`; "
        f"a window is {'a partition of time' if partitions_def is not None else 'one run'}.",
    )
    if asset_options.get("kinds") is None:
        asset_options["kinds"] = {arguments.source, *_kinds_of(sink)}
    if partitions_def is not None:
        asset_options["partitions_def"] = partitions_def
    if arguments.routes is not None:
        return _routed_assets(name, ingest, resource_key, max_retries, asset_options)
    return _asset(name, ingest, resource_key, max_retries, asset_options)


def _definition_metadata(arguments: IngestArguments, sink: object) -> dict[str, Any]:
    """Return where the asset's data is and which columns it has, as far as known without a run."""
    metadata: dict[str, Any] = {"topic": arguments.topic, "group": arguments.group}
    if isinstance(sink, str | PathLike):
        uri = sink_uri(sink)
        metadata["dagster/uri"] = uri
        if table := _table_name(uri):
            metadata["dagster/table_name"] = table
    if (schema := expected_columns(arguments, arguments.source)) is not None:
        metadata["dagster/column_schema"] = dg.TableSchema(
            [
                dg.TableColumn(
                    column.name,
                    str(column.type),
                    constraints=dg.TableColumnConstraints(nullable=column.nullable),
                )
                for column in schema
            ]
        )
    return metadata


def _table_name(uri: str) -> str:
    """Return the name of a table of a catalog or database, as other tools write it, or ""."""
    scheme, _, place = uri.partition("://")
    if scheme in ("file", *_OBJECT_STORES):
        return ""
    if scheme == "iceberg":
        return place.replace("/", ".")
    database, _, table = place.rpartition("/")
    return table if scheme == "sqlite" else f"{database.rpartition('/')[2]}.{table}"


def _kinds_of(sink: object) -> tuple[str, ...]:
    """Return the kind of a sink that is an address, in Dagster's words."""
    word = sink_word(sink) if isinstance(sink, str | PathLike) else ""
    return ("parquet",) if word in ("append", *_OBJECT_STORES) else (word,) if word else ()


def build_rocketmq_asset(
    name: str,
    *,
    topic: str,
    group: str,
    sink: str | PathLike[str] | Sink,
    partitions_def: dg.TimeWindowPartitionsDefinition | None = None,
    resource_key: str = "rocketmq",
    **options: Any,
) -> dg.AssetsDefinition:
    """Return an asset that ingests `topic` of RocketMQ into `sink`, exactly once.

    Takes the arguments of `build_tubemq_asset`. Partitions are queues (``broker-a:0``), `filters`
    are tags, and with `partitions_def` a window has the records that brokers stored in its interval
    (``resolver="store_time"``) unless `boundaries` or another `resolver` is given.
    """
    if partitions_def is not None and options.get("boundaries") is None:
        options.setdefault("resolver", "store_time")
    return build_tubemq_asset(
        name,
        topic=topic,
        group=group,
        sink=sink,
        partitions_def=partitions_def,
        resource_key=resource_key,
        source=ROCKETMQ.source,
        **options,
    )


ASSET_BUILDERS: Final[Mapping[str, Callable[..., dg.AssetsDefinition]]] = {
    FIRST_SOURCE: build_tubemq_asset,
    ROCKETMQ.source: build_rocketmq_asset,
}
"""Builders by the kind of the topic; `build_tubemq_asset` takes other kinds as `source`."""


def build_consume_asset(
    name: str,
    *,
    topic: str,
    group: str,
    markers: str | PathLike[str],
    apply_function: Callable[..., object],
    batch_size: int = 1_000,
    **options: Any,
) -> dg.AssetsDefinition:
    """Return an asset that passes every record of a window to `apply_function`, in batches.

    The window is the same in every try, whatever has arrived meanwhile; after the last batch it is
    recorded as done in `markers`. If a run dies before, the next one passes the *same* window again
    from its beginning, under the same ``window.window_id``: exactly once, if what the function
    writes under that id replaces what an earlier try left, else at least once.

    :param markers: where done windows are recorded: a directory that all runs share, or
        ``s3://…``. A separate one for each group.
    :param apply_function: called with a list of the client's messages and the `PlannedWindow`.
    :param batch_size: messages per call.

    `options` are those of `build_tubemq_asset` that select records. Raises `ConfigError` at once,
    with every problem.
    """
    problems = no_destination(options)
    if not callable(apply_function):
        problems.append("apply_function: it cannot be called")
    if batch_size < 1:
        problems.append(f"batch_size: {batch_size} is not >= 1")
    if problems:
        raise ConfigError(problems, subject=f"asset {name!r}")

    def read(window: PlannedWindow) -> None:
        messages = window.messages()
        while batch := list(islice(messages, batch_size)):
            apply_function(batch, window)

    options.setdefault("kinds", {"python", str(options.get("source", FIRST_SOURCE))})
    return build_tubemq_asset(
        name,
        topic=topic,
        group=group,
        sink=f"markers:{fspath(markers)}",
        engine="inline",
        function=read,
        **options,
    )


def _asset(
    name: str, ingest: Ingest, resource_key: str, max_retries: int, options: dict[str, Any]
) -> dg.AssetsDefinition:
    partitions = options.get("partitions_def")
    other_keys = options.pop("required_resource_keys", None) or ()

    def ingested(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        resource: SourceResource = getattr(context.resources, resource_key)
        with failing_in_dagsters_terms(max_retries):
            windows = ingest.windows(resource, context, partitions)
            return _materialized(context, windows, space_of(ingest.arguments.source).step)

    return dg.asset(  # type: ignore[no-any-return]
        name=name,
        required_resource_keys={resource_key, *other_keys},
        **options,
    )(ingested)


def _routed_assets(
    name: str, ingest: Ingest, resource_key: str, max_retries: int, options: dict[str, Any]
) -> dg.AssetsDefinition:
    """Return a multi-asset with an asset for each route, materialised by one read of a window."""
    routes = ingest.arguments.route_set
    assert routes is not None
    if named := [route.pattern for route in routes.routes if route.conn_id is not None]:
        raise ConfigError(
            f"routes: sink_conn_id of {', '.join(named)}: there are no connections here; pass "
            "storage_options or catalog_properties",
            subject=f"asset {name!r}",
        )
    every = {"metadata", "description", "kinds", "group_name", "owners", "tags", "deps"}
    every |= {"automation_condition", "code_version"}
    of_spec = {key: options.pop(key) for key in every & options.keys()}
    metadata = of_spec.pop("metadata", {})
    prefix = options.pop("key_prefix", None) or []
    prefix = [prefix] if isinstance(prefix, str) else list(prefix)
    keys = {
        route.pattern: dg.AssetKey([*prefix, name, escaped(route.pattern)])
        for route in routes.routes
    }
    specs = [
        dg.AssetSpec(
            keys[route.pattern],
            metadata={**metadata, "route": route.pattern, "sink": sink_uri(route.sink)},
            **of_spec,
        )
        for route in routes.routes
    ]
    partitions = options.get("partitions_def")
    other_keys = options.pop("required_resource_keys", None) or ()

    def ingested(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        resource: SourceResource = getattr(context.resources, resource_key)
        with failing_in_dagsters_terms(max_retries):
            windows = ingest.windows(resource, context, partitions)
        for route in routes.routes:
            key = keys[route.pattern]
            found = {
                partition: _route_metadata(routes, route, result)
                for partition, result in windows.items()
            }
            hashes = [result.hash or "" for result in windows.values()]
            version = dg.DataVersion(sha256_hex(hashes)) if any(hashes) else None
            if len(found) > 1:
                for partition, of_partition in found.items():
                    context.add_asset_metadata(of_partition, asset_key=key, partition_key=partition)
                yield dg.MaterializeResult(asset_key=key, data_version=version)
            else:
                (of_window,) = found.values()
                yield dg.MaterializeResult(asset_key=key, metadata=of_window, data_version=version)

    return dg.multi_asset(
        name=name,
        specs=specs,
        required_resource_keys={resource_key, *other_keys},
        **options,
    )(ingested)


def _route_metadata(routes: RouteSet, route: Route, result: WindowResult) -> dict[str, Any]:
    """Return the counts of a route's tables in a window."""
    tables = {
        address: entry
        for address, entry in result.tables.items()
        if routes.route_of(str(entry["values"][0])) is route
    }
    rows = sum(entry["rows"] for entry in tables.values())
    failed = [f"{address}: {e['failed']}" for address, e in tables.items() if e.get("failed")]
    return {
        "dagster/partition_row_count": rows,
        "records": rows,
        "read": sum(entry["read"] for entry in tables.values()),
        "replayed": result.replayed,
        "tables": dg.MetadataValue.json(tables),
        **({"window": result.window_id} if result.window_id else {}),
        **({"failed": "\n".join(failed)} if failed else {}),
    }


def _span(partitions: dg.TimeWindowPartitionsDefinition, key: str) -> tuple[datetime, datetime]:
    window = partitions.time_window_for_partition_key(key)
    return window.start, window.end


def _first_partition(
    partitions: dg.TimeWindowPartitionsDefinition, sampled: datetime | None, late: timedelta
) -> str:
    """Return which partition is the first that samples can tell, and what to do."""
    if sampled is None:
        return (
            "materialize the asset of build_tubemq_ends_asset every minute, on a schedule, and "
            "let start_date of the partitions be later than its first run"
        )
    window = partitions.get_next_partition_window(sampled - late, respect_bounds=False)
    if window is None:
        return "no partition begins after the first sample"
    first = window.start.strftime(partitions.fmt)
    return (
        f"the first partition that can be read is {first}, once it is over, at "
        f"{window.end.isoformat(sep=' ')}: set start_date={first!r}. For records that are older, "
        "use an asset without partitions, or boundaries="
    )


@contextmanager
def failing_in_dagsters_terms(max_retries: int) -> Iterator[None]:
    """Turn errors that may pass into a retry request, and permanent ones into a failure."""
    try:
        yield
    except WindowNotReady as error:
        raise dg.RetryRequested(max_retries, _NOT_READY_WAIT_S) from error
    except errors.TubeMQError as error:
        if is_final(error):
            raise dg.Failure(description=str(error), allow_retries=False) from error
        raise


def _materialized(
    context: dg.AssetExecutionContext, windows: Mapping[str | None, WindowResult], step: int
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Return the result of a run, with the metadata of each partition's window.

    The data version is the same when the same partitions run again: Dagster keeps one version for
    all events of a step.
    """
    hashes = [result.hash or "" for result in windows.values()]
    version = dg.DataVersion(hashes[0] if len(hashes) == 1 else sha256_hex(hashes))
    if len(windows) > 1:
        for key, result in windows.items():
            context.add_asset_metadata(window_metadata(result, step), partition_key=key)
        return dg.MaterializeResult(data_version=version)
    (result,) = windows.values()
    return dg.MaterializeResult(
        metadata=window_metadata(result, step), data_version=version if result.hash else None
    )


def window_metadata(result: WindowResult, step: int) -> dict[str, Any]:
    """Return numbers that Dagster plots, and the whole result; `step` is the length of an entry."""
    gaps = (end - start for lost in result.gaps.values() for start, end in lost)
    return {
        "dagster/partition_row_count": result.total,
        "records": result.total,
        "bytes": result.bytes,
        "corrupt": result.corrupt,
        "gap_entries": sum(gaps) // step,
        "replayed": result.replayed,
        "has_more": result.has_more,
        "windows": dg.MetadataValue.json([result.to_document()]),
        **({"place": result.sink_ref} if result.sink_ref else {}),
        **({"records_per_second": _rate(result)} if _rate(result) else {}),
    }


def _rate(result: WindowResult) -> float:
    """Return index entries per second of the window's own run; 0 if unknown."""
    if result.replayed or result.pace is None or not result.pace.took_ms:
        return 0.0
    return round(result.pace.entries * 1000 / result.pace.took_ms, 1)

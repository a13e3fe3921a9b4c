"""Base of the engines `session` and `connect`: runs a plan through a Spark session.

Tasks write Parquet into the sink's staging place: records as they read them (`direct_write_job`),
rows of a transformed frame (`frame_write_job`), or, on request, through Spark's own writer, which
supports directories only (`local_staging`). Counts come from independent sources (records read
by tasks, rows passed to a writer, rows in the files) and must agree; the source is never
read twice. This engine must not fsync or publish anything, which is the sink's job, nor depend on
the kind of its session (`SparkRuntime`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tubemq_client.errors import ConfigError, from_text, require_extra

try:
    import pyspark  # noqa: F401 - report a missing pyspark here, once for all modules that need it
except ImportError as exc:
    raise require_extra("spark", exc) from exc

from tubemq_provider.engines.direct_write_job import (
    accept_manifest,
    accept_slices,
    collect_manifest,
    direct_write_frame,
    secrets_of,
    staging_directory,
)
from tubemq_provider.engines.frame_write_job import (
    accept_rows,
    count_rows,
    load_reporting_frame,
    remove_empty_files,
    report_directory,
    total_counts,
    write_by_spark,
    write_rows,
)
from tubemq_provider.engines.local_staging import local_staging
from tubemq_provider.engines.routed_write_job import RoutedWrite
from tubemq_provider.engines.sampling import first_bodies
from tubemq_provider.engines.spark_runtime import (
    SparkRuntime,
    T,
    full_read_conf,
    session_zone_conf,
    temporary_conf,
)
from tubemq_provider.engines.transforms import Transform, check_result, transform_of
from tubemq_provider.rows.inference import NO_SCHEMA, infer
from tubemq_provider.rows.spec import NEEDS_PARTITION, DecodeSpec
from tubemq_provider.sinks.routed import RoutedSink
from tubemq_provider.sources.registry import open_source
from tubemq_provider.spark.credentials_file import storage_file
from tubemq_provider.spark.formats import format_of
from tubemq_provider.spark.routed_write_tasks import OPTION as ROUTED_WRITE
from tubemq_provider.spark.routed_write_tasks import RoutedWriteSource, RoutedWriteTask
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.facts import rows_by_partition
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Engine, IngestCounts
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tubemq_provider.spark.task_metrics import ReportDirectory
    from tubemq_provider.windows.following import Following
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import IngestWatch, Sink, Staging

__all__ = ["EngineShape", "SparkEngine"]

_CANCEL_AGAIN_S = 0.5
_RESERVED = (
    *("masters", "tubemq.masters", "nameServers", "window"),
    *("reportDir", "failOnDataLoss", "corruptRecords"),
)
_PARQUET = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
"""Write instants and days unchanged: rebased ones differ before 1582 and 1900 for every reader
other than Spark."""


class EngineShape(TypedDict, total=False):
    """Arguments that Spark engines have in common; see `SessionEngine`."""

    kind: str
    options: Mapping[str, str] | None
    transform: Transform | str | None
    gap_policy: Literal["fail", "skip"]
    corrupt_records: Literal["fail", "drop", "quarantine"]
    direct_write: Literal["auto", "on", "off"]
    target_file_bytes: int | None
    decode: DecodeSpec | None
    following: Following | None


class SparkEngine(Engine):
    """Engine over the session that `runtime` opens; see `SessionEngine` for the arguments."""

    def __init__(
        self,
        settings: Any,
        runtime: SparkRuntime,
        *,
        kind: str = FIRST_SOURCE,
        options: Mapping[str, str] | None = None,
        transform: Transform | str | None = None,
        gap_policy: Literal["fail", "skip"] = "fail",
        corrupt_records: Literal["fail", "drop", "quarantine"] = "fail",
        direct_write: Literal["auto", "on", "off"] = "auto",
        target_file_bytes: int | None = None,
        decode: DecodeSpec | None = None,
        following: Following | None = None,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._kind = kind
        self._options = _checked(options or {})
        self._transform = None if transform is None else transform_of(transform)
        self._decode = decode
        self._following = following
        self._options["failOnDataLoss"] = "true" if gap_policy == "fail" else "false"
        self._options["corruptRecords"] = "fail" if corrupt_records == "fail" else "drop"
        self._direct = direct_write != "off"
        self._target_file_bytes = target_file_bytes
        self._quarantine = corrupt_records == "quarantine"
        self._check_direct_write(direct_write)
        self._sink: RoutedSink | None = None
        self._running: list[_Running] = []
        self._cancelled = threading.Event()

    def _check_direct_write(self, direct_write: str) -> None:
        problems = []
        if direct_write not in ("auto", "on", "off"):
            problems.append(f"direct_write {direct_write!r} is none of auto, on, off")
        if not self._direct and self._target_file_bytes is not None:
            problems.append("target_file_bytes needs the direct write; repartition instead")
        if self._quarantine and not self._direct:
            problems.append("corrupt_records='quarantine' needs the direct write")
        if not self._keeps_partition():
            problems.append(NEEDS_PARTITION)
        if self._following is not None and (not self._direct or self._transform is not None):
            problems.append("a table that follows changes needs the direct write, and no transform")
        if problems:
            raise ConfigError(problems, subject=f"{self.name} engine")

    def _keeps_partition(self) -> bool:
        columns = None if self._decode is None else self._decode.columns
        return columns is None or "partition" in columns

    @property
    def name(self) -> str:
        """Name of the engine."""
        return self._runtime.name

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        """Write the records of `plan` as Parquet into `staging.path`; return their counts.

        Blocks until Spark is done. Raises `CountMismatch` when the counts do not agree, the
        client's error that made a task fail, Spark's own exceptions for everything else, and
        `WindowError` after `cancel`.
        """
        self._stop_if_cancelled(plan)
        if next(plan.reads(), None) is None:
            return IngestCounts(records=dict.fromkeys(plan.ranges, 0), pieces={})
        return self._in_session(
            plan, watch, lambda spark: self._run_write(spark, plan, staging, watch)
        )

    def ingest_tables(
        self,
        plan: WindowPlan,
        task: RoutedWriteTask,
        storage: Mapping[str, str],
        watch: IngestWatch,
    ) -> list[Any]:
        """Write the records of `plan` into the places of `task`, opened with the options in
        `storage` (JSON by path); return what the tasks report. Raises as `ingest`."""
        self._stop_if_cancelled(plan)
        return self._in_session(
            plan, watch, lambda spark: self._collect_tables(spark, plan, task, storage, watch)
        )

    def _in_session(
        self, plan: WindowPlan, watch: IngestWatch, body: Callable[[SparkSession], T]
    ) -> T:
        """Run `body` in the session. Raises the client's error that made a task fail."""
        try:
            spark = self._runtime.open(plan.hash)
        except Exception as error:
            # The signal that cancels may also have killed the JVM while it was starting.
            self._stop_if_cancelled(plan, error)
            raise
        page = self._runtime.ui_url(spark)
        if page is not None:
            watch.on_page(page)
        watch.progress("session started")
        try:
            result = self._runtime.run_isolated(spark, lambda: body(spark), self.cancel)
        except Exception as error:
            self._stop_if_cancelled(plan, error)
            ours = from_text(str(error)) or self._runtime.hint_for(str(error))
            if ours is None:
                raise
            # Keep the class: retry policies use it to find errors that no retry can fix.
            raise ours from error
        watch.progress("records counted")
        return result

    def cancel(self) -> None:
        """Make a running `ingest` fail soon, and any later one at once. Returns within a second.

        Safe from any thread and from signal handlers.
        """
        self._cancelled.set()
        # On a separate thread: the caller may have interrupted a call into the JVM.
        stopper = threading.Thread(target=self._cancel_jobs, name="tubemq-cancel", daemon=True)
        stopper.start()
        stopper.join(1)

    def _cancel_jobs(self) -> None:
        """Cancel the window's jobs until its ingest has ended: Spark does not remember the
        cancellation of a group without jobs, so once is not enough while a frame is being
        planned."""
        while self._running:
            running = self._running[-1]
            self._runtime.interrupt(running.spark, running.group)
            if running.ended.wait(_CANCEL_AGAIN_S):
                return

    def stop(self) -> None:
        """Stop what this engine has started; a session that was active before keeps running."""
        self._runtime.stop()

    def into(self, sink: Sink) -> SparkEngine:
        """See `Engine.into`."""
        assert isinstance(sink, RoutedSink)
        if not self._direct:
            raise ConfigError("routes need the direct write", subject=f"{self.name} engine")
        other = copy(self)
        other._sink = sink  # noqa: SLF001
        return other

    def _run_write(
        self, spark: SparkSession, plan: WindowPlan, staging: Staging, watch: IngestWatch
    ) -> IngestCounts:
        if self._sink is not None:
            return self._write_tables(self._sink, spark, plan, staging, watch)
        if not self._direct:
            with local_staging(staging) as local:
                return self._write_by_spark(spark, plan, local, watch)
        write = self._write_records if self._transform is None else self._write_rows
        return write(spark, plan, staging, watch)

    def _write_records(
        self, spark: SparkSession, plan: WindowPlan, staging: Staging, watch: IngestWatch
    ) -> IngestCounts:
        """Run the one Spark job of the window, whose tasks write the files."""
        with (
            self._reading(plan) as options,
            storage_file(staging.options) as opens,
            self._job(spark, plan, watch),
        ):
            frame = direct_write_frame(
                spark,
                options,
                staging,
                storage_file=opens,
                target_bytes=self._target_file_bytes,
                quarantine=self._quarantine,
                kind=self._kind,
                runtime=self._runtime,
                following=self._following,
            )
            watch.progress("frame loaded")
            self._stop_if_cancelled(plan)
            manifest = collect_manifest(frame)
            watch.progress("files written")
        if self._following is None:
            return accept_manifest(plan, staging, manifest)
        return accept_slices(
            plan, staging, manifest, self._following, target_bytes=self._target_file_bytes
        )

    def _write_tables(
        self,
        sink: RoutedSink,
        spark: SparkSession,
        plan: WindowPlan,
        staging: Staging,
        watch: IngestWatch,
    ) -> IngestCounts:
        """Begin the tables, let tasks write their files, and accept these."""
        write = RoutedWrite(
            sink,
            plan,
            staging,
            kind=self._kind,
            quarantine=self._quarantine,
            target_bytes=self._target_file_bytes,
        )

        def collect(task: RoutedWriteTask) -> list[Any]:
            watch.progress("tables begun")
            return self._collect_tables(spark, plan, task, write.storage, watch)

        return write.run(collect)

    def _collect_tables(
        self,
        spark: SparkSession,
        plan: WindowPlan,
        task: RoutedWriteTask,
        storage: Mapping[str, str],
        watch: IngestWatch,
    ) -> list[Any]:
        """Run the Spark job of the window, whose tasks write the files of all tables."""
        with (
            self._reading(plan) as options,
            storage_file(storage) as opens,
            self._job(spark, plan, watch),
        ):
            self._runtime.register(spark, RoutedWriteSource, secrets_of(options, opens))
            order = replace(task, storage_file=opens, tasks=self._runtime.slots(spark)).to_json()
            source = spark.read.format(RoutedWriteSource.name())
            frame = source.options(**{**options, ROUTED_WRITE: order}).load()
            watch.progress("frame loaded")
            self._stop_if_cancelled(plan)
            documents = [json.loads(row["document"]) for row in frame.collect()]
            watch.progress("files written")
        return documents

    @contextmanager
    def _reading(self, plan: WindowPlan) -> Iterator[dict[str, str]]:
        """Provide the options of the read; secrets are in a file while the body runs."""
        with format_of(self._kind).reading(self._settings, plan) as planned:
            yield {**self._options, **planned, **self._decoding(plan)}

    def _decoding(self, plan: WindowPlan) -> dict[str, str]:
        """Return the `decode` option of the tasks, with its schema, inferred here if necessary."""
        if self._decode is None:
            return {}
        return {"decode": infer(self._decode, lambda: self._sample(plan)).to_json()}

    def _sample(self, plan: WindowPlan) -> pa.BinaryArray:
        source = open_source(
            self._kind,
            self._settings,
            identity=plan.cluster,
            topic=plan.topic,
            group=plan.group,
            filters=plan.filters,
        )
        # Policies are enforced when the window is read.
        lenient = Policies.of(corrupt_records="drop", gap_policy="skip")
        with source, source.open_reader(plan, lenient) as reader:
            return first_bodies(reader, plan)

    @contextmanager
    def _job(self, spark: SparkSession, plan: WindowPlan, watch: IngestWatch) -> Iterator[None]:
        """Run the body's jobs under the window's id, by which they can be found and cancelled."""
        description = f"{plan.source} window {plan.window_id} of topic {plan.topic}"
        with (
            self._runtime.job(spark, plan.window_id, description, partial(watch.on_tasks, plan)),
            self._cancellable(spark, plan),
        ):
            yield

    def _write_rows(
        self, spark: SparkSession, plan: WindowPlan, staging: Staging, watch: IngestWatch
    ) -> IngestCounts:
        """Run the one Spark job of the window, whose final tasks write the transformed rows."""
        quarantine_place = staging_directory(staging) if self._quarantine else None
        with report_directory(staging) as place, storage_file(staging.options) as opens:
            with self._frame(spark, plan, place, opens, watch, quarantine_place) as frame:
                files, handed = write_rows(
                    frame, staging, place, opens, self._target_file_bytes, self._runtime
                )
            watch.progress("files written")
            rows = rows_by_partition(files)
            counts = total_counts(plan, place.collect(), handed, rows, files)
        accept_rows(staging, counts)
        return counts

    def _write_by_spark(
        self, spark: SparkSession, plan: WindowPlan, staging: Staging, watch: IngestWatch
    ) -> IngestCounts:
        """Write the frame with Spark's own writer into a directory."""
        with report_directory(staging) as place:
            with (
                temporary_conf(spark, _PARQUET),
                self._frame(spark, plan, place, None, watch) as frame,
            ):
                handed = write_by_spark(frame, staging.path)
            watch.progress("files written")
            rows = None if self._transform is None else count_rows(staging.path)
            counts = total_counts(plan, place.collect(), handed, rows, None)
        if self._decode is not None and not handed:
            remove_empty_files(staging.path)
        return counts

    @contextmanager
    def _frame(
        self,
        spark: SparkSession,
        plan: WindowPlan,
        place: ReportDirectory,
        storage_file: str | None,
        watch: IngestWatch,
        aside: str | None = None,
    ) -> Iterator[DataFrame]:
        """Provide the frame to write; jobs of the body belong to the window."""
        with (
            self._reading(plan) as options,
            self._job(spark, plan, watch),
            temporary_conf(spark, {**full_read_conf(spark), **session_zone_conf(spark)}),
        ):
            frame = load_reporting_frame(
                spark, self._kind, options, place, storage_file, aside=aside, runtime=self._runtime
            )
            if not _lacks_columns(options):
                frame = self._transformed(frame)
            watch.progress("frame loaded")
            self._stop_if_cancelled(plan)
            yield frame

    @contextmanager
    def _cancellable(self, spark: SparkSession, plan: WindowPlan) -> Iterator[None]:
        running = _Running(spark, plan.window_id)
        self._running.append(running)
        try:
            yield
        finally:
            self._running.remove(running)
            running.ended.set()

    def _transformed(self, frame: DataFrame) -> DataFrame:
        return frame if self._transform is None else check_result(self._transform(frame))

    def _stop_if_cancelled(self, plan: WindowPlan, cause: Exception | None = None) -> None:
        if self._cancelled.is_set():
            raise WindowError(f"ingest of window {plan.window_id} was cancelled") from cause


@dataclass(frozen=True, slots=True)
class _Running:
    """Running ingest, for `cancel`: its session, the group of its jobs, and its end."""

    spark: SparkSession
    group: str
    ended: threading.Event = field(default_factory=threading.Event)


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    reserved = {name.lower() for name in _RESERVED}
    problems = [
        f"{name}: is set by the engine (see its parameters)"
        for name in options
        if name.lower() in reserved
    ]
    if problems:
        raise ConfigError(problems, subject="options of the engine")
    return dict(options)


def _lacks_columns(options: Mapping[str, str]) -> bool:
    """Return True if the columns are not inferred yet, for lack of records: a transform would refer
    to columns that do not exist."""
    decode = options.get("decode")
    return decode is not None and DecodeSpec.parse(decode).schema == NO_SCHEMA

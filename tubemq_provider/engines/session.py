"""The engine `session`: runs a plan through Spark in the process of the task itself.

Tasks write Parquet into the staging place that the sink gave, themselves (`direct_write`) or
through a frame of the source's format and Spark's writer, which a transform needs, and which only
knows directories (`relay`). Counts come from places that know nothing of each other (what tasks
read, what was handed to a writer, what the files hold) and must agree; the source is never read
twice. This engine must not fsync or publish anything: that is the sink's.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tubemq_client.errors import ConfigError, from_text
from tubemq_provider.engines.relay import local_twin
from tubemq_provider.engines.sampling import first_bodies
from tubemq_provider.engines.spark_runtime import (
    following,
    job_group,
    open_session,
    temporary_conf,
)
from tubemq_provider.engines.transforms import Transform, transform_of
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.parquet import data_names
from tubemq_provider.rows.inference import NOTHING, settle
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.registry import open_source
from tubemq_provider.spark.credentials_file import storage_file
from tubemq_provider.spark.formats import format_of
from tubemq_provider.spark.mends import mend_of
from tubemq_provider.spark.task_metrics import SplitReport, last_records, load_reports
from tubemq_provider.windows.errors import CountMismatch, WindowError
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestCounts
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import Progress, Staging

__all__ = ["SessionEngine", "Transform"]

TaskObserver = Callable[[int, int], None]
"""Told while the window's job runs: tasks that are done, tasks in all."""

_REPORTS = "_reads"
_CANCEL_AGAIN_S = 0.5
_OURS = (
    *("masters", "tubemq.masters", "nameServers", "window"),
    *("reportDir", "failOnDataLoss", "corruptRecords"),
)
_PARQUET = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


class SessionEngine:
    """Spark in this process: an active session if there is one, else a new local one.

    `settings` are those of a source of `kind`, as `Source.settings` gives them. `master` and `conf`
    shape a new session. `options` are further options of the kind's format, such as
    ``minPartitions``. `transform` gets the frame of the window and returns the one to
    write, which must keep the column `partition`. `gap_policy`, `corrupt_records`: as everywhere;
    ``quarantine`` needs the direct write. `decode` makes typed rows of bodies, in the tasks that
    read them; records that do not decode follow `corrupt_records`.

    `direct_write`: tasks write files themselves, which costs a fraction of the way through the JVM.
    ``auto`` means wherever there is no `transform`. `target_file_bytes` (direct write only) is the
    size of files: splits share as many tasks as run at once, and a file takes several of them.

    Delivery: each call of `ingest` reads every record of the plan once; nothing is visible before
    the sink publishes. A staging directory must be the same one for every executor; a prefix of an
    object store needs obstore on each, and is opened with the sink's options, or by the identity
    that executors have. An engine that was cancelled stays so.
    """

    def __init__(
        self,
        settings: Any,
        *,
        kind: str = FIRST_SOURCE,
        master: str = "local[2]",
        conf: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        transform: Transform | str | None = None,
        gap_policy: Literal["fail", "skip"] = "fail",
        corrupt_records: Literal["fail", "drop", "quarantine"] = "fail",
        direct_write: Literal["auto", "on", "off"] = "auto",
        target_file_bytes: int | None = None,
        decode: DecodeSpec | None = None,
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._master = master
        self._conf = dict(conf or {})
        self._options = _checked(options or {})
        self._transform = None if transform is None else transform_of(transform)
        self._decode = decode
        self._options["failOnDataLoss"] = "true" if gap_policy == "fail" else "false"
        self._options["corruptRecords"] = "fail" if corrupt_records == "fail" else "drop"
        self._direct = direct_write == "on" or (direct_write == "auto" and transform is None)
        self._target_file_bytes = target_file_bytes
        self._quarantine = corrupt_records == "quarantine"
        self._check_direct_write(direct_write)
        self._running: _Running | None = None
        self._ui_url: str | None = None
        self._cancelled = threading.Event()
        self._own: SparkSession | None = None
        self.on_tasks: TaskObserver | None = None

    def _check_direct_write(self, direct_write: str) -> None:
        problems = []
        if direct_write not in ("auto", "on", "off"):
            problems.append(f"direct_write {direct_write!r} is none of auto, on, off")
        if self._direct and self._transform is not None:
            problems.append("direct_write='on' would not run the transform; use 'auto' or 'off'")
        if not self._direct and self._target_file_bytes is not None:
            problems.append("target_file_bytes needs the direct write; repartition instead")
        if not self._direct and self._quarantine:
            problems.append("corrupt_records='quarantine' needs the direct write")
        if not self._keeps_partition():
            problems.append("decode: columns must keep 'partition', by which windows are verified")
        if problems:
            raise ConfigError(problems, subject="session engine")

    def _keeps_partition(self) -> bool:
        columns = None if self._decode is None else self._decode.columns
        return columns is None or "partition" in columns

    @property
    def name(self) -> str:
        """``session``."""
        return "session"

    @property
    def ui_url(self) -> str | None:
        """Spark's own page of the session, once it was started; None where it has none."""
        return self._ui_url

    def ingest(self, plan: WindowPlan, staging: Staging, progress: Progress) -> IngestCounts:
        """Write the records of `plan` as Parquet into `staging.path`; returns their counts.

        Blocks until Spark is done. Raises `CountMismatch` when the counts do not agree, the
        client's error that made a task fail, Spark's own exceptions for everything else, and
        `WindowError` after `cancel`.
        """
        self._stop_if_cancelled(plan)
        if next(plan.reads(), None) is None:
            return IngestCounts(records=dict.fromkeys(plan.ranges, 0), pieces={})
        try:
            spark = self._session()
        except Exception as error:
            # The signal that cancels may also have ended the JVM that was starting.
            self._stop_if_cancelled(plan, error)
            raise
        self._ui_url = spark.sparkContext.uiWebUrl
        progress("session started")
        try:
            if self._direct:
                counts = self._land(spark, plan, staging, progress)
            else:
                with local_twin(staging) as local:
                    counts = self._write(spark, plan, local, progress)
        except Exception as error:
            self._stop_if_cancelled(plan, error)
            ours = from_text(str(error)) or mend_of(str(error), os.environ)
            if ours is None:
                raise
            # With its class, which tells retry policies what no retry cures.
            raise ours from error
        progress("records counted")
        return counts

    def cancel(self) -> None:
        """Make a running `ingest` fail soon, and any later one at once. Returns within a second.

        Safe from any thread and from signal handlers.
        """
        self._cancelled.set()
        # On a thread of its own: the caller may have interrupted a call into the JVM.
        stopper = threading.Thread(target=self._cancel_jobs, name="tubemq-cancel", daemon=True)
        stopper.start()
        stopper.join(1)

    def _cancel_jobs(self) -> None:
        """Cancel the window's jobs until its ingest has ended: Spark forgets a group that has no
        job yet, so once is not enough while a frame is being planned."""
        while (running := self._running) is not None:
            running.spark.sparkContext.cancelJobGroup(running.group)
            if running.ended.wait(_CANCEL_AGAIN_S):
                return

    def stop(self) -> None:
        """Stop the session if this engine started it; one that was found active goes on."""
        spark, self._own = self._own, None
        if spark is not None:
            spark.stop()

    def _session(self) -> SparkSession:
        spark, own = open_session(self._master, self._conf)
        if own:
            self._own = spark
        return spark

    def _land(
        self, spark: SparkSession, plan: WindowPlan, staging: Staging, progress: Progress
    ) -> IngestCounts:
        """Run the one Spark job of the window, whose tasks write the files."""
        from tubemq_provider.engines.direct_write import accept, landing_frame, manifest_of

        with (
            self._reading(plan) as options,
            storage_file(staging.options) as opens,
            self._job(spark, plan),
        ):
            frame = landing_frame(
                spark,
                options,
                staging,
                storage_file=opens,
                target_bytes=self._target_file_bytes,
                quarantine=self._quarantine,
                kind=self._kind,
            )
            progress("frame loaded")
            self._stop_if_cancelled(plan)
            manifest = manifest_of(frame)
            progress("files written")
        return accept(plan, staging, manifest)

    @contextmanager
    def _reading(self, plan: WindowPlan) -> Iterator[dict[str, str]]:
        """The options of the read; what they must not carry is in a file while the body runs."""
        with format_of(self._kind).reading(self._settings, plan) as planned:
            yield {**self._options, **planned, **self._decoding(plan)}

    def _decoding(self, plan: WindowPlan) -> dict[str, str]:
        """The option that tasks decode by, with its schema: inferred here, if it is."""
        if self._decode is None:
            return {}
        return {"decode": settle(self._decode, lambda: self._sample(plan)).to_json()}

    def _sample(self, plan: WindowPlan) -> pa.BinaryArray:
        source = open_source(
            self._kind,
            self._settings,
            identity=plan.cluster,
            topic=plan.topic,
            group=plan.group,
            filters=plan.filters,
        )
        # The policies hold where the window is read.
        lenient = Policies.of(corrupt_records="drop", gap_policy="skip")
        with source, source.open_reader(plan, lenient) as reader:
            return first_bodies(reader, plan)

    @contextmanager
    def _job(self, spark: SparkSession, plan: WindowPlan) -> Iterator[None]:
        """Jobs of the body can be found, and cancelled, by the window's id."""
        description = f"{plan.source} window {plan.window_id} of topic {plan.topic}"
        with (
            job_group(spark, plan.window_id, description),
            self._cancellable(spark, plan),
            following(spark, plan.window_id, self.on_tasks),
        ):
            yield

    def _write(
        self, spark: SparkSession, plan: WindowPlan, staging: Staging, progress: Progress
    ) -> IngestCounts:
        """Write the window by Spark's writer, and count what it was handed."""
        reports = Path(staging.path) / _REPORTS
        try:
            total = self._write_frame(spark, plan, staging, progress)
            counts = self._counts(plan, staging, list(load_reports(reports)), total)
            if self._decode is not None and not total:
                _leave_out_files(staging.path)
            return counts
        finally:
            shutil.rmtree(reports, ignore_errors=True)

    def _write_frame(
        self, spark: SparkSession, plan: WindowPlan, staging: Staging, progress: Progress
    ) -> int:
        """Run the one Spark job of the window; the rows that were handed to its writer."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        reports = {"reportDir": str(Path(staging.path) / _REPORTS)}
        written = Observation(f"tubemq-{staging.attempt}")
        with (
            self._reading(plan) as options,
            temporary_conf(spark, _PARQUET),
            self._job(spark, plan),
        ):
            frame = _load(spark, self._kind, {**options, **reports})
            if not _is_unknown(options):
                frame = self._transformed(frame)
            progress("frame loaded")
            self._stop_if_cancelled(plan)
            frame = frame.observe(written, sf.count(sf.lit(1)).alias("rows"))
            frame.write.mode("append").parquet(_on_local_files(staging.path))
            progress("files written")
        return int(written.get["rows"])

    @contextmanager
    def _cancellable(self, spark: SparkSession, plan: WindowPlan) -> Iterator[None]:
        running = self._running = _Running(spark, plan.window_id)
        try:
            yield
        finally:
            self._running = None
            running.ended.set()

    def _transformed(self, frame: DataFrame) -> DataFrame:
        if self._transform is None:
            return frame
        frame = self._transform(frame)
        if "partition" not in frame.columns:
            raise ConfigError(
                f"its result has the columns {', '.join(frame.columns)}; keep "
                "'partition', by which windows are counted",
                subject="transform",
            )
        return frame

    def _stop_if_cancelled(self, plan: WindowPlan, cause: Exception | None = None) -> None:
        if self._cancelled.is_set():
            raise WindowError(f"ingest of window {plan.window_id} was cancelled") from cause

    def _counts(
        self, plan: WindowPlan, staging: Staging, reports: list[SplitReport], total: int
    ) -> IngestCounts:
        """By partition: what was read or, behind a transform, what the files hold."""
        read: Counter[str] = Counter()
        consumed: Counter[str] = Counter()
        gaps: dict[str, list[list[int]]] = {}
        pieces: dict[str, list[list[int]]] = {}
        for report in reports:
            read[report.partition] += report.records if report.rows is None else report.rows
            consumed[report.partition] += report.records
            gaps.setdefault(report.partition, []).extend(report.gaps)
            pieces.setdefault(report.partition, []).append([report.start, report.end])
        records = read if self._transform is None else _rows_by_partition(staging.path)
        if sum(records.values()) != total or not records.keys() <= plan.ranges.keys():
            raise CountMismatch(
                f"window {plan.window_id}: Spark wrote {total} rows, but the partitions of the "
                f"plan account for {dict(records)}; a transform must keep 'partition' as it is"
            )
        return IngestCounts(
            records={key: records[key] for key in plan.ranges},
            bytes=sum(report.bytes for report in reports),
            gaps={key: sorted(lost) for key, lost in gaps.items() if lost},
            corrupt=sum(report.corrupt for report in reports),
            pieces={key: sorted(found) for key, found in pieces.items()},
            last=last_records((item.partition, item.start, item.last) for item in reports),
            read={key: consumed[key] for key in plan.ranges},
        )


@dataclass(frozen=True, slots=True)
class _Running:
    """The ingest that `cancel` is about: its session, the group of its jobs, and its end."""

    spark: SparkSession
    group: str
    ended: threading.Event = field(default_factory=threading.Event)


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    reserved = {name.lower() for name in _OURS}
    problems = [
        f"{name}: is set by the engine (see its parameters)"
        for name in options
        if name.lower() in reserved
    ]
    if problems:
        raise ConfigError(problems, subject="options of the session engine")
    return dict(options)


def _load(spark: SparkSession, kind: str, options: Mapping[str, str]) -> DataFrame:
    """The frame; registers the format where Spark has not found it by itself."""
    from pyspark.errors import AnalysisException

    try:
        return spark.read.format(kind).options(**options).load()
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND":
            raise
    format_of(kind).register(spark)
    return spark.read.format(kind).options(**options).load()


def _on_local_files(path: str) -> str:
    """The path for Hadoop, which takes one without a scheme to its default file system, as HDFS.

    Not `Path.as_uri`: Hadoop would take an escaped character for the three that stand there.
    """
    return f"file://{Path(path).absolute()}"


def _is_unknown(options: Mapping[str, str]) -> bool:
    """Whether the columns of rows are not known yet, because there is no record to tell them: a
    transform would ask for columns that are not there."""
    decode = options.get("decode")
    return decode is not None and DecodeSpec.parse(decode).schema == NOTHING


def _leave_out_files(path: str) -> None:
    """Remove the file that Spark writes without rows: its columns may be no more than a stand-in
    for those of records to come, and a table would keep them."""
    for name in data_names(LocalLocation(Path(path)).stored()):
        (Path(path) / name).unlink()


def _rows_by_partition(path: str) -> Counter[str]:
    """Rows per value of `partition` in staged Parquet files. Reads that one column only."""
    import pyarrow.dataset

    rows: Counter[str] = Counter()
    files = pyarrow.dataset.dataset(path, format="parquet")
    for batch in files.to_batches(columns=["partition"]):
        for item in batch.column("partition").value_counts().to_pylist():
            rows[item["values"]] += item["counts"]
    return rows

"""Driver's half of writing a frame: load it with task reports, write it, add the counts up.

The rows of a transform are written to the sink's storage by the tasks that produced them. The
alternative is Spark's own writer, which supports directories only. In both, the reading tasks
report what was read and the writing tasks what was written: two independent counts that must agree.
This module must not judge a plan, or publish anything.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_provider.engines.direct_write_job import move_into_place, secrets_of, staging_directory
from tubemq_provider.files.footers import data_names, fact_from_json
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.objects import is_remote
from tubemq_provider.spark.frame_write_tasks import (
    COMMITS,
    FrameWriteTask,
    ReportedRead,
    ReportedReadSource,
    RowsWriteSource,
)
from tubemq_provider.spark.task_metrics import ReportDirectory, SplitReport, last_records
from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.protocols import IngestCounts
from tubemq_provider.windows.verify import check_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

    from tubemq_provider.engines.spark_runtime import SparkRuntime
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import Staging

log = logging.getLogger(__name__)

__all__ = [
    "accept_rows",
    "count_rows",
    "load_reporting_frame",
    "remove_empty_files",
    "report_directory",
    "total_counts",
    "write_by_spark",
    "write_rows",
]

_REPORTS = "_reads"
_OBSERVATION_S: Final = 120.0
_PARTIAL_READ_HINT = (
    "A query that ends before it has read all records does this (LIMIT, tail, sample of a few): "
    "a window is read whole, so say which rows it keeps by a condition"
)


@contextmanager
def report_directory(staging: Staging) -> Iterator[ReportDirectory]:
    """Provide the place where tasks of this try leave their reports, and clear it afterwards."""
    place = ReportDirectory(f"{staging.path}/{_REPORTS}", staging.options)
    if not is_remote(staging.path):
        Path(place.directory).mkdir(exist_ok=True)
    try:
        yield place
    finally:
        try:
            place.clear()
        except Exception as exc:  # noqa: BLE001 - leftovers are tidied with the try
            log.info("reports of a read stay in %s: %s", place.directory, type(exc).__name__)


def load_reporting_frame(
    spark: SparkSession,
    kind: str,
    options: Mapping[str, str],
    place: ReportDirectory,
    storage_file: str | None,
    *,
    aside: str | None,
    runtime: SparkRuntime,
) -> DataFrame:
    """Load the frame of a window. Its reading tasks report to `place`, and write corrupt records to
    the quarantine `aside` if that is given."""
    runtime.register(spark, ReportedReadSource, secrets_of(options, storage_file))
    report_options = ReportedRead(kind, place.directory, storage_file, aside).option()
    return spark.read.format(ReportedReadSource.name()).options(**options, **report_options).load()


def write_rows(
    frame: DataFrame,
    staging: Staging,
    reports: ReportDirectory,
    storage_file: str | None,
    target_bytes: int | None,
    runtime: SparkRuntime,
) -> tuple[list[FileFact], int]:
    """Run the one Spark job of the window, whose tasks write the files; return the facts of the
    files and the number of rows that Spark passed to the writer."""
    by = None if staging.partition_by is None else staging.partition_by.to_json()
    ids = None if staging.field_ids is None else staging.field_ids.to_json()
    directory = staging_directory(staging)
    order = FrameWriteTask(directory, reports.directory, storage_file, target_bytes, by, ids)
    runtime.register(frame.sparkSession, RowsWriteSource, secrets_of({}, storage_file))
    counted, handed = _with_row_count(frame, staging.attempt)
    counted.write.format(RowsWriteSource.name()).mode("append").options(**order.option()).save()
    files = [
        replace(fact_from_json(fact), partitions=partitions)
        for fact, partitions in reports.get(COMMITS)
    ]
    return files, _observed_rows(handed)


def accept_rows(staging: Staging, counts: IngestCounts) -> None:
    """Move the files that `counts` name, in a directory, to where the sink looks."""
    move_into_place(staging, [*(fact.path for fact in counts.files or ()), *counts.quarantined])


def write_by_spark(frame: DataFrame, directory: str) -> int:
    """Write the frame with Spark's own writer into a directory that all executors share; return the
    number of rows that the writer received."""
    counted, handed = _with_row_count(frame, Path(directory).name)
    counted.write.mode("append").parquet(_on_local_files(directory))
    return _observed_rows(handed)


def _with_row_count(frame: DataFrame, name: str) -> tuple[DataFrame, Observation]:
    """Return the frame and an observation that counts its rows while it is written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    handed = Observation(f"tubemq-{name}")
    return frame.observe(handed, sf.count(sf.lit(1)).alias("rows")), handed


def _observed_rows(observed: Observation) -> int:
    """Return the rows that Spark has counted. Spark reports them in a listener event, and an
    overloaded driver drops events: wait for a limited time only."""
    answer: Future[int] = Future()

    def ask() -> None:
        try:
            answer.set_result(int(observed.get["rows"]))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=ask, name="tubemq-rows", daemon=True).start()
    try:
        return answer.result(_OBSERVATION_S)
    except TimeoutError:
        raise CountMismatch(
            f"Spark has not reported within {_OBSERVATION_S:.0f} s how many rows it has written; "
            f"nothing is published, a retry writes the window again"
        ) from None


def _on_local_files(path: str) -> str:
    """Return the path as a URL for Hadoop, which resolves paths without a scheme against its
    default file system, for example HDFS.

    Not `Path.as_uri`: Hadoop does not decode percent escapes.
    """
    return f"file://{Path(path).absolute()}"


def total_counts(
    plan: WindowPlan,
    reports: Sequence[SplitReport],
    handed: int,
    rows: Mapping[str, int] | None,
    files: Sequence[FileFact] | None,
) -> IngestCounts:
    """Return counts by partition: the records read or, behind a transform, the `rows` written.
    Raises `CountMismatch` if they differ from the rows that Spark passed to the writer (`handed`),
    or if the transform has not read the whole window."""
    read: Counter[str] = Counter()
    consumed: Counter[str] = Counter()
    gaps: dict[str, list[list[int]]] = {}
    pieces: dict[str, list[list[int]]] = {}
    for report in reports:
        read[report.partition] += report.records if report.rows is None else report.rows
        consumed[report.partition] += report.records
        gaps.setdefault(report.partition, []).extend(report.gaps)
        pieces.setdefault(report.partition, []).append([report.start, report.end])
    records = read if rows is None else Counter(rows)
    if sum(records.values()) != handed or not records.keys() <= plan.ranges.keys():
        raise CountMismatch(
            f"window {plan.window_id}: Spark wrote {handed} rows, but the partitions of the "
            f"plan account for {dict(records)}; a transform must keep 'partition' as it is"
        )
    counts = IngestCounts(
        records={key: records[key] for key in plan.ranges},
        bytes=sum(report.bytes for report in reports),
        gaps={key: sorted(lost) for key, lost in gaps.items() if lost},
        corrupt=sum(report.corrupt for report in reports),
        pieces={key: sorted(intervals) for key, intervals in pieces.items()},
        last=last_records((item.partition, item.start, item.last) for item in reports),
        files=None if files is None else tuple(files),
        quarantined=tuple(sorted(report.aside for report in reports if report.aside)),
        read={key: consumed[key] for key in plan.ranges},
    )
    if rows is not None:
        _check_whole(plan, counts)
    return counts


def _check_whole(plan: WindowPlan, counts: IngestCounts) -> None:
    """Check the counts against the plan, as the run does later, and add the advice for a transform
    that reads only part of a window."""
    try:
        check_counts(plan, counts)
    except CountMismatch as error:
        raise CountMismatch(f"{error}\n{_PARTIAL_READ_HINT}") from None


def count_rows(directory: str) -> Counter[str]:
    """Return rows per value of `partition` in staged Parquet files. Reads only that column."""
    import pyarrow.dataset

    rows: Counter[str] = Counter()
    files = pyarrow.dataset.dataset(directory, format="parquet")
    for batch in files.to_batches(columns=["partition"]):
        for item in batch.column("partition").value_counts().to_pylist():
            rows[item["values"]] += item["counts"]
    return rows


def remove_empty_files(directory: str) -> None:
    """Remove the file that Spark writes for a frame without rows: its columns may be placeholders
    for columns that are not inferred yet, and a table would keep them."""
    for name in data_names(LocalLocation(Path(directory)).stored()):
        (Path(directory) / name).unlink()

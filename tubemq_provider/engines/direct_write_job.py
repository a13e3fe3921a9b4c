"""Driver's half of the direct write: run the job, collect the task commits, accept their files.

In an object store tasks write under the prefix of the staging place itself, and files that no task
commit names are left to `Sink.tidy`. In a directory they write next to the visible files: committed
files are renamed to where the sink looks, and files of other task attempts are removed with the
directory, so a duplicate of a task that still runs afterwards has nowhere to write to. Only the
slices of a table that follows changes pass through the driver, at most `MOST_KEYS` keys of them.
This module must not judge counts, or publish anything.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_provider.files.footers import fact_from_json
from tubemq_provider.files.locations import Location, location_at, location_of
from tubemq_provider.files.objects import is_remote
from tubemq_provider.files.partitioned import staged_writer
from tubemq_provider.files.writer import with_file_parts
from tubemq_provider.rows.changes.reduction import Reducer
from tubemq_provider.spark.direct_write_tasks import (
    OPTION,
    SLICES,
    DirectWriteSource,
    TaskCommit,
    WriteTask,
)
from tubemq_provider.spark.task_metrics import NOT_SHARED, last_records
from tubemq_provider.windows.protocols import IngestCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tubemq_provider.engines.spark_runtime import SparkRuntime
    from tubemq_provider.windows.facts import FileFact
    from tubemq_provider.windows.following import Following
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import Staging

__all__ = [
    "accept_manifest",
    "accept_slices",
    "collect_manifest",
    "direct_write_frame",
    "make_directory",
    "move_into_place",
    "secrets_of",
    "staging_directory",
    "write_reduced",
]

_DIRECTORY = "_direct_write"
_ACCEPTED = "_taken"


def direct_write_frame(
    spark: SparkSession,
    options: Mapping[str, str],
    staging: Staging,
    *,
    storage_file: str | None,
    target_bytes: int | None,
    quarantine: bool,
    kind: str,
    runtime: SparkRuntime,
    following: Following | None = None,
) -> DataFrame:
    """Return the frame whose collection writes a window of a source of `kind`. With `target_bytes`
    the splits share as many tasks as can run at once: small partitions then end up in one file.
    With `following` it writes slices, see `accept_slices`."""
    tasks = runtime.slots(spark) if target_bytes else None
    by = None if staging.partition_by is None else staging.partition_by.to_json()
    ids = None if staging.field_ids is None else staging.field_ids.to_json()
    directory, slices = staging_directory(staging), None
    if following is not None:
        slices, target_bytes = following.to_json(), None  # a file is of one split only
        make_directory(f"{directory}/{SLICES}")
    order = WriteTask(
        directory, storage_file, target_bytes, tasks, quarantine, kind, by, ids, slices
    )
    runtime.register(spark, DirectWriteSource, secrets_of(options, storage_file))
    write_options = {**options, OPTION: order.to_json()}
    return spark.read.format(DirectWriteSource.name()).options(**write_options).load()


def secrets_of(options: Mapping[str, str], storage_file: str | None) -> list[str]:
    """Return the files on this machine that hold what options must not carry."""
    return [path for path in (options.get("configFile"), storage_file) if path is not None]


def staging_directory(staging: Staging) -> str:
    """Return the place that tasks write to: the staging place itself or, in a directory, a new
    subdirectory of it."""
    if is_remote(staging.path):
        return staging.path
    place = Path(staging.path) / _DIRECTORY
    place.mkdir(exist_ok=True)
    return str(place)


def make_directory(place: str) -> None:
    """Make a place below one that tasks write to, if that is a directory."""
    if not is_remote(place):
        Path(place).mkdir(exist_ok=True)


def collect_manifest(frame: DataFrame) -> list[TaskCommit]:
    """Run the one job of the window; return the task commits."""
    return [TaskCommit(**row.asDict()) for row in frame.collect()]


def accept_manifest(
    plan: WindowPlan, staging: Staging, manifest: Sequence[TaskCommit]
) -> IngestCounts:
    """Add up the task commits; in a directory, move their files to where the sink looks.

    `check_counts` compares them with the plan before anything becomes visible. Raises `ConfigError`
    if executors wrote where the driver does not see it.
    """
    counts = _counts(plan, manifest)
    move_into_place(
        staging, [*sorted({row.path for row in manifest if row.path}), *counts.quarantined]
    )
    return counts


def accept_slices(
    plan: WindowPlan,
    staging: Staging,
    manifest: Sequence[TaskCommit],
    following: Following,
    *,
    target_bytes: int | None,
) -> IngestCounts:
    """Add up the task commits, and write the last change of each key of all slices."""
    counts = _counts(plan, manifest)
    slices = location_at(f"{staging_directory(staging)}/{SLICES}", staging.options)
    paths = [
        row.path
        for row in sorted(manifest, key=lambda each: (each.partition, each.start))
        if row.path
    ]
    files, rows = write_reduced(
        slices, paths, following, staging, plan.ranges, target_bytes=target_bytes
    )
    slices.clear()
    move_into_place(staging, counts.quarantined)
    return replace(counts, records=rows, files=files)


def write_reduced(
    slices: Location,
    paths: Iterable[str],
    following: Following,
    staging: Staging | None,
    keys: Iterable[str],
    *,
    target_bytes: int | None,
) -> tuple[tuple[FileFact, ...], dict[str, int]]:
    """Write the last change of each key from slices, whose `paths` are in the order of reading
    within each partition; return the files, and the rows of each of the partitions `keys`. Without
    a staging place rows are only counted.

    Raises `ChangeOrderUnclear` for more keys than one process may have in memory.
    """
    import pyarrow.parquet as pq

    reducer: Reducer | None = None
    for path in dict.fromkeys(paths):
        with slices.open(path) as source:
            file = pq.ParquetFile(source)
            if reducer is None:
                reducer = Reducer(file.schema_arrow, following)
            for batch in file.iter_batches():
                reducer.add(batch.cast(reducer.schema))
    rows = dict.fromkeys(keys, 0)
    if reducer is None:
        return (), rows
    if staging is None:
        for key, batches in reducer.by_partition(rows):
            rows[key] = sum(batch.num_rows for batch in batches)
        return (), rows
    with staged_writer(
        location_of(staging),
        "part",
        reducer.schema,
        staging.partition_by,
        staging.field_ids,
        target_bytes=target_bytes,
    ) as writer:
        for key, batches in reducer.by_partition(rows):
            for batch in batches:
                rows[key] += batch.num_rows
                writer.add(batch, batch.nbytes)
    return with_file_parts(writer.files, writer.pieces), rows


def move_into_place(staging: Staging, names: Sequence[str]) -> None:
    """Move committed files, in a directory, to where the sink looks, and remove files of other task
    attempts. Raises `ConfigError` if the driver does not see the files."""
    if is_remote(staging.path):
        return
    root, directory = Path(staging.path), Path(staging.path) / _DIRECTORY
    if missing := [name for name in names if not (directory / name).exists()]:
        raise ConfigError(
            f"{directory} has no {missing[0]}: {NOT_SHARED}",
            subject="direct write",
        )
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).rename(root / name)
    # Rename first: a duplicate task that still runs could write into it while it is emptied.
    shutil.rmtree(directory.rename(root / _ACCEPTED))


def _counts(plan: WindowPlan, manifest: Sequence[TaskCommit]) -> IngestCounts:
    records = dict.fromkeys(plan.ranges, 0)
    read = dict.fromkeys(plan.ranges, 0)
    pieces: dict[str, list[list[int]]] = {}
    gaps: dict[str, list[list[int]]] = {}
    notices: Counter[str] = Counter()
    for row in manifest:
        notices.update(json.loads(row.notices))
        records[row.partition] = records.get(row.partition, 0) + row.rows
        read[row.partition] = read.get(row.partition, 0) + row.read
        pieces.setdefault(row.partition, []).append([row.start, row.end])
        if task_gaps := json.loads(row.gaps):
            gaps.setdefault(row.partition, []).extend(task_gaps)
    return IngestCounts(
        records=records,
        bytes=sum(row.bytes for row in manifest),
        gaps={key: sorted(task_gaps) for key, task_gaps in gaps.items()},
        corrupt=sum(row.corrupt for row in manifest),
        pieces={key: sorted(task_gaps) for key, task_gaps in pieces.items()},
        last=last_records((row.partition, row.start, json.loads(row.last)) for row in manifest),
        files=with_file_parts((fact_from_json(row.file) for row in manifest if row.file), manifest),
        quarantined=tuple(sorted(row.quarantined for row in manifest if row.quarantined)),
        read=read,
        notices=dict(notices),
    )

"""The driver's half of the direct write: run the job, take the manifest, accept its files.

In an object store tasks write under the staging place's prefix itself, and files that the manifest
does not name are left to `Sink.tidy`. In a directory they write beside the visible files: those of
the manifest are renamed to where the sink looks, and what other tries left behind goes with the
directory, so a copy of a task that is still running afterwards has nowhere to write to. This
module must not judge counts beyond what the manifest says, touch records, or publish anything.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_provider.files.footers import fact_from_json
from tubemq_provider.files.objects import is_remote
from tubemq_provider.files.writer import with_pieces
from tubemq_provider.spark.direct_write_tasks import (
    OPTION,
    DirectWriteSource,
    TaskCommit,
    WriteTask,
)
from tubemq_provider.spark.task_metrics import NOT_SHARED, last_records
from tubemq_provider.windows.protocols import IngestCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tubemq_provider.engines.spark_runtime import SparkRuntime
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import Staging

__all__ = ["accept", "direct_write_frame", "manifest_of", "place_of", "secrets_of", "settle"]

_DIRECTORY = "_direct_write"
_TAKEN = "_taken"


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
) -> DataFrame:
    """The frame whose collection writes the window of a source of `kind`. With a target size, as
    many tasks share the splits as can run at once: small partitions then end in one file."""
    tasks = runtime.slots(spark) if target_bytes else None
    by = None if staging.partition_by is None else staging.partition_by.to_json()
    ids = None if staging.field_ids is None else staging.field_ids.to_json()
    order = WriteTask(
        place_of(staging), storage_file, target_bytes, tasks, quarantine, kind, by, ids
    )
    runtime.register(spark, DirectWriteSource, secrets_of(options, storage_file))
    given = {**options, OPTION: order.to_json()}
    return spark.read.format(DirectWriteSource.name()).options(**given).load()


def secrets_of(options: Mapping[str, str], storage_file: str | None) -> list[str]:
    """The files on this machine with what options must not carry."""
    return [path for path in (options.get("configFile"), storage_file) if path is not None]


def place_of(staging: Staging) -> str:
    """Where tasks write: the staging place itself or, in a directory, one in it that is made."""
    if is_remote(staging.path):
        return staging.path
    place = Path(staging.path) / _DIRECTORY
    place.mkdir(exist_ok=True)
    return str(place)


def manifest_of(frame: DataFrame) -> list[TaskCommit]:
    """Run the one job of the window; what its tasks say they wrote."""
    return [TaskCommit(**row.asDict()) for row in frame.collect()]


def accept(plan: WindowPlan, staging: Staging, manifest: Sequence[TaskCommit]) -> IngestCounts:
    """Add up what the manifest says; in a directory, move its files to where the sink looks.

    Whether its pieces tile the plan is judged from the counts, by `check_counts`, before anything
    becomes visible. Raises `ConfigError` if executors wrote where the driver does not see it.
    """
    counts = _counts(plan, manifest)
    settle(staging, [*sorted({row.path for row in manifest if row.path}), *counts.quarantined])
    return counts


def settle(staging: Staging, names: Sequence[str]) -> None:
    """In a directory, move the files that tasks tell of to where the sink looks; what other tries
    of them left goes. Raises `ConfigError` if they are not where the driver sees them."""
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
    # Renamed first: a copy of a task that goes on could put a file into it while it is emptied.
    shutil.rmtree(directory.rename(root / _TAKEN))


def _counts(plan: WindowPlan, manifest: Sequence[TaskCommit]) -> IngestCounts:
    records = dict.fromkeys(plan.ranges, 0)
    read = dict.fromkeys(plan.ranges, 0)
    pieces: dict[str, list[list[int]]] = {}
    gaps: dict[str, list[list[int]]] = {}
    for row in manifest:
        records[row.partition] = records.get(row.partition, 0) + row.rows
        read[row.partition] = read.get(row.partition, 0) + row.read
        pieces.setdefault(row.partition, []).append([row.start, row.end])
        if found := json.loads(row.gaps):
            gaps.setdefault(row.partition, []).extend(found)
    return IngestCounts(
        records=records,
        bytes=sum(row.bytes for row in manifest),
        gaps={key: sorted(found) for key, found in gaps.items()},
        corrupt=sum(row.corrupt for row in manifest),
        pieces={key: sorted(found) for key, found in pieces.items()},
        last=last_records((row.partition, row.start, json.loads(row.last)) for row in manifest),
        files=with_pieces((fact_from_json(row.file) for row in manifest if row.file), manifest),
        quarantined=tuple(sorted(row.quarantined for row in manifest if row.quarantined)),
        read=read,
    )

"""Offsets of a stream by topic and partition, and the end of its next batch.

Pure arithmetic on brokers' answers. Spark writes these documents into its checkpoint and passes
them back, also to later releases: keys are sorted and there is a version. This module must not ask
a broker or import pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tubemq_client.errors import DataLoss, LogTruncated
from tubemq_client.model import OffsetRange, Partition
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.spaces import Ends

_VERSION: Final = 1

Offsets = Mapping[Partition, int]


def offsets_document(offsets: Offsets, *, begin: Offsets | None = None) -> dict[str, Any]:
    """Return the document for Spark's checkpoint: ``{"v": 1, "offsets": {"orders": {"1:0":
    2800}}}``; at the end of a first batch also the `begin` of the stream, under that name."""
    document: dict[str, Any] = {"offsets": _by_topic(offsets), "v": _VERSION}
    return document if begin is None else {"begin": _by_topic(begin), **document}


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets, key=lambda p: (p.topic, p)):
        topics.setdefault(partition.topic, {})[partition.key] = offsets[partition]
    return topics


def batch_start(end: Mapping[str, Any], start: Mapping[str, Any]) -> dict[Partition, int]:
    """Return the start of the batch up to `end`: the `begin` of that document, else `start`.
    Checkpoints of earlier releases have no `begin`."""
    begin = end.get("begin")
    return read_document(start if begin is None else {"offsets": begin, "v": end.get("v")})


def read_document(document: Mapping[str, Any]) -> dict[Partition, int]:
    """Parse the offsets of a checkpoint. Raises `DocumentError` for one that is not this
    source's."""
    subject = "offsets of a stream's checkpoint"
    if document.get("v") != _VERSION:
        raise DocumentError(
            subject, [f"version {document.get('v')!r}; this release reads {_VERSION}"]
        )
    try:
        return {
            SPACE.partition(topic, key): int(offset)
            for topic, keys in document["offsets"].items()
            for key, offset in keys.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DocumentError(subject, [f"{type(error).__name__}: {error}"]) from error


def ranges_between(start: Offsets, end: Offsets) -> tuple[OffsetRange, ...]:
    """Return the ranges of a batch. A partition that only `end` has is added by this batch and read
    by the next one, so that a retried batch never resolves a start again."""
    return tuple(
        SPACE.range(partition, start[partition], offset)
        for partition, offset in sorted(end.items())
        if partition in start and offset > start[partition]
    )


@dataclass(frozen=True, slots=True)
class Advance:
    """End of the next batch, and tolerated losses."""

    offsets: dict[Partition, int]
    warnings: tuple[str, ...] = ()


def advance(
    start: Offsets,
    ends: Mapping[Partition, Ends],
    *,
    limit: int | None = None,
    cap: Offsets | None = None,
    fail_on_data_loss: bool = True,
) -> Advance:
    """Return the end of a batch from `start`: the stable `ends`, not beyond `cap`, and at most
    about `limit` index entries, distributed in proportion to the lag of each partition.

    New partitions are added at their first offset. Raises `DataLoss` or `LogTruncated` for a
    partition that has vanished or ends before the stream's position, unless that is tolerated.
    """
    reach: dict[Partition, int] = {}
    warnings = []
    for partition, at in start.items():
        problem = _problem(partition, at, ends)
        if problem is None:
            highest = ends[partition].max_offset
            if cap is not None:
                highest = min(highest, max(cap.get(partition, at), at))
            reach[partition] = highest
        elif fail_on_data_loss:
            raise problem
        else:
            warnings.append(without_advice(problem))
            reach[partition] = at
    offsets = reach if limit is None else _distributed(start, reach, limit)
    for partition, broker_ends in ends.items():
        if partition not in start:
            offsets[partition] = broker_ends.min_offset
    return Advance(offsets, tuple(warnings))


def partition_gone(partition: Partition, at: int) -> DataLoss:
    """Return the error for a missing partition that the stream reads from `at`."""
    return DataLoss(
        f"partition {partition.key} of topic {partition.topic!r} is gone, and the stream is at "
        f"{at}; begin with a new checkpoint, or set failOnDataLoss=false to continue without it",
        start=at,
        available=at,
    )


def without_advice(problem: Exception) -> str:
    """Return the fact of an error without its advice, for a tolerated loss."""
    return str(problem).partition(";")[0]


def _problem(
    partition: Partition, at: int, ends: Mapping[Partition, Ends]
) -> DataLoss | LogTruncated | None:
    where = f"partition {partition.key} of topic {partition.topic!r}"
    broker_ends = ends.get(partition)
    if broker_ends is None:
        return partition_gone(partition, at)
    if broker_ends.max_offset < at:
        return LogTruncated(
            f"{where} ends at {broker_ends.max_offset}, and the stream is at {at}: its broker lost "
            "records, or the topic was recreated; begin with a new checkpoint"
        )
    return None


def _distributed(start: Offsets, reach: Offsets, limit: int) -> dict[Partition, int]:
    """Distribute a limit as Spark's Kafka source does: in proportion to lag, at least one entry
    each."""
    lag = {p: (reach[p] - start[p]) // SPACE.step for p in reach}
    total = sum(lag.values())
    if total <= limit:
        return dict(reach)
    return {
        p: start[p] + SPACE.step * min(count, max(1, -(-limit * count // total)) if count else 0)
        for p, count in lag.items()
    }

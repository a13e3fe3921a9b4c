"""Turns checked options into fixed ranges: the one moment when a read asks the cluster anything.

Words such as "earliest" and "stable" become offsets here, once per `load()`; from then on only the
numbers count, so every action on the frame reads the same records. What can be seen to be wrong
from the master's and brokers' answers is reported here, all partitions together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client.model import BrokerNode, OffsetRange, Partition, PartitionEnds
from tubemq_provider.spark.offsets_json import EARLIEST, LATEST, Bound, Bounds
from tubemq_provider.spark.options import SUBJECT, ReadOptions

if TYPE_CHECKING:
    from tubemq_client.model import ClientSettings
    from tubemq_client.sync import Metadata

__all__ = ["Ends", "PlannedRead", "plan_read", "resolve_ranges", "wanted_partitions"]


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """A frozen read: sorted ranges, where their brokers are, a seed for reader groups, and the
    settings it was planned with, which tasks use too."""

    topic: str
    seed: str
    ranges: tuple[OffsetRange, ...]
    brokers: Mapping[int, BrokerNode]
    settings: ClientSettings

    def options(self) -> dict[str, str]:
        """Options that make another `load()` read exactly the same ranges."""
        return {
            "partitions": ",".join(range_.partition.key for range_ in self.ranges),
            "startingOffsets": self._json("start"),
            "endingOffsets": self._json("end"),
        }

    def _json(self, side: str) -> str:
        offsets = {range_.partition.key: getattr(range_, side) for range_ in self.ranges}
        return json.dumps({self.topic: offsets})


@dataclass(frozen=True, slots=True)
class Ends:
    """What brokers said: the fsynced ends, and the ends in memory where those were asked for."""

    stable: Mapping[Partition, PartitionEnds]
    latest: Mapping[Partition, PartitionEnds]


def plan_read(options: ReadOptions, settings: ClientSettings) -> PlannedRead:
    """Resolve `options` against the cluster. Blocks for one master and one broker look-up.

    A window plan needs no offsets from brokers, only their addresses. Raises `errors.ConfigError`,
    `errors.DataLoss`, `errors.UnknownTopic` or `errors.NetworkError`.
    """
    from tubemq_client.sync import Metadata

    with Metadata(settings) as metadata:
        found = metadata.topic(options.topic, options.group)
        if not found.partitions:
            raise errors.UnknownTopic(431, f"topic {options.topic!r} has no partition")
        if options.window is not None:
            ranges = tuple(options.window.reads())
            named = {range_.partition for range_ in ranges}
            problems = _unknown("window", options.topic, named, found.partitions)
            if problems:
                raise errors.ConfigError(problems, subject=SUBJECT)
            seed = options.window.window_id
            return PlannedRead(options.topic, seed, ranges, found.brokers, settings)
        partitions = wanted_partitions(options, found.partitions)
        ends = _look_up(metadata, options, partitions)
    ranges = resolve_ranges(options, partitions, ends)
    return PlannedRead(options.topic, _seed(ranges), ranges, found.brokers, settings)


def wanted_partitions(options: ReadOptions, known: Iterable[Partition]) -> tuple[Partition, ...]:
    """The partitions to read: those named by the option, else all; bounds must name each of them.

    A partition without a bound is an error rather than left out: a topic that has grown would
    otherwise lose records silently.
    """
    known = sorted(known)
    wanted = options.partitions or tuple(known)
    problems = _unknown("partitions", options.topic, wanted, known)
    for name, bounds in (("startingOffsets", options.start), ("endingOffsets", options.end)):
        if isinstance(bounds, str):
            continue
        named = {Partition.from_key(options.topic, key) for key in bounds}
        problems += _unknown(name, options.topic, named, known)
        problems += [
            f"{name}: gives no offset for partition {partition.key} of topic {options.topic!r}; "
            "add it, or name the partitions to read with 'partitions'"
            for partition in wanted
            if partition not in named
        ]
    if problems:
        raise errors.ConfigError(problems, subject=SUBJECT)
    return wanted


def resolve_ranges(
    options: ReadOptions, partitions: Iterable[Partition], ends: Ends
) -> tuple[OffsetRange, ...]:
    """The range of each partition, after checking it against what the broker has.

    Raises `errors.ConfigError` for ranges the broker cannot have, `errors.DataLoss` where retention
    was faster and `failOnDataLoss` is on.
    """
    ranges, problems = [], []
    for partition in partitions:
        low = ends.stable[partition].min_offset
        start = _start(_bound(options.start, partition), low)
        end = _end(_bound(options.end, partition), partition, ends)
        problem = _problem(partition, start, end, ends)
        if problem:
            problems.append(problem)
        else:
            ranges.append(OffsetRange(partition, start, end))
    if problems:
        raise errors.ConfigError(problems, subject=SUBJECT)
    if options.fail_on_data_loss:
        _refuse_loss(ranges, ends)
    return tuple(ranges)


def _look_up(metadata: Metadata, options: ReadOptions, partitions: tuple[Partition, ...]) -> Ends:
    def ends(*, stable: bool) -> dict[Partition, PartitionEnds]:
        return metadata.ends(options.topic, options.group, partitions, stable=stable)

    stable = ends(stable=True)
    bounds = [_bound(options.end, partition) for partition in partitions]
    needs_latest = any(bound == LATEST or isinstance(bound, int) for bound in bounds)
    return Ends(stable, ends(stable=False) if needs_latest else stable)


def _bound(bounds: Bounds, partition: Partition) -> Bound:
    return bounds if isinstance(bounds, str) else bounds[partition.key]


def _start(bound: Bound, low: int) -> int:
    return low if bound == EARLIEST else int(bound)


def _end(bound: Bound, partition: Partition, ends: Ends) -> int:
    if isinstance(bound, int):
        return bound
    return (ends.latest if bound == LATEST else ends.stable)[partition].max_offset


def _problem(partition: Partition, start: int, end: int, ends: Ends) -> str | None:
    where = f"of partition {partition.key} of topic {partition.topic!r}"
    high = max(ends.latest[partition].max_offset, ends.stable[partition].max_offset)
    if end > high:
        return f"endingOffsets: {end} {where} is beyond the broker's end {high}"
    if start > end:
        return (
            f"startingOffsets: {start} {where} is beyond the end {end}; if the broker lost records "
            "in a crash or they are not on its disk yet, start lower or read later"
        )
    return None


def _refuse_loss(ranges: list[OffsetRange], ends: Ends) -> None:
    lost = [r for r in ranges if r.start < ends.stable[r.partition].min_offset]
    if not lost:
        return
    lines = [
        f"retention has removed offsets [{r.start}, {ends.stable[r.partition].min_offset}) of "
        f"partition {r.partition.key} of topic {r.partition.topic!r}; start at "
        f"{ends.stable[r.partition].min_offset} or 'earliest', or set failOnDataLoss=false to read "
        "what is left"
        for r in lost
    ]
    raise errors.DataLoss(
        "\n".join(lines),
        start=lost[0].start,
        available=ends.stable[lost[0].partition].min_offset,
    )


def _unknown(
    name: str, topic: str, partitions: Iterable[Partition], known: Iterable[Partition]
) -> list[str]:
    known = sorted(known)
    listing = ", ".join(partition.key for partition in known)
    return [
        f"{name}: topic {topic!r} has no partition {partition.key}; it has {listing}"
        for partition in sorted(set(partitions).difference(known))
    ]


def _seed(ranges: Iterable[OffsetRange]) -> str:
    return "x-" + hashlib.sha256("\n".join(map(str, ranges)).encode()).hexdigest()[:10]

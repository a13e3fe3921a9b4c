"""Planner that turns checked options into fixed ranges: the only step of a read that asks the
cluster.

Words such as "earliest" and "stable" become offsets here, once per `load()`; from then on only the
numbers count, so every action on the frame reads the same records. Problems that the answers of the
master and brokers reveal are reported here, for all partitions together.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from tubemq_client import errors
from tubemq_client.model import BrokerNode, OffsetRange, Partition
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.spark.offset_options import EARLIEST, LATEST, STABLE, At, Bound, bound_of
from tubemq_provider.spark.options import SUBJECT, ReadOptions
from tubemq_provider.spark.timestamps import InstantPosition, find_positions, open_reads
from tubemq_provider.spark.topics import look_up_topics, unknown_partitions

if TYPE_CHECKING:
    from tubemq_client import TopicMetadata
    from tubemq_client.model import ClientSettings
    from tubemq_client.sync import Metadata
    from tubemq_provider.windows.spaces import Ends as KnownEnds

_LOG = logging.getLogger(__name__)

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """Frozen read: sorted ranges, the addresses of their brokers, a seed for reader groups, and the
    settings it was planned with, which tasks use too."""

    topics: tuple[str, ...]
    seed: str
    ranges: tuple[OffsetRange, ...]
    brokers: Mapping[int, BrokerNode]
    settings: ClientSettings

    def options(self) -> dict[str, str]:
        """Return options that make another `load()` read exactly the same ranges."""
        read = sorted({range_.partition.topic for range_ in self.ranges})
        if len(read) == 1:
            keys = ",".join(range_.partition.key for range_ in self.ranges)
            chosen = {"topic": read[0], "partitions": keys}
        else:
            chosen = {"assign": json.dumps(self._by_topic(lambda r: r.partition.key, list))}
        start = json.dumps(self._by_topic(lambda r: (r.partition.key, r.start), dict))
        end = json.dumps(self._by_topic(lambda r: (r.partition.key, r.end), dict))
        return {**chosen, "startingOffsets": start, "endingOffsets": end}

    def _by_topic(
        self, item: Callable[[OffsetRange], Any], kind: Callable[[Any], Any]
    ) -> dict[str, Any]:
        return {
            topic: kind(item(r) for r in self.ranges if r.partition.topic == topic)
            for topic in self.topics
            if any(r.partition.topic == topic for r in self.ranges)
        }


@dataclass(frozen=True, slots=True)
class Ends:
    """Answers of the brokers: stable ends, ends in memory if they were requested, positions of
    times, and partitions whose broker does not answer, with the reason."""

    stable: Mapping[Partition, KnownEnds]
    latest: Mapping[Partition, KnownEnds]
    places: Mapping[tuple[Partition, At], InstantPosition] = field(default_factory=dict)
    away: Mapping[Partition, str] = field(default_factory=dict)


def plan_read(options: ReadOptions, settings: ClientSettings) -> PlannedRead:
    """Resolve `options` against the cluster. Blocks for one request to a master and its brokers per
    topic; network errors are retried as often as the options say.

    A window plan needs no offsets from brokers, only their addresses. Raises `errors.ConfigError`,
    `errors.DataLoss`, `errors.UnknownTopic` or `errors.NetworkError`.
    """
    return _retried(options, lambda: _plan(options, settings))


def plan_start(options: ReadOptions, settings: ClientSettings) -> dict[Partition, int]:
    """Return the start of a stream: `startingOffsets` and its alternatives, resolved now."""
    return {range_.partition: range_.start for range_ in plan_read(options, settings).ranges}


@dataclass(frozen=True, slots=True)
class Reach:
    """Stable ends of the partitions that a stream reads, and the addresses of their brokers."""

    ends: Mapping[Partition, KnownEnds]
    brokers: Mapping[int, BrokerNode]


def stream_reach(
    options: ReadOptions, settings: ClientSettings, needed: Collection[Partition] | None
) -> Reach:
    """Return what a stream may read now. Named partitions that no longer exist are left out, and so
    are those that are not `needed` (None: all are) while their brokers do not answer. Raises
    `errors.ConnectError` if a broker of a needed partition does not answer."""
    return _retried(options, lambda: _reach(options, settings, needed))


def _reach(
    options: ReadOptions, settings: ClientSettings, needed: Collection[Partition] | None
) -> Reach:
    from tubemq_client.sync import Metadata

    ends: dict[Partition, KnownEnds] = {}
    unreachable: dict[Partition, str] = {}
    brokers: dict[int, BrokerNode] = {}
    with Metadata(settings) as metadata:
        for topic in look_up_topics(metadata, options.topics, options.group).values():
            named = options.partitions
            selected = {p: r for p, r in topic.partitions.items() if named is None or p in named}
            brokers.update(topic.brokers)
            if selected:
                part = replace(topic, partitions=selected)
                reachable, silent = _reachable(metadata, options.group, part, stable=True)
                ends |= reachable
                unreachable |= silent
    missing = {p: why for p, why in unreachable.items() if needed is None or p in needed}
    if missing:
        raise errors.ConnectError(f"brokers do not answer:{_listed(missing)}")
    if unreachable:
        _LOG.warning(
            "brokers of partitions that are not read yet do not answer:%s", _listed(unreachable)
        )
    return Reach(ends, brokers)


def _reachable(
    metadata: Metadata, group: str, topic: TopicMetadata, *, stable: bool
) -> tuple[Mapping[Partition, KnownEnds], Mapping[Partition, str]]:
    """Return the ends of the partitions of `topic` whose brokers answer, and the reason for others,
    which may be all of them. Raises fatal errors."""
    try:
        reachable = metadata.reachable_ends(topic.topic, group, stable=stable, metadata=topic)
    except errors.TubeMQError as error:
        if error.fatal:
            raise
        return {}, dict.fromkeys(topic.partitions, f"{type(error).__name__}: {error}")
    return reachable, reachable.away


def _retried(options: ReadOptions, action: Callable[[], Found]) -> Found:
    for done in range(options.plan_retries):
        try:
            return action()
        except errors.NetworkError:
            Event().wait(options.plan_retry_ms * 2 ** min(done, 6) / 1000)
    return action()


def _plan(options: ReadOptions, settings: ClientSettings) -> PlannedRead:
    from tubemq_client.sync import Metadata

    with Metadata(settings) as metadata:
        topics = look_up_topics(metadata, options.topics, options.group)
        all_partitions = [partition for topic in topics.values() for partition in topic.partitions]
        brokers = {id_: node for topic in topics.values() for id_, node in topic.brokers.items()}
        if options.window is not None:
            ranges = tuple(options.window.reads())
            problems = unknown_partitions("window", (r.partition for r in ranges), all_partitions)
            if problems:
                raise errors.ConfigError(problems, subject=SUBJECT)
            seed = options.window.window_id
            return PlannedRead(tuple(topics), seed, ranges, brokers, settings)
        partitions = wanted_partitions(options, all_partitions)
        ends = _look_up(metadata, options, partitions, topics)
        partitions = _reachable_partitions(options, partitions, ends)
    ranges = resolve_ranges(options, partitions, ends)
    return PlannedRead(tuple(topics), _seed(ranges), ranges, brokers, settings)


def wanted_partitions(options: ReadOptions, existing: Iterable[Partition]) -> tuple[Partition, ...]:
    """Return the partitions to read: those named by the option, else all; bounds must name each of
    them.

    A partition without a bound is an error rather than left out: a topic that has grown would
    otherwise lose records silently.
    """
    existing = sorted(existing)
    selected = options.partitions or tuple(existing)
    problems = unknown_partitions("partitions", selected, existing)
    for name, bounds in (("startingOffsets", options.start), ("endingOffsets", options.end)):
        if not isinstance(bounds, Mapping):
            continue
        problems += unknown_partitions(name, bounds, existing)
        problems += [
            f"{name}: gives no offset for partition {partition.key} of topic {partition.topic!r}; "
            "add it, or name the partitions to read with 'partitions' or 'assign'"
            for partition in selected
            if partition not in bounds
        ]
    if problems:
        raise errors.ConfigError(problems, subject=SUBJECT)
    return selected


def resolve_ranges(
    options: ReadOptions, partitions: Iterable[Partition], ends: Ends
) -> tuple[OffsetRange, ...]:
    """Return the range of each partition, checked against the broker's offsets.

    Raises `errors.ConfigError` for ranges outside of the broker's log, `errors.DataLoss` where
    retention has removed a start and `failOnDataLoss` is on.
    """
    ranges, problems = [], []
    for partition in partitions:
        first, last = bound_of(options.start, partition), bound_of(options.end, partition)
        problem = _time_problem(options, partition, first, last, ends)
        if problem:
            problems.append(problem)
            continue
        end = _end(last, partition, ends)
        start = _start(first, partition, ends, end)
        problem = _problem(partition, start, end, ends)
        if problem:
            problems.append(problem)
        else:
            ranges.append(SPACE.range(partition, start, end))
    if problems:
        raise errors.ConfigError(problems, subject=SUBJECT)
    if options.fail_on_data_loss:
        _refuse_loss(ranges, ends)
    return tuple(ranges)


def _look_up(
    metadata: Metadata,
    options: ReadOptions,
    partitions: tuple[Partition, ...],
    topics: Mapping[str, TopicMetadata],
) -> Ends:
    unreachable: dict[Partition, str] = {}

    def ends(*, stable: bool) -> dict[Partition, KnownEnds]:
        ends_by_partition: dict[Partition, KnownEnds] = {}
        for topic in topics.values():
            selected = {p: ready for p, ready in topic.partitions.items() if p in chosen}
            if selected:
                part = replace(topic, partitions=selected)
                reachable, silent = _reachable(metadata, options.group, part, stable=stable)
                ends_by_partition |= reachable
                unreachable.update(silent)
        return ends_by_partition

    chosen = frozenset(partitions)
    stable = ends(stable=True)
    bounds = [bound_of(options.end, partition) for partition in partitions]
    needs_latest = any(bound == LATEST or isinstance(bound, int) for bound in bounds)
    latest = ends(stable=False) if needs_latest else stable
    answering = tuple(partition for partition in partitions if partition not in unreachable)
    # A read up to `latest` also looks for times in the broker's memory.
    reach = {p: latest[p] if bound_of(options.end, p) == LATEST else stable[p] for p in answering}
    return Ends(stable, latest, _positions(options, answering, reach, topics), unreachable)


def _reachable_partitions(
    options: ReadOptions, partitions: tuple[Partition, ...], ends: Ends
) -> tuple[Partition, ...]:
    """Return the partitions whose brokers answer. Raises `errors.ConnectError` that names all
    others: a read without them would lose their records silently, and one without any partition
    would read nothing."""
    if not ends.away:
        return partitions
    lines = _listed(ends.away)
    if len(ends.away) == len(partitions):
        raise errors.ConnectError(f"no broker of the partitions to read answers:{lines}")
    if not options.skip_unreachable:
        raise errors.ConnectError(
            f"brokers do not answer:{lines}\nread again when they are back, name the partitions to "
            f"read with 'partitions', or set unreachablePartitions=skip to read without these"
        )
    _LOG.warning("the read is without partitions whose brokers do not answer:%s", lines)
    return tuple(partition for partition in partitions if partition not in ends.away)


def _listed(unreachable: Mapping[Partition, str]) -> str:
    return "".join(
        f"\n  - partition {partition.key} of topic {partition.topic!r}: {reason}"
        for partition, reason in sorted(unreachable.items())
    )


def _positions(
    options: ReadOptions,
    partitions: tuple[Partition, ...],
    ends: Mapping[Partition, KnownEnds],
    topics: Mapping[str, TopicMetadata],
) -> dict[tuple[Partition, At], InstantPosition]:
    """Return the positions of the times in the options; opens a reader only if there are any."""
    bounds = ((p, bound_of(side, p)) for side in (options.start, options.end) for p in partitions)
    instants = [(partition, bound) for partition, bound in bounds if isinstance(bound, At)]
    if not instants:
        return {}
    brokers = {id_: node for topic in topics.values() for id_, node in topic.brokers.items()}
    with ExitStack() as stack:
        return find_positions(instants, ends, open_reads(options, brokers, stack.enter_context))


def _start(bound: Bound, partition: Partition, ends: Ends, end: int) -> int:
    if isinstance(bound, At):
        place = ends.places[partition, bound]
        if place.offset is None or place.late:  # the read of this partition is empty
            return max(end, ends.stable[partition].min_offset)
        return place.offset
    if bound in (LATEST, STABLE):  # for streams, which read up to stable ends only
        return ends.stable[partition].max_offset
    return ends.stable[partition].min_offset if bound == EARLIEST else int(bound)


def _end(bound: Bound, partition: Partition, ends: Ends) -> int:
    if isinstance(bound, int):
        return bound
    if isinstance(bound, At):
        offset = ends.places[partition, bound].offset
        return ends.stable[partition].max_offset if offset is None else offset
    return (ends.latest if bound == LATEST else ends.stable)[partition].max_offset


def _time_problem(
    options: ReadOptions, partition: Partition, first: Bound, last: Bound, ends: Ends
) -> str | None:
    where = f"partition {partition.key} of topic {partition.topic!r}"
    for bound in (first, last):
        if isinstance(bound, At) and ends.places[partition, bound].untimed:
            return (
                f"startingTimestamp, endingTimestamp: records of {where} carry no message time; "
                "give offsets"
            )
    if not isinstance(first, At):
        return None
    place = ends.places[partition, first]
    if (place.offset is None or place.late) and options.late_start == "error":
        return (
            f"startingTimestamp: {where} has no record at {first.ms} or later; set "
            "startingOffsetsByTimestampStrategy=latest to read nothing of it"
        )
    if place.cut and options.fail_on_data_loss:
        return (
            f"startingTimestamp: retention may have removed records of {where} at {first.ms} or "
            "later; start with startingOffsets=earliest, or set failOnDataLoss=false"
        )
    return None


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


def _seed(ranges: Iterable[OffsetRange]) -> str:
    return "x-" + hashlib.sha256("\n".join(map(str, ranges)).encode()).hexdigest()[:10]

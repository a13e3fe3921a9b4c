"""Checks of ranges against the logs' ends: lost starts, ends not reached yet, truncated logs.

Pure functions over ends that a caller looked up. Errors name topic, partition, the range in
question and the option that decides. This module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from tubemq_client.errors import ConfigError, DataLoss, LogTruncated
from tubemq_client.model import GapPolicy
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.log_identity import new_epoch_advice
from tubemq_provider.windows.spaces import Ends, OffsetSpace, reach_of

__all__ = [
    "EndsLookup",
    "away_of",
    "by_key",
    "check_reachable",
    "joined_behind_dead",
    "lost_starts",
    "truncated",
]

EndsLookup = Callable[[], Mapping[Any, Ends]]
"""Looks up the ends of every partition of the topic at the brokers, stable ends for cursor windows.
If the mapping has an attribute `away`, it has the partitions whose broker does not answer, with the
reasons."""

Range = tuple[int, int]
Found = TypeVar("Found", bound=Ends)


def by_key(topic: str, space: OffsetSpace, ends: Mapping[Any, Found]) -> dict[str, Found]:
    """Return ends by partition key, in key order. Raises `ConfigError` for a topic without any."""
    keyed = {partition.key: end for partition, end in ends.items() if partition.topic == topic}
    if not keyed:
        raise ConfigError(f"topic {topic!r} has no partition on any broker", subject="topic")
    return space.by_key(keyed)


def away_of(ends: Mapping[Any, Ends]) -> dict[str, str]:
    """Return keys of partitions whose broker did not answer, in order, each with the reason."""
    unreachable: Mapping[Any, str] = getattr(ends, "away", {})
    return {partition.key: reason for partition, reason in sorted(unreachable.items())}


def lost_starts(
    topic: str,
    ranges: Mapping[str, Range],
    ends: Mapping[str, Ends],
    policy: GapPolicy,
    readable: Mapping[str, int] | None = None,
) -> dict[str, tuple[Range, ...]]:
    """Return the part of each range below the broker's minimum offset, or below the offset in
    `readable` at which its data begins.

    Raises `DataLoss` with all such parts under `GapPolicy.FAIL`.
    """
    data = readable or {}
    begin = {key: max(ends[key].min_offset, data.get(key, 0)) for key in ranges if key in ends}
    gaps: dict[str, tuple[Range, ...]] = {
        key: ((start, min(end, begin[key])),)
        for key, (start, end) in ranges.items()
        if key in begin and start < min(end, begin[key])
    }
    if gaps and policy is GapPolicy.FAIL:
        lines = "".join(
            f"\n  - partition {key}: offsets [{gap[0][0]}, {gap[0][1]}) are gone, the broker holds "
            f"data from {begin[key]}"
            for key, gap in gaps.items()
        )
        first = next(iter(gaps))
        raise DataLoss(
            f"retention has removed data of topic {topic!r} before it was read:{lines}\n"
            f"set gap_policy='skip' to continue without it; the lost ranges are then recorded",
            start=gaps[first][0][0],
            available=begin[first],
        )
    return gaps


def joined_behind_dead(
    space: OffsetSpace,
    ranges: Mapping[str, Range],
    joined: Collection[str],
    readable: Mapping[str, int],
    *,
    unknown: Collection[str] = (),
) -> dict[str, Range]:
    """Return the ranges of partitions that join a log of known ones, moved after index entries
    without data.

    Such entries lie before the starts of the known partitions, so they are older than the joining
    one. Logs of `unknown` partitions may have been recreated."""
    first: dict[str, int] = {}
    for key, (start, _) in ranges.items():
        if key not in joined:
            begin, log = 0 if key in unknown else start, space.log_of(key)
            first[log] = min(first.get(log, begin), begin)
    return {
        key: (min(readable[key], ranges[key][1]), ranges[key][1])
        for key in joined
        if key in readable and ranges[key][0] < readable[key] <= first.get(space.log_of(key), 0)
    }


def check_reachable(topic: str, ranges: Mapping[str, Range], ends: Mapping[str, Ends]) -> None:
    """Raise `WindowNotReady` unless every range ends within its log. An empty range needs no
    broker."""
    problems = []
    for key, (start, end) in ranges.items():
        if start == end:
            continue
        if key not in ends:
            problems.append(f"partition {key}: no broker offers it")
        elif end > ends[key].max_offset:
            kind = "stable end" if ends[key].stable else "end"
            problems.append(
                f"partition {key}: the window ends at {end}, the {kind} is {ends[key].max_offset}"
            )
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise WindowNotReady(
            f"the window of topic {topic!r} is not there yet:{lines}\n"
            f"wait for it first, e.g. with a sensor (…PartitionReadySensor(until_offsets=...))"
        )


def truncated(
    scope: WindowScope, position: Mapping[str, int], ends: Mapping[str, Ends], *, seen: str = ""
) -> LogTruncated | None:
    """Return the error for partitions whose log ends before the position, or None without any.
    `seen`: id of the last known window."""
    lines = "".join(
        f"\n  - partition {key}: the position is {offset}, the log ends at {reach_of(ends[key])}"
        for key, offset in position.items()
        if key in ends and reach_of(ends[key]) < offset
    )
    if not lines:
        return None
    return LogTruncated(
        f"topic {scope.topic!r} has less data than was read already; a broker lost records or the "
        f"topic was recreated:{lines}\n"
        f"set on_offset_regression='reset_to_end' (skip what is there) or 'reset_to_start' (read "
        f"all of it, records may come twice) to continue; {new_epoch_advice(scope, seen)}"
    )

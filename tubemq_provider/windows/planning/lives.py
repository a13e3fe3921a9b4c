"""Whether a log is still the one in which a position was taken.

Compares what documents remember of a log (`anchors`) with what the brokers hold: one short read a
store, since its partitions share one log, and the anchor nearest to the position tells most. What
was asked is remembered for a run. An anchor that retention has removed proves nothing any more.
Also takes new anchors where a position has none. The brokers are asked through `LogWitness`; this
module must not open connections, and decides nothing about what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tubemq_client.errors import DataLoss, LogReplaced
from tubemq_client.model import Anchor
from tubemq_provider.windows.anchors import Anchors
from tubemq_provider.windows.cursor import epoch_command
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.spaces import Ends, reach_of

__all__ = ["DataWitness", "LogLife", "LogWitness", "new_life_advice"]

_LOOKS_BACK = (1, 4096)
"""How many index entries before a position are searched for a record to take as its anchor: the
entry before it, then as many as a partition of a busy store may have to share, for each partition
of the store until one has a record there."""

Range = tuple[int, int]


class LogWitness(Protocol):
    """What the brokers say of single records; `RangeReader` has both. Raises network errors."""

    def first_record(self, range_: Any) -> Anchor | None:
        """The first record of a range."""

    def holds(self, partition: Any, anchor: Anchor, upto: int) -> bool | None:
        """Whether the anchor's record is where it was; None if retention has removed the place, or
        the data that was there."""


@runtime_checkable
class DataWitness(Protocol):
    """A witness whose brokers may list records that they no longer have (TubeMQ's)."""

    def readable_from(self, range_: Any) -> int:
        """The first offset of a range whose record is still there, in any partition of the log; the
        range's end if there is none."""


@dataclass
class LogLife:
    """Asks about the logs of one topic. Without a witness nothing is known and nothing refused."""

    scope: WindowScope
    witness: LogWitness | None = None
    _answers: dict[tuple[str, Anchor], bool | None] = field(default_factory=dict)

    def replaced(
        self,
        upto: Mapping[str, int],
        anchors: Anchors,
        known: Mapping[str, Ends],
        *,
        shorter: bool = False,
    ) -> list[str]:
        """The partitions, in key order, whose log is proven to be another one: all those of a store
        that no longer has the anchor nearest to its position, looked for below `upto`. A log that
        ends before is looked at only if `shorter` logs are to be told as well."""
        if self.witness is None:
            return []
        found: list[str] = []
        for keys in self._stores(upto):
            usable = [
                key
                for key in keys
                if key in anchors
                and key in known
                and known[key].min_offset <= anchors[key].offset < upto[key]
                and (shorter or upto[key] <= reach_of(known[key]))
            ]
            best = max(usable, key=lambda key: anchors[key].offset, default=None)
            if best is not None and self._holds(best, anchors[best], upto[best]) is False:
                found += keys
        return self.scope.space.ordered(found)

    def refuse(self, keys: list[str], anchors: Anchors, *, seen: str = "") -> None:
        """Raise `LogReplaced` if there are such partitions. `seen`: the last window that is
        known."""
        if keys:
            raise LogReplaced(_message(self.scope, keys, anchors, seen))

    def recognise(self, plan: WindowPlan, known: Mapping[str, Ends]) -> None:
        """Raise `LogReplaced` unless the logs of `plan` are those it was made for."""
        self.refuse(self.foreign(plan, known), plan.before, seen=plan.known_before)

    def foreign(self, plan: WindowPlan, known: Mapping[str, Ends]) -> list[str]:
        """The partitions of `plan` whose log is not the one it was made for. A store of which it
        reads nothing does not matter: what follows is compared with the same records."""
        read, ends = plan.read_upto, plan.ends
        furthest: dict[str, int] = {}
        for keys in self._stores(ends):
            if any(key in read for key in keys):
                # A record below the furthest end of a store tells its log, whichever partition has
                # it.
                furthest |= dict.fromkeys(keys, max(ends[key] for key in keys))
        return self.replaced(furthest, plan.before, known, shorter=True)

    def forget(self) -> None:
        """Ask anew from here on: what was read since is only as good as a later answer."""
        self._answers.clear()

    def taken(
        self, ranges: Mapping[str, Range], anchors: Anchors, known: Mapping[str, Ends]
    ) -> dict[str, Anchor]:
        """`anchors`, and a new one for each store whose anchors are none or out of reach: a record
        shortly before the ranges, or else their first one."""
        found = dict(anchors)
        if self.witness is None:
            return found
        for keys in self._stores(ranges):
            here = [key for key in keys if key in known]
            # One behind the ranges, where a log began anew before them, tells nothing of them.
            if any(
                key in anchors and known[key].min_offset <= anchors[key].offset < ranges[key][1]
                for key in here
            ):
                continue
            for range_ in self._places({key: ranges[key] for key in here}, known):
                try:
                    anchor = self.witness.first_record(range_)
                except DataLoss:
                    continue  # retention has been there since the ends were looked up
                if anchor is not None:
                    found[range_.partition.key] = anchor
                    self._answers[(range_.partition.key, anchor)] = True
                    break
        return found

    def first_readable(
        self, ranges: Mapping[str, Range], anchors: Anchors, known: Mapping[str, Ends]
    ) -> dict[str, int]:
        """Where the data of the ranges begins, for the stores that begin with entries whose data is
        gone. A store whose log was recognised by a record before its ranges is not asked: what lies
        behind a record that is there is there as well."""
        witness, space = self.witness, self.scope.space
        found: dict[str, int] = {}
        if not isinstance(witness, DataWitness):
            return {}
        for keys in self._stores(ranges):
            read = [key for key in keys if key in known and ranges[key][0] < ranges[key][1]]
            if not read:
                continue
            start = max(min(ranges[key][0] for key in read), known[read[0]].min_offset)
            end = max(ranges[key][1] for key in read)
            if start >= end or any(
                key in anchors
                and anchors[key].offset < start
                and self._answers.get((key, anchors[key])) is True
                for key in keys
            ):
                continue
            readable = witness.readable_from(space.ranges(self.scope.topic, read[0], start, end))
            if readable > start:
                found |= dict.fromkeys(read, readable)
        return found

    def begin(
        self, ranges: Mapping[str, Range], known: Mapping[str, Ends]
    ) -> tuple[dict[str, Anchor], dict[str, int]]:
        """New anchors for ranges that have none, and where their data begins (`first_readable`)."""
        anchors = self.taken(ranges, {}, known)
        return anchors, self.first_readable(ranges, anchors, known)

    def _places(self, ranges: Mapping[str, Range], known: Mapping[str, Ends]) -> Iterator[Any]:
        """Where a record of a store may be that tells its log, the most telling place first."""
        space, topic = self.scope.space, self.scope.topic
        latest = sorted(ranges, key=lambda key: -ranges[key][0])
        for entries, keys in zip(_LOOKS_BACK, (latest[:1], latest), strict=True):
            for key in keys:
                start = ranges[key][0]
                low = max(known[key].min_offset, start - entries * space.step)
                if low < start <= reach_of(known[key]):
                    yield space.ranges(topic, key, low, start)
        for name, (start, end) in ranges.items():
            low = max(start, known[name].min_offset)
            if low < end <= known[name].max_offset:
                yield space.ranges(topic, name, low, end)
        # Partitions without a record in their own ranges may have the entries of others there.
        first = min((start for start, _ in ranges.values()), default=0)
        last = max((end for _, end in ranges.values()), default=0)
        for name, range_ in ranges.items():
            low = max(first, known[name].min_offset)
            if low < last <= known[name].max_offset and range_ != (low, last):
                yield space.ranges(topic, name, low, last)

    def _holds(self, key: str, anchor: Anchor, upto: int) -> bool | None:
        asked = (key, anchor)
        if asked not in self._answers and self.witness is not None:
            partition = self.scope.space.partition(self.scope.topic, key)
            self._answers[asked] = self.witness.holds(partition, anchor, upto)
        return self._answers[asked]

    def _stores(self, keys: Mapping[str, object]) -> list[list[str]]:
        return list(self.scope.space.logs(keys).values())


def new_life_advice(scope: WindowScope, seen: str = "") -> str:
    """How a group goes on when its topic has begun anew; `seen` is the last window that the run
    knew which found it so."""
    task = f"epoch='<name>', epoch_seen='{seen}'" if seen else "epoch='<name>'"
    return (
        f"to read a topic that was made anew from its beginning, as a new life of the group: "
        f"{epoch_command(scope, seen)} (or pass {task} to the task)"
    )


def _message(scope: WindowScope, keys: list[str], anchors: Anchors, seen: str) -> str:
    lines = "".join(
        f"\n  - partition {key}: the record {anchors[key].message_id} is not at "
        f"{anchors[key].offset} any more"
        if key in anchors
        else f"\n  - partition {key}: its store has other records"
        for key in keys
    )
    return (
        f"topic {scope.topic!r} has other records than those that were read; it was made anew, or "
        f"a broker's disk was replaced or restored:{lines}\n{new_life_advice(scope, seen)}; in "
        f"cursor mode on_offset_regression='reset_to_end' (skip what is there) or 'reset_to_start' "
        f"(read all of it, records may come twice) goes on as well"
    )

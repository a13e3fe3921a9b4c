"""Detection of recreated logs: is a log still the one in which a position was taken?

Compares stored anchors with the records that the brokers have: one short read per store, since its
partitions share one log, of the anchor nearest to the position. Answers are cached for a run. An
anchor whose record retention has removed proves nothing. Also takes new anchors for positions that
have none. Brokers are read through `RecordLookup`; this module must not open connections, and does
not decide what follows from the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tubemq_client.errors import DataLoss, LogReplaced
from tubemq_client.model import Anchor
from tubemq_provider.windows.anchors import Anchors
from tubemq_provider.windows.cursor import epoch_command
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.spaces import Ends, reach_of

__all__ = ["LogIdentity", "RecordLookup", "StoredRecordLookup", "new_epoch_advice"]

_LOOKS_BACK = (1, 4096)
"""Index entries before a position that are searched for a record as its anchor: one entry, then
enough to find a record of a partition in a busy store, for each partition of the store until one
has a record there."""

Range = tuple[int, int]


class RecordLookup(Protocol):
    """Reader of single records from the brokers, such as `RangeReader`. Raises network errors."""

    def first_record(self, range_: Any) -> Anchor | None:
        """Return the anchor of the first record of a range; None if it has none."""

    def holds(self, partition: Any, anchor: Anchor, upto: int) -> bool | None:
        """Return True if the anchor's record is still at its offset, False if another record is;
        None if retention has removed the index entry or its data."""


@runtime_checkable
class StoredRecordLookup(Protocol):
    """Witness whose brokers may have index entries without data (TubeMQ's)."""

    def readable_from(self, range_: Any) -> int:
        """Return the first offset of a range whose record still has data, in any partition of the
        log; the range's end if there is none."""


@runtime_checkable
class ManyRecordLookup(Protocol):
    """Witness that looks up several records at the same time (TubeMQ's)."""

    def holds_each(self, anchors: Iterable[tuple[Any, Anchor, int]]) -> list[bool | None]:
        """Return the answer of `RecordLookup.holds` for each."""

    def readable_from_each(self, ranges: Iterable[Any]) -> list[int]:
        """Return the answer of `StoredRecordLookup.readable_from` for each."""


@dataclass
class LogIdentity:
    """Identity of the logs of one topic. Without a witness nothing is checked or refused."""

    scope: WindowScope
    witness: RecordLookup | None = None
    _answers: dict[tuple[str, Anchor], bool | None] = field(default_factory=dict)

    def replaced(
        self,
        upto: Mapping[str, int],
        anchors: Anchors,
        known: Mapping[str, Ends],
        *,
        shorter: bool = False,
    ) -> list[str]:
        """Return the partitions, in key order, whose log was provably recreated: all those of a
        store that no longer has the anchor nearest to its position.

        Anchors below `upto` count. Logs that end before `upto` are checked only with `shorter`."""
        if self.witness is None:
            return []
        stores: list[tuple[list[str], str]] = []
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
            if best is not None:
                stores.append((keys, best))
        self._ask_together({best: (anchors[best], upto[best]) for _, best in stores})
        replaced_keys: list[str] = []
        for keys, best in stores:
            if self._holds(best, anchors[best], upto[best]) is False:
                replaced_keys += keys
        return self.scope.space.ordered(replaced_keys)

    def refuse(self, keys: list[str], anchors: Anchors, *, seen: str = "") -> None:
        """Raise `LogReplaced` if `keys` is not empty. `seen`: id of the last known window."""
        if keys:
            raise LogReplaced(_message(self.scope, keys, anchors, seen))

    def recognise(self, plan: WindowPlan, known: Mapping[str, Ends]) -> None:
        """Raise `LogReplaced` unless the logs of `plan` are those it was made for."""
        self.refuse(self.foreign(plan, known), plan.before, seen=plan.known_before)

    def foreign(self, plan: WindowPlan, known: Mapping[str, Ends]) -> list[str]:
        """Return the partitions of `plan` whose log is not the one it was made for. Stores of which
        it reads nothing are skipped: later plans are compared with the same anchors."""
        read, ends = plan.read_upto, plan.ends
        furthest: dict[str, int] = {}
        for keys in self._stores(ends):
            if any(key in read for key in keys):
                # A record of any partition below the furthest end identifies the store's log.
                furthest |= dict.fromkeys(keys, max(ends[key] for key in keys))
        return self.replaced(furthest, plan.before, known, shorter=True)

    def forget(self) -> None:
        """Forget cached answers. Only a check after a read proves that it read the right log."""
        self._answers.clear()

    def taken(
        self, ranges: Mapping[str, Range], anchors: Anchors, known: Mapping[str, Ends]
    ) -> dict[str, Anchor]:
        """Return `anchors`, with a new one for each store that has none in reach: a record shortly
        before the ranges, else their first one."""
        result = dict(anchors)
        if self.witness is None:
            return result
        for keys in self._stores(ranges):
            here = [key for key in keys if key in known]
            # An anchor beyond the ranges may be of the log before a reset to them.
            if any(
                key in anchors and known[key].min_offset <= anchors[key].offset < ranges[key][1]
                for key in here
            ):
                continue
            for range_ in self._places({key: ranges[key] for key in here}, known):
                try:
                    anchor = self.witness.first_record(range_)
                except DataLoss:
                    continue  # retention removed the place since the ends were looked up
                if anchor is not None:
                    result[range_.partition.key] = anchor
                    self._answers[(range_.partition.key, anchor)] = True
                    break
        return result

    def first_readable(
        self, ranges: Mapping[str, Range], anchors: Anchors, known: Mapping[str, Ends]
    ) -> dict[str, int]:
        """Return the offset where data begins, by partition, for stores whose ranges begin with
        index entries without data.

        Stores whose anchor before the ranges was found are not checked: retention removes data from
        the beginning, so everything after an existing record exists."""
        witness, space = self.witness, self.scope.space
        asked: list[tuple[list[str], Any, int]] = []
        if witness is None or not isinstance(witness, StoredRecordLookup):
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
            asked.append((read, space.ranges(self.scope.topic, read[0], start, end), start))
        places = [range_ for _, range_, _ in asked]
        if isinstance(witness, ManyRecordLookup):
            found = witness.readable_from_each(places)
        else:
            found = [witness.readable_from(place) for place in places]
        begins: dict[str, int] = {}
        for (read, _, start), readable in zip(asked, found, strict=True):
            if readable > start:
                begins |= dict.fromkeys(read, readable)
        return begins

    def begin(
        self, ranges: Mapping[str, Range], known: Mapping[str, Ends]
    ) -> tuple[dict[str, Anchor], dict[str, int]]:
        """Return new anchors for ranges without any, and the offsets of `first_readable`."""
        anchors = self.taken(ranges, {}, known)
        return anchors, self.first_readable(ranges, anchors, known)

    def _places(self, ranges: Mapping[str, Range], ends: Mapping[str, Ends]) -> Iterator[Any]:
        """Yield ranges that may have a record to anchor a store's log, the best ones first."""
        space, topic = self.scope.space, self.scope.topic
        latest = sorted(ranges, key=lambda key: -ranges[key][0])
        for entries, keys in zip(_LOOKS_BACK, (latest[:1], latest), strict=True):
            for key in keys:
                start = ranges[key][0]
                low = max(ends[key].min_offset, start - entries * space.step)
                if low < start <= reach_of(ends[key]):
                    yield space.ranges(topic, key, low, start)
        for name, (start, end) in ranges.items():
            low = max(start, ends[name].min_offset)
            if low < end <= ends[name].max_offset:
                yield space.ranges(topic, name, low, end)
        # A partition may have no record in its own range, but one in that of another partition.
        first = min((start for start, _ in ranges.values()), default=0)
        last = max((end for _, end in ranges.values()), default=0)
        for name, range_ in ranges.items():
            low = max(first, ends[name].min_offset)
            if low < last <= ends[name].max_offset and range_ != (low, last):
                yield space.ranges(topic, name, low, last)

    def _holds(self, key: str, anchor: Anchor, upto: int) -> bool | None:
        question = (key, anchor)
        if question not in self._answers and self.witness is not None:
            partition = self.scope.space.partition(self.scope.topic, key)
            self._answers[question] = self.witness.holds(partition, anchor, upto)
        return self._answers[question]

    def _ask_together(self, questions: Mapping[str, tuple[Anchor, int]]) -> None:
        """Cache the answers for anchors by partition, where the witness can ask at once."""
        new = [
            (key, anchor, upto)
            for key, (anchor, upto) in questions.items()
            if (key, anchor) not in self._answers
        ]
        if len(new) < 2 or not isinstance(self.witness, ManyRecordLookup):
            return
        space, topic = self.scope.space, self.scope.topic
        asked = [(space.partition(topic, key), anchor, upto) for key, anchor, upto in new]
        for (key, anchor, _), answer in zip(new, self.witness.holds_each(asked), strict=True):
            self._answers[(key, anchor)] = answer

    def _stores(self, keys: Mapping[str, object]) -> list[list[str]]:
        return list(self.scope.space.logs(keys).values())


def new_epoch_advice(scope: WindowScope, seen: str = "") -> str:
    """Return advice for a group whose topic was recreated; `seen` is the id of the last window
    known to the run that detected it."""
    task = f"epoch='<name>', epoch_seen='{seen}'" if seen else "epoch='<name>'"
    return (
        f"to read a recreated topic from its beginning, as a new epoch of the group: "
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
        f"topic {scope.topic!r} has other records than those that were read; it was recreated, or "
        f"a broker's disk was replaced or restored:{lines}\n{new_epoch_advice(scope, seen)}; in "
        f"cursor mode on_offset_regression='reset_to_end' (skip what is there) or 'reset_to_start' "
        f"(read all of it, records may come twice) continues as well"
    )

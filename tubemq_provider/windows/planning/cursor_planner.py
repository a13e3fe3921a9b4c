"""Planner of the next cursor window: from the position to the stable ends, within limits.

Decides over one look-up of ends. `Policies` determine what happens when partitions appear, vanish,
lose records to retention or regress, and the plan records every such decision. This module must
not do I/O itself and never accesses stores or sinks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.cursor import EarlierEpochs, Position, epoch_command
from tubemq_provider.windows.errors import NoInitialPosition, WindowNotReady
from tubemq_provider.windows.plan import (
    WindowKind,
    WindowPlan,
    WindowScope,
    cursor_window_id,
    cursor_window_of,
)
from tubemq_provider.windows.planning.boundary_book import boundary_command, brokers_of
from tubemq_provider.windows.planning.log_identity import LogIdentity, RecordLookup
from tubemq_provider.windows.planning.read_limits import (
    ASSUMED_PER_S,
    Budget,
    Throughput,
    entries_by_log,
)
from tubemq_provider.windows.planning.retention import (
    EndsLookup,
    away_of,
    by_key,
    joined_behind_dead,
    lost_starts,
    truncated,
)
from tubemq_provider.windows.policies import (
    EARLIEST,
    STABLE,
    NewPartitionPosition,
    Policies,
    RegressionPolicy,
    end_word,
    parse_offsets,
)
from tubemq_provider.windows.spaces import Ends, OffsetSpace, reach_of

__all__ = ["CursorPlanner"]

Range = tuple[int, int]


@dataclass
class CursorPlanner:
    """Planner of cursor windows of one scope. Create one per run: it looks ends up once, until
    `forget_ends`.

    - `ends` returns *stable* ends (a broker crash can take back the end in memory).
    - `initial_position`: first position of a group without any progress: ``"earliest"``,
      ``"stable"``, or ``{"<topic>": {"1:0": 2800, "1:1": "earliest"}}`` for all partitions. There
      is no default.
    - `max_records` limits a window, in index entries over all stores: an upper bound on records.
    - `byte_budget` and `max_duration` limit it by estimates, see `read_limits`; the lowest counts.
    - `witness` checks that the logs are those of the position; without one only logs that end
      before the position are detected.
    - `retired` returns names of brokers that will not come back; called only if one is away.
    - `epoch_seen`: id of the last window that was known when the user decided on this epoch.
    - `serialised`: runs of this group never overlap. ``stable`` requires it: two concurrent first
      runs would resolve it differently and lose the records between.
    """

    scope: WindowScope
    ends: EndsLookup
    initial_position: str | Mapping[str, Any] | None = None
    max_records: int | None = None
    policies: Policies = field(default_factory=Policies)
    serialised: bool = True
    byte_budget: Budget | None = None
    max_duration: timedelta | None = None
    witness: RecordLookup | None = None
    retired: Callable[[], Collection[object]] = frozenset
    epoch_seen: str = ""
    pace: Throughput | None = field(default=None, init=False)
    _begin: str | Mapping[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        problems = []
        self.initial_position = end_word(self.initial_position)
        if self.max_duration is not None and self.max_duration <= timedelta(0):
            problems.append(f"max_duration {self.max_duration} is not positive")
        if self.max_records is not None and self.max_records < 1:
            problems.append(f"max_records {self.max_records} is not >= 1")
        if isinstance(self.initial_position, str):
            if self.initial_position not in {EARLIEST, STABLE}:
                problems.append(
                    f"initial_position {self.initial_position!r} is neither earliest nor stable"
                )
        elif self.initial_position is not None:
            parse_offsets(
                self.initial_position,
                self.scope.topic,
                subject="initial_position",
                space=self.scope.space,
            )
        if not self.serialised and STABLE in self._initial_words():
            problems.append(
                "initial_position 'stable' needs serialised runs (max_active_tis_per_dag=1)"
            )
        if problems:
            raise ConfigError(problems, subject="cursor window")

    @property
    def kind(self) -> WindowKind:
        """Kind of the planned windows."""
        return WindowKind.CURSOR

    def initial(self) -> Position:
        """Return the first position, with seq 0, of a group without progress.

        Raises `NoInitialPosition` if none was given."""
        requested = self.initial_position if self._begin is None else self._begin
        if requested is None:
            raise NoInitialPosition(
                f"group {self.scope.group!r} has no progress on topic {self.scope.topic!r}; set "
                f"initial_position to 'earliest', 'stable' or offsets for its first window"
            )
        self._refuse_away()
        if isinstance(requested, str):
            offsets: dict[str, int | str] = dict.fromkeys(self._known, requested)
        else:
            offsets = parse_offsets(
                requested, self.scope.topic, subject="initial_position", space=self.scope.space
            )
        self._check_initial(offsets)
        return Position(0, {key: self._resolve(key, offset) for key, offset in offsets.items()})

    def plan(self, position: Position) -> WindowPlan | None:
        """Return the plan after `position`, or None if there is nothing to read and nothing to fix.

        Raises `DataLoss` or `LogTruncated` if the policies are to fail.
        """
        if position.seq == 0:
            # The ends may be those of the first position, some time ago: anchors need new ones.
            self.forget_ends()
        starts, resets, joined = self._starts(position)
        absent = tuple(key for key in starts if key not in self._known)
        full = {
            key: (start, max(start, self._known[key].max_offset) if key in self._known else start)
            for key, start in starts.items()
        }
        anchors = {key: anchor for key, anchor in position.last.items() if key not in resets}
        data = self._life.first_readable(full, anchors, self._known)
        full |= joined_behind_dead(self.scope.space, full, joined, data, unknown=resets)
        gaps = lost_starts(self.scope.topic, full, self._known, self.policies.gap_policy, data)
        ranges = _capped(self.scope.space, full, gaps, self._cap(full, gaps), turn=position.seq)
        # Only a window records a reset, or the end at which a partition joined.
        fixes = bool(resets) or (
            bool(joined) and self.policies.new_partition_position is NewPartitionPosition.STABLE
        )
        if not fixes and all(start == end for start, end in ranges.values()):
            return None
        return WindowPlan.cursor(
            self.scope,
            position.seq + 1,
            ranges,
            before=self._life.taken(ranges, anchors, self._known),
            gaps={key: lost for key, lost in _clipped(gaps, ranges).items() if lost},
            resets=resets,
            joined=joined,
            absent=absent,
            has_more=ranges != full,
        )

    def anchored(self, position: Position) -> Position:
        """Return `position` with anchors for logs that had none: otherwise a topic recreated before
        the next window would not be detected."""
        here = {
            key: (offset, offset) for key, offset in position.next.items() if key in self._known
        }
        return replace(position, last=self._life.taken(here, position.last, self._known))

    def compare(self, position: Position) -> None:
        """Raise `LogRegression` unless the logs are those of `position`, or a policy resets it."""
        self._regressed(position)

    def begin_behind(self, position: Position) -> dict[str, int]:
        """Return the first offsets of an epoch after `position`: the beginning of a log that was
        recreated, else the position, but not beyond the log's end."""
        replaced = self._life.replaced(position.next, position.last, self._known, shorter=True)
        begin = dict(position.next)
        for key in begin.keys() & self._known.keys():
            ends = self._known[key]
            begin[key] = ends.min_offset if key in replaced else min(begin[key], reach_of(ends))
        return begin

    def readable(self, plan: WindowPlan) -> bool:
        """Return True if an earlier plan may still be read whole, False if it must be replaced.

        If its logs were truncated or recreated and `on_offset_regression` is a reset, it is
        replaced; otherwise `LogRegression` is raised. It is also replaced if a broker is away: its
        partitions wait, and the others are read.
        """
        read = {key for key, (start, end) in plan.ranges.items() if start < end}
        if not read <= self._known.keys():
            self.forget_ends()  # another run may have planned with a partition added since
        if not read <= self._known.keys():
            return False
        if self.policies.on_offset_regression is RegressionPolicy.FAIL:
            if truncated(self.scope, plan.ends, self._known):
                self.forget_ends()  # another run may have planned with later ends
            if error := truncated(self.scope, plan.ends, self._known, seen=plan.known_before):
                raise error
            self.recognise(plan)
            return True
        if self._life.replaced(plan.ends, plan.before, self._known):
            return False
        ends = self._known
        return all(
            end <= reach_of(ends[key]) for key, (_, end) in plan.ranges.items() if key in ends
        )

    def claimable(self, claim: WindowPlan) -> bool:
        """Return True if a claim may be read now.

        False if a broker that it needs is away, or if its log has regressed and the policy is a
        reset: the next window, which records the reset, must be planned first. Raises
        `LogRegression` if the policy is to fail.
        """
        ends = claim.read_upto
        if self.waits_for(claim):
            return False
        if truncated(self.scope, ends, self._known):
            self.forget_ends()  # another run may have planned with later ends
        error = truncated(self.scope, ends, self._known, seen=claim.known_before)
        if self.policies.on_offset_regression is not RegressionPolicy.FAIL:
            return error is None and not self._life.foreign(claim, self._known)
        if error is not None:
            raise error
        self.recognise(claim)
        return True

    def waits_for(self, claim: WindowPlan) -> list[str]:
        """Return the partitions that a claim has to read and no broker offers now."""
        return self.scope.space.ordered(claim.read_upto.keys() - self._known.keys())

    def given_up(self, claim: WindowPlan, begun_anew: Collection[str]) -> set[str]:
        """Return the partitions of a claim that can never be read: their broker is retired, or
        their log was recreated and a later window restarted it with a reset (`begun_anew`)."""
        foreign = self._life.foreign(claim, self._known) if begun_anew else ()
        gone = {key for key in foreign if key in begun_anew and key in claim.read_upto}
        return gone | self._retired(self.waits_for(claim))

    def unclaimable_partitions(self, claim: WindowPlan, behind: Position) -> list[str]:
        """Return the partitions of a claim that is not `claimable` whose log is gone, and which the
        next window would not reset: the present log is that of the position `behind`."""
        if self.policies.on_offset_regression is RegressionPolicy.FAIL:
            return []
        shorter = {
            key
            for key, end in claim.read_upto.items()
            if key in self._known and reach_of(self._known[key]) < end
        }
        lost = shorter | set(self._life.foreign(claim, self._known))
        return self.scope.space.ordered(lost - self._regressed(behind)) if lost else []

    def recognise(self, plan: WindowPlan, *, again: bool = False) -> None:
        """Raise `LogReplaced` unless the logs are still those that the plan was made for.

        `again`: ask the brokers, use no cached answer. Records that were read before a successful
        check come from the right log."""
        if again:
            self._life.forget()
        if self.witness is not None:
            self._life.recognise(plan, self._known)

    def begin_epoch(self, earlier: EarlierEpochs) -> None:
        """Begin the scope's epoch at the beginning of its logs, or where a user has set it.

        `initial_position` applies only to the first epoch of a group."""
        begin = end_word(earlier.begin) if earlier.begin is not None else EARLIEST
        self._begin = begin if isinstance(begin, str) else {self.scope.topic: dict(begin)}
        self.epoch_seen = earlier.seen or self.epoch_seen

    @property
    def decided_after(self) -> tuple[int, str] | None:
        """Number and scope hash of the last window known when the user decided on this epoch. None
        if no epoch begins, or not at the beginning of its logs."""
        return cursor_window_of(self.epoch_seen) if self._begin == EARLIEST else None

    def absent(self, position: Position) -> dict[str, str]:
        """Return partitions that are left to later windows because no broker offers them now, with
        the reasons. Empty if no ends were looked up; without partitions of retired brokers."""
        if "_looked" not in self.__dict__:
            return {}
        unreachable = away_of(self._looked)
        keys = self.scope.space.ordered({*position.next, *unreachable} - self._known.keys())
        retired = self._retired(keys)
        return {key: unreachable.get(key, "no broker has it") for key in keys if key not in retired}

    def forget_ends(self) -> None:
        """Forget the looked-up ends; the next use looks them up again."""
        for name in ("_looked", "_known"):
            self.__dict__.pop(name, None)

    def observe(self, event: Mapping[str, Any] | None) -> None:
        """Take the throughput of windows from the newest commit event."""
        self.pace = Throughput.of_event(event)

    def _cap(self, full: Mapping[str, Range], gaps: Mapping[str, tuple[Range, ...]]) -> int | None:
        """Return the lowest of all limits, in index entries."""
        caps = [self.max_records]
        ranges = _readable(full, gaps)
        if self.max_duration is not None:
            pace = self.pace or Throughput(ASSUMED_PER_S, 1000)
            caps.append(pace.entries_in(self.max_duration))
        if self.byte_budget is not None and entries_by_log(self.scope.space, ranges):
            caps.append(self.byte_budget(ranges))
        return min((cap for cap in caps if cap is not None), default=None)

    @cached_property
    def _known(self) -> dict[str, Ends]:
        return by_key(self.scope.topic, self.scope.space, self._looked)

    def _logs_of(self, keys: Collection[str]) -> dict[str, Ends]:
        """Return the ends of the keys' logs, by key in key order, as far as a broker offers them.

        The ends of any partition of a log will do."""
        log_of = self.scope.space.log_of
        logs = {log_of(key): ends for key, ends in self._known.items()}
        ordered = self.scope.space.ordered(keys)
        return {key: logs[log_of(key)] for key in ordered if log_of(key) in logs}

    @cached_property
    def _looked(self) -> Mapping[Any, Ends]:
        return self.ends()

    def _retired(self, keys: Collection[str]) -> set[str]:
        brokers = {str(broker) for broker in (self.retired() if keys else ())}
        return {key for key in keys if self.scope.space.peer_of(key) in brokers}

    def _refuse_away(self) -> None:
        """Raise `WindowNotReady` for a first window while a broker is away: its partitions would
        join later at their beginning, regardless of `initial_position`."""
        unreachable = away_of(self._looked)
        missing = [key for key in unreachable if key not in self._retired(unreachable)]
        if not missing:
            return
        lines = "".join(f"\n  - partition {key}: {unreachable[key]}" for key in missing)
        brokers = brokers_of(missing, self.scope.space)
        raise WindowNotReady(
            f"the first window of group {self.scope.group!r} needs every broker of topic "
            f"{self.scope.topic!r}:{lines}\nit waits for them; one that will never come back is "
            f"given up with {boundary_command('retire', self.scope, brokers)}"
        )

    @cached_property
    def _life(self) -> LogIdentity:
        return LogIdentity(self.scope, self.witness)

    def _initial_words(self) -> set[object]:
        position = self.initial_position
        if isinstance(position, Mapping):
            return {end_word(offset) for offset in position[self.scope.topic].values()}
        return {position}

    def _check_initial(self, offsets: Mapping[str, int | str]) -> None:
        problems = [f"partition {key} is not named" for key in self._known if key not in offsets]
        for key, offset in offsets.items():
            if key not in self._known:
                problems.append(f"partition {key}: no broker offers it")
            elif isinstance(offset, int) and offset > self._known[key].max_offset:
                problems.append(
                    f"partition {key}: {offset} is beyond the end {self._known[key].max_offset}"
                )
        if not problems:
            return
        if self._begin is None:
            raise ConfigError(problems, subject="initial_position")
        begin = json.dumps({key: offsets.get(key, EARLIEST) for key in self._known})
        problems.append(
            f"begin another one that names those there are: {epoch_command(self.scope)} --begin "
            f"'{begin}'"
        )
        raise ConfigError(problems, subject=f"beginning of epoch {self.scope.epoch!r}")

    def _resolve(self, key: str, offset: int | str) -> int:
        if offset == EARLIEST:
            return self._known[key].min_offset
        if offset == STABLE:
            return self._known[key].max_offset
        return int(offset)

    def _starts(self, position: Position) -> tuple[dict[str, int], dict[str, int], tuple[str, ...]]:
        """Return range starts, positions that a reset replaced, and partitions that join."""
        starts = dict(position.next)
        resets: dict[str, int] = {}
        regressed = self._regressed(position)
        joined = tuple(key for key in self._known if key not in position.next)
        for key in joined:
            starts[key] = self._resolve(key, self.policies.new_partition_position)
        to_end = self.policies.on_offset_regression is RegressionPolicy.RESET_TO_END
        for key, log in self._logs_of(regressed).items():
            starts[key] = log.max_offset if to_end else log.min_offset
            resets[key] = position.next[key]
        return starts, resets, joined

    def _regressed(self, position: Position) -> set[str]:
        """Return partitions whose log was truncated or recreated since the position.

        Includes partitions that no broker offers now, if other partitions show that their log was
        recreated. Raises `LogRegression` if the policy is to fail."""
        fails = self.policies.on_offset_regression is RegressionPolicy.FAIL
        last_window = cursor_window_id(position.seq, self.scope.scope_hash)
        error = truncated(self.scope, position.next, self._known, seen=last_window)
        if error and fails:
            raise error
        # Even if the ends have not moved: a recreated log may be exactly as long.
        replaced = self._life.replaced(position.next, position.last, self._known)
        if fails:
            self._life.refuse(replaced, position.last, seen=last_window)
        logs = self._logs_of(position.next)
        return {key for key in logs if reach_of(logs[key]) < position.next[key]} | set(replaced)


def _capped(
    space: OffsetSpace,
    full: Mapping[str, Range],
    gaps: Mapping[str, tuple[Range, ...]],
    max_records: int | None,
    *,
    turn: int,
) -> dict[str, Range]:
    """Return `full` with ends moved down so that at most `max_records` index entries are read.

    Partitions of a store share its log, so entries are counted per store: each store gets a share
    of the limit in proportion to its entries, and all its partitions end at the same offset.
    """
    readable = _readable(full, gaps)
    available = entries_by_log(space, readable)
    if max_records is None or sum(available.values()) <= max_records:
        return dict(full)
    shares = _shares(available, max_records, turn)
    lowest: dict[str, int] = {}
    for key, (start, end) in readable.items():
        if start < end:
            log = space.log_of(key)
            lowest[log] = min(lowest.get(log, start), start)
    capped = {}
    for key, (start, end) in full.items():
        name = space.log_of(key)
        if name in lowest:
            limit = lowest[name] + shares[name] * space.step
            end = min(end, max(limit, readable[key][0])) if shares[name] else start  # noqa: PLW2901
        capped[key] = (start, end)
    return capped


def _readable(full: Mapping[str, Range], gaps: Mapping[str, tuple[Range, ...]]) -> dict[str, Range]:
    """Return `full` without the offsets that retention has removed at the start of each range."""
    return {
        key: (gaps[key][0][1] if key in gaps else start, end) for key, (start, end) in full.items()
    }


def _shares(available: Mapping[str, int], cap: int, turn: int) -> dict[str, int]:
    """Split `cap` in proportion to `available`, with at least one entry each while it lasts.

    A cap below the number of stores rotates over them with `turn`, so that none starves.
    """
    names = sorted(available)
    first = turn % len(names)
    order = names[first:] + names[:first]
    shares = {name: int(index < cap) for index, name in enumerate(order)}
    left = cap - sum(shares.values())
    rest = sum(available.values()) - len(names)
    for name in order:
        if rest > 0 and left > 0:
            shares[name] += left * (available[name] - 1) // rest
    spare = cap - sum(shares.values())
    for name in order:
        more = max(0, min(spare, available[name] - shares[name]))
        shares[name] += more
        spare -= more
    return shares


def _clipped(
    gaps: Mapping[str, tuple[Range, ...]], ranges: Mapping[str, Range]
) -> dict[str, tuple[Range, ...]]:
    """Clip the gaps to `ranges`."""
    return {
        key: tuple((low, min(high, ranges[key][1])) for low, high in lost if low < ranges[key][1])
        for key, lost in gaps.items()
    }

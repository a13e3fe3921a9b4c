"""Windows of time over recreated topics: no record of any life twice, none of the present lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.provider.windows import explore
from tests.provider.windows.changing_worlds import EPOCH, HOUR, OfHours
from tests.provider.windows.exploration import ViolationError
from tests.provider.windows.lives_of_time import (
    LostBoundaries,
    LostInAnyLife,
    OrderedLives,
    TimeLives,
)
from tests.provider.windows.new_lives import LivingEngine, LivingLog
from tests.provider.windows.world import ENTRY, MemoryBook, MemorySink, World
from tubemq_client.errors import LogReplaced
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.log_identity import LogIdentity
from tubemq_provider.windows.planning.published import PublishedWindows
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.run.kinds import window_run


def test_no_history_of_time_and_lives_loses_or_repeats_a_record() -> None:
    for seed in range(110):
        TimeLives(seed).play()


def test_no_history_of_wiped_cursors_and_ended_epochs_loses_or_repeats_a_record() -> None:
    for seed in range(200):
        OrderedLives(seed).play()


def test_no_history_that_loses_its_boundaries_loses_or_repeats_a_record() -> None:
    losses = advised = 0
    # The last ones: an operator is asked; a boundary comes back inside a published window.
    for seed in (*range(118), 100_313, 100_969):
        history = LostBoundaries(seed)
        history.play()
        losses, advised = losses + history.losses, advised + history.advised
    assert losses > 100
    assert advised  # some come back in contradiction, and the advice leads on


def test_no_history_that_loses_its_boundaries_mixes_lives() -> None:
    for seed in (*range(40), 221, 438, 556, 1947, 100_071):
        LostInAnyLife(seed).play()


def test_a_window_without_records_names_partitions_that_join_later() -> None:
    LostBoundaries(1661).play()


def test_a_window_knows_its_log_by_the_entries_of_partitions_that_share_it() -> None:
    """Nothing was in its own ranges when it was planned; then the topic was recreated."""
    explore.KINDS["lives of time"](5004769)


def test_a_partition_may_join_while_two_runs_plan_one_window() -> None:
    """One of them knows it and reads nothing of it; the other has published already."""
    explore.KINDS["lives of time"](5_016_984)


class Late:
    """Hours end at the given offsets."""

    name, exact = "late", False

    def __init__(self, hours: Mapping[int, Mapping[str, int]]) -> None:
        self.hours = hours

    def offsets_at(self, instant: Any) -> Mapping[str, int]:
        return self.hours[(instant - EPOCH) // HOUR]


@pytest.mark.parametrize("first_hour_ends_at", [0, 4], ids=["nothing yet", "records before"])
def test_a_log_is_known_though_a_partition_that_shares_it_is_empty(
    first_hour_ends_at: int,
) -> None:
    """The resolver puts the empty one at the log's end, so it stands behind all others."""
    log = LivingLog(partitions=["1:0", "1:1"])
    sink = MemorySink(boundary_book=MemoryBook())
    world = World(log=log, sink=sink)
    engine = LivingEngine(log, sink)

    def window(first: int) -> Any:
        planner = TimePlanner(
            world.scope,
            EPOCH + first * HOUR,
            EPOCH + (first + 1) * HOUR,
            Late({0: dict.fromkeys(log.partitions, 0), 1: ends, 2: {"1:0": 252, "1:1": 252}}),
            log.ends,
            sink.boundaries,
            witness=log,
        )
        store = MemoryOffsetStore(world.journal, task=f"task-{first}")
        return window_run(planner, store, sink, engine, attempt="a").run()

    log.append("1:1", 6)
    ends = {"1:0": 6 * ENTRY, "1:1": first_hour_ends_at * ENTRY}
    assert window(0).total == first_hour_ends_at
    log.begin_anew(*log.entries)
    log.append("1:1", 9)
    with pytest.raises(LogReplaced, match="offsets epoch"):
        window(1)


def test_a_plan_without_records_of_its_own_knows_the_log_by_those_of_others() -> None:
    """Its partitions had nothing yet; what comes there in another life is not theirs."""
    log = LivingLog(partitions=["1:0", "1:1"])
    sink = MemorySink(boundary_book=MemoryBook())
    world = World(log=log, sink=sink)
    log.append("1:1", 4)
    planner = TimePlanner(
        world.scope,
        EPOCH,
        EPOCH + HOUR,
        Late({0: {"1:0": 0, "1:1": 0}, 1: {"1:0": 4 * ENTRY, "1:1": 0}}),
        log.ends,
        sink.boundaries,
        witness=log,
    )
    store = MemoryOffsetStore(world.journal)
    steps = window_run(planner, store, sink, LivingEngine(log, sink), attempt="a").steps()
    while next(steps) != ("plan", "end"):
        pass
    log.begin_anew(*log.entries)
    log.append("1:0", 9)
    with pytest.raises(LogReplaced, match="offsets epoch"):
        list(steps)


# -- seeded mistakes ----------------------------------------------------------------------------


class NeverCompares(OfHours):
    """Mistake: a boundary is fixed behind others whatever the logs are."""

    def _refuse_other_logs(self, book: ScopeBook) -> None:
        """Nothing compared."""


class AsksOne(OfHours):
    """Mistake: only the partition that is furthest tells a log, as it was once."""

    @property
    def _life(self) -> LogIdentity:  # type: ignore[override]
        return _OneAsked(self.scope, self.witness)


class _OneAsked(LogIdentity):
    def _places(self, ranges: Any, known: Any) -> Iterator[Any]:
        key = max(ranges, key=lambda key: ranges[key][0], default=None)
        start = ranges[key][0] if key else 0
        if key and 0 < start <= known[key].max_offset:
            yield self.scope.space.ranges(self.scope.topic, key, 0, start)


class AsksNoWindow(OfHours):
    """Mistake: what published windows say of boundaries is not asked."""

    def compare(self, published: PublishedWindows) -> None:
        """Nothing known."""


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(lambda seed: LostBoundaries(seed, AsksNoWindow).play(), id="asks no window"),
        pytest.param(lambda seed: TimeLives(seed, witnessed=False).play(), id="nobody asks"),
        pytest.param(lambda seed: TimeLives(seed, NeverCompares).play(), id="never compares"),
        pytest.param(lambda seed: TimeLives(seed, AsksOne).play(), id="asks one partition"),
    ],
)
def test_planted_mistakes_of_lives_and_times_are_found(play: Callable[[int], None]) -> None:
    for seed in range(2000):
        try:
            play(seed)
        except ViolationError:
            return
    pytest.fail("2000 random histories did not find the mistake")

"""Windows of time tile what arrived, whatever resolver, samples and order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provider.windows.clocks import (
    NOON_MS,
    PARTITIONS,
    Shelved,
    at,
    timeline_of,
)
from tests.provider.windows.world import ENTRY, TOPIC, MemoryBook, MemorySink, World
from tubemq_client.errors import DataLoss
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.sources.tubemq.message_time_resolver import MessageTimeResolver
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.planning.instants import TimeResolver
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.time_resolvers.samples import Sample, instant_of
from tubemq_provider.windows.time_resolvers.timeline import Timeline, TimelineResolver

# Any times, any samples -------------------------------------------------------------------------

Arrivals = st.lists(st.tuples(st.integers(0, 600), st.sampled_from(PARTITIONS)), max_size=30)
Cuts = st.lists(st.integers(0, 600), min_size=2, max_size=8, unique=True)


def run_windows(
    world: World, resolver: TimeResolver, cuts: list[int], order: list[int], **policies: str
) -> None:
    for number in order:
        start, end = cuts[number], cuts[number + 1]
        planner = TimePlanner(
            world.scope,
            instant_of(start),
            instant_of(end),
            resolver,
            world.log.ends,
            world.sink.boundaries,
            Policies.of(**policies),
        )
        store = MemoryOffsetStore(world.journal, task=str(number))
        window_run(planner, store, world.sink, world.engine, attempt="1").run()


@settings(deadline=None)
@given(Arrivals, st.sets(st.integers(1, 599), max_size=20), Cuts, st.randoms())
def test_windows_over_any_samples_tile_what_arrived(arrivals, sampled, cuts, random) -> None:  # type: ignore[no-untyped-def]
    world = World(sink=MemorySink(boundary_book=MemoryBook()))
    arrivals, cuts = sorted(arrivals, key=lambda item: item[0]), sorted(cuts)
    timeline = Timeline(TOPIC)
    arrived: dict[tuple[str, int], int] = {}
    waiting = list(arrivals)
    for moment in sorted({0, *sampled, 600}):
        # A sample may see what arrives while it is taken; it always sees what came before.
        while waiting and waiting[0][0] < moment + random.randint(0, 2):
            time, partition = waiting.pop(0)
            before = set(world.log.all_records())
            world.log.append(partition.key)
            (new,) = set(world.log.all_records()) - before
            arrived[new] = time
        found = world.log.ends()
        ends = {f"{p.broker_id}/{p.store_id}": end.max_offset for p, end in found.items()}
        timeline = timeline.with_sample(Sample(moment, ends))
    resolver = TimelineResolver(TOPIC, timeline.to_document, lambda: PARTITIONS)
    order = list(range(len(cuts) - 1))
    random.shuffle(order)
    run_windows(world, resolver, cuts, order)
    assert set(world.sink.records().values()) <= {1}
    for record, time in arrived.items():
        if cuts[0] <= time < cuts[-1] and record not in world.sink.records():
            # Only what the sample of the first boundary saw already: it lies below that window.
            assert record[1] < resolver.offsets_at(instant_of(cuts[0]))[record[0]]
    for instant in cuts:
        offsets = resolver.offsets_at(instant_of(instant))
        assert all(offsets[key] > offset for (key, offset), t in arrived.items() if t < instant)
    found_all = [resolver.offsets_at(instant_of(instant))["1:0"] for instant in cuts]
    assert found_all == sorted(found_all)


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 10), st.randoms())
def test_windows_over_any_message_times_tile_the_log(minutes, look_ahead, random) -> None:  # type: ignore[no-untyped-def]
    world = World(sink=MemorySink(boundary_book=MemoryBook()))
    world.log.partitions = ["1:0", "1:1"]
    log = Shelved()
    for minute in minutes:
        partition = random.choice(PARTITIONS[:2])
        log.put(partition, minute=f"2026112112{minute:02d}")
        world.log.append(partition.key)
    resolver = MessageTimeResolver(
        TOPIC, log.read, world.log.ends, lambda: at(90), look_ahead=look_ahead
    )
    cuts = [NOON_MS + minute * 60_000 for minute in (0, 5, 6, 17, 31)]
    order = list(range(len(cuts) - 1))
    random.shuffle(order)
    run_windows(world, resolver, cuts, order)
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_a_broker_that_new_samples_knew_late_holds_no_boundary_for_ever() -> None:
    """State is wiped, and samples begin again while the second broker is away."""
    world = World(sink=MemorySink(boundary_book=MemoryBook()))
    for key in ("1:0", "2:0"):
        world.log.append(key, 3)
    cuts = [NOON_MS + minute * 60_000 for minute in (0, 10, 20, 30)]
    before = (Sample(cuts[0], {"1/0": 0, "2/0": 0}), Sample(cuts[1], {"1/0": 28, "2/0": 28}))
    run_windows(world, timeline_of(*before), cuts, [0])
    samples = [Sample(cuts[1] + 1, {"1/0": 28}), Sample(cuts[2], {"1/0": 56})]
    with pytest.raises(WindowNotReady, match="2:0"):
        run_windows(world, timeline_of(*samples), cuts, [1])
    for at_ms, end in ((cuts[2] + 1, 56), (cuts[3], 84)):
        samples.append(Sample(at_ms, {"1/0": end, "2/0": end}))
    run_windows(world, timeline_of(*samples), cuts, [2, 1])
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


class TestMessageTimeBehindRetention:
    """A store of ten minutes, a record in each; retention takes the first ones of them."""

    CUTS = tuple(NOON_MS + minute * 60_000 for minute in (0, 5, 10))

    def world(self) -> tuple[World, TimeResolver]:
        world, log = World(sink=MemorySink(boundary_book=MemoryBook())), Shelved()
        world.log.partitions = ["1:0"]
        for minute in range(10):
            log.put(PARTITIONS[0], minute=f"20261121120{minute}")
            world.log.append("1:0")
        return world, MessageTimeResolver(TOPIC, log.read, world.log.ends, lambda: at(90))

    @pytest.mark.parametrize("gone", [7, 10])
    def test_a_first_window_of_which_something_is_gone_says_so(self, gone: int) -> None:
        """Also if all is gone: nothing tells that it was of other minutes."""
        world, resolver = self.world()
        world.log.lost[1, 0] = gone
        for number in (0, 1):
            with pytest.raises(DataLoss, match=f"somewhere in .0, {gone * ENTRY}."):
                run_windows(world, resolver, [*self.CUTS], [number])
        assert world.sink.boundary_book is not None
        assert not world.sink.boundary_book.boundaries
        run_windows(world, resolver, [*self.CUTS], [1], gap_policy="skip")
        (plan,) = world.sink.plans()
        assert plan.gaps == {"1:0": ((0, gone * ENTRY),)}
        assert [offset // ENTRY for _, offset in world.sink.records()] == [*range(gone, 10)]

    @pytest.mark.parametrize("gone", [7, 10])
    def test_who_skips_goes_on_behind_what_is_fixed(self, gone: int) -> None:
        world, resolver = self.world()
        run_windows(world, resolver, [*self.CUTS], [0])
        world.log.lost[1, 0] = gone
        with pytest.raises(DataLoss, match="retention has removed"):
            run_windows(world, resolver, [*self.CUTS], [1])
        cuts = [self.CUTS[1], self.CUTS[1] + 60_000, self.CUTS[2]]
        run_windows(world, resolver, cuts, [1, 0], gap_policy="skip")
        lost = [gap for plan in world.sink.plans() for gap in plan.gaps.get("1:0", ())]
        assert lost == [(5 * ENTRY, gone * ENTRY)]
        assert [offset // ENTRY for _, offset in world.sink.records()] == [
            *range(5),
            *range(gone, 10),
        ]

    def test_what_retention_took_of_windows_that_are_there_holds_nothing_up(self) -> None:
        """Neither where all was read, nor where others share the store with what is new."""
        world, resolver = self.world()
        run_windows(world, resolver, [*self.CUTS], [0, 1])
        world.log.lost[1, 0] = 10
        cuts = [self.CUTS[2], NOON_MS + 11 * 60_000, NOON_MS + 12 * 60_000]
        run_windows(world, resolver, cuts, [0])
        shared = Shelved()
        shared.put(PARTITIONS[0], minute="202611211213", skip=12)
        world.log.append("1:1", 2)
        world.log.append("1:0")
        later = MessageTimeResolver(TOPIC, shared.read, world.log.ends, lambda: at(90))
        world.log.partitions = ["1:0"]
        run_windows(world, later, cuts, [1])
        assert not any(plan.gaps for plan in world.sink.plans())


def test_a_boundary_is_kept_between_neighbours_that_are_fixed() -> None:
    class Shifting:
        name, exact = "shifting", False

        def __init__(self, end: int) -> None:
            self.end = end

        def offsets_at(self, instant: datetime) -> Mapping[str, int]:
            return {"1:0": self.end, "1:1": self.end, "2:0": 0}

    world = World(sink=MemorySink(boundary_book=MemoryBook()))
    for _ in range(4):
        world.log.append("1:0")
    run_windows(world, Shifting(56), [0, 1], [0])
    run_windows(world, Shifting(28), [1, 2], [0])  # its end would lie before its start
    run_windows(world, Shifting(112), [-1, 0], [0])  # its start would lie behind its end
    assert all(start <= end for plan in world.sink.plans() for start, end in plan.ranges.values())


def test_a_boundary_that_forgets_a_partition_is_not_fixed() -> None:
    class Partial:
        name, exact = "partial", False

        def offsets_at(self, instant: datetime) -> Mapping[str, int]:
            known = {"1:0": 28, "1:1": 28, "2:0": 0}
            return known if instant == instant_of(0) else {"1:0": 28, "1:1": 28}

    book = MemoryBook()
    world = World(sink=MemorySink(boundary_book=book))
    world.log.append("1:0")
    for _ in range(2):
        with pytest.raises(WindowNotReady, match="2:0"):
            run_windows(world, Partial(), [0, 1], [0])
    assert len(book.boundaries) == 1

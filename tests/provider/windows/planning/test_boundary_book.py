"""Boundaries as one monotone sequence: any resolver, any order, late data, runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provider.windows.world import (
    ENTRY,
    TOPIC,
    MemoryBook,
    MemorySink,
    World,
    keeping_boundaries,
    memory_world,
)
from tubemq_client.errors import DataLoss
from tubemq_client.model import GapPolicy
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.canonical import basic_instant
from tubemq_provider.windows.errors import BoundaryConflict, WindowNotReady
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hours: float) -> datetime:
    return TEN + hours * HOUR


@dataclass
class Says:
    """A resolver with a given answer, which a test may change."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    name = "says"
    exact = False

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        return self.resolve(instant).offsets

    def resolve(self, instant: datetime) -> Resolved:
        return Resolved(self.offsets, {}, self.unknown)


world = memory_world({"1:0": 20}, sink=keeping_boundaries, alone=True)


def planner(world: World, first: float, last: float, resolver: object) -> TimePlanner:
    return TimePlanner(
        world.scope,
        at(first),
        at(last),
        resolver,  # type: ignore[arg-type]
        world.log.ends,
        world.sink.boundaries,
    )


def window(world: World, first: float, last: float, resolver: object) -> WindowResult:
    world.runs += 1
    store = MemoryOffsetStore(world.journal, task=f"task-{world.runs}")
    return window_run(
        planner(world, first, last, resolver),
        store,
        world.sink,
        world.engine,
        attempt=f"try-{world.runs}",
    ).run()


def once(world: World) -> bool:
    return world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def scope_book(world: World) -> ScopeBook:
    assert world.sink.boundary_book is not None
    return ScopeBook(world.sink.boundary_book, world.scope)


class Clocked:
    """Arrival by hand: the offsets of each instant, of whatever is announced."""

    name, exact = "clocked", False

    def __init__(self, **offsets: Mapping[float, int]) -> None:
        self.offsets = {key.replace("_", ":")[1:]: value for key, value in offsets.items()}

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        hours = (instant - TEN) / HOUR
        return {key: known[hours] for key, known in self.offsets.items() if hours in known}


class TestOrder:
    def test_a_late_record_moves_no_boundary_past_a_later_one_that_is_fixed(
        self, world: World
    ) -> None:
        """12 to 13 comes first; a record of 10:30 arrives behind it; then 10 to 11 is planned."""
        window(world, 2, 3, Clocked(p1_0={2: 10 * ENTRY, 3: 14 * ENTRY}))
        late = Clocked(p1_0={0: 0, 1: 15 * ENTRY, 2: 15 * ENTRY, 3: 15 * ENTRY, 4: 20 * ENTRY})
        window(world, 0, 1, late)
        window(world, 1, 2, late)
        window(world, 3, 4, late)
        assert once(world)

    def test_a_boundary_that_falls_back_stays_at_the_one_before(self, world: World) -> None:
        window(world, 0, 1, Clocked(p1_0={0: 0, 1: 12 * ENTRY}))
        fallen = Clocked(p1_0={2: 5 * ENTRY, 3: 20 * ENTRY, 1: 5 * ENTRY})
        window(world, 2, 3, fallen)
        window(world, 1, 2, fallen)
        assert once(world)

    @given(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=12),
        st.randoms(),
    )
    def test_any_answers_in_any_order_make_one_sequence(self, answers, random) -> None:  # type: ignore[no-untyped-def]
        world = World(sink=MemorySink(boundary_book=MemoryBook()))
        for hours, entry in answers:
            resolver = Says({"1:0": entry * ENTRY, "1:1": random.randrange(20) * ENTRY})
            book = scope_book(world)
            book.fix(at(hours), "says", partial(resolver.resolve, at(hours)), exact=False)
        book = scope_book(world)
        found = [book.at(at(hours)) for hours in sorted({hours for hours, _ in answers})]
        for key in ("1:0", "1:1"):
            assert [item[key] for item in found] == sorted(item[key] for item in found)


class TestRetention:
    """Retention has removed what lay before the answer: the boundary was somewhere below it."""

    WORN = Resolved({"1:0": 7 * ENTRY, "1:1": 9 * ENTRY}, lost_to_retention={"1:0": 0})
    SKIP = GapPolicy.SKIP

    def test_no_window_begins_or_ends_there(self, world: World) -> None:
        for begins in (True, False):
            with pytest.raises(DataLoss, match=r"1:0: what is left begins at 196.*in .0, 196."):
                self.fix(world, 1, begins=begins)
        assert scope_book(world).instants() == []

    def test_what_is_fixed_before_may_tell_it(self, world: World) -> None:
        self.fix(world, 0, Resolved({"1:0": 7 * ENTRY, "1:1": 0}))
        assert self.fix(world, 1, begins=True) == self.WORN.offsets

    def test_what_is_fixed_on_both_sides_may_tell_it(self, world: World) -> None:
        for hours in (0, 2):
            self.fix(world, hours, Resolved({"1:0": 5 * ENTRY, "1:1": 9 * ENTRY}))
        assert self.fix(world, 1, begins=True)["1:0"] == 5 * ENTRY

    def test_a_partition_that_joins_has_no_earlier_boundary(self, world: World) -> None:
        self.fix(world, 0, Resolved({"1:1": 9 * ENTRY}))
        assert self.fix(world, 1) == self.WORN.offsets

    def test_who_skips_begins_at_the_least_and_ends_at_the_highest(self, world: World) -> None:
        self.fix(world, 0, Resolved({"1:0": 3 * ENTRY, "1:1": 0}))
        assert self.fix(world, 2, begins=True, gap_policy=self.SKIP)["1:0"] == 3 * ENTRY
        assert self.fix(world, 3, gap_policy=self.SKIP)["1:0"] == 7 * ENTRY
        assert scope_book(world).evidence(at(2)) == {"eroded": {"1:0": [3 * ENTRY, 7 * ENTRY]}}

    def test_a_boundary_that_was_left_open_tells_nothing_of_earlier_ones(
        self, world: World
    ) -> None:
        self.fix(world, 2, begins=True, gap_policy=self.SKIP)
        with pytest.raises(DataLoss):
            self.fix(world, 1, begins=True)

    def test_what_is_fixed_is_not_asked_for_again(self, world: World) -> None:
        known = self.fix(world, 1, Resolved({"1:0": 2 * ENTRY, "1:1": 0}))
        assert self.fix(world, 1, begins=True) == known

    def fix(
        self, world: World, hours: float, answer: Resolved = WORN, **options: object
    ) -> dict[str, int]:
        book = scope_book(world)
        return book.fix(at(hours), "says", lambda: answer, exact=False, **options)  # type: ignore[arg-type]


class RacingBook(MemoryBook):
    """A book in which something happens right before a document is fixed."""

    before: Callable[[], object] | None = None

    def fix(self, key: str, document: Document) -> Document:
        happens, self.before = self.before, None
        if happens is not None:
            happens()
        return super().fix(key, document)


class TestRaces:
    def test_runs_that_fix_two_instants_at_once_agree(self) -> None:
        """The run for 11:00 has made up its mind to say 15 when 12:00 is fixed at 10."""
        book = RacingBook()
        world = World(sink=MemorySink(boundary_book=book))
        low, high = Says({"1:0": 10 * ENTRY}), Says({"1:0": 15 * ENTRY})
        book.before = lambda: scope_book(world).fix(
            at(2), "low", partial(low.resolve, at(2)), exact=False
        )
        first = scope_book(world).fix(at(1), "high", partial(high.resolve, at(1)), exact=False)
        assert first == {"1:0": 10 * ENTRY}
        assert scope_book(world).at(at(2)) == {"1:0": 10 * ENTRY}

    def test_runs_that_fix_one_instant_at_once_get_one_answer(self) -> None:
        book = RacingBook()
        world = World(sink=MemorySink(boundary_book=book))
        low, high = Says({"1:0": 10 * ENTRY}), Says({"1:0": 15 * ENTRY})
        book.before = lambda: scope_book(world).fix(
            at(1), "low", partial(low.resolve, at(1)), exact=False
        )
        assert scope_book(world).fix(at(1), "high", partial(high.resolve, at(1)), exact=False) == {
            "1:0": 10 * ENTRY
        }

    def test_a_run_that_dies_in_its_turn_leaves_its_boundary_to_the_next(self) -> None:
        class Dies(MemoryBook):
            def fix(self, key: str, document: Document) -> Document:
                if key.startswith("2026"):
                    raise KeyboardInterrupt
                return super().fix(key, document)

        world = World(sink=MemorySink(boundary_book=Dies()))
        high, low = Says({"1:0": 15 * ENTRY}), Says({"1:0": 10 * ENTRY})
        with pytest.raises(KeyboardInterrupt):
            scope_book(world).fix(at(1), "high", partial(high.resolve, at(1)), exact=False)
        world.sink.boundary_book = MemoryBook(world.sink.boundary_book.fixed)  # type: ignore[union-attr]
        later = scope_book(world).fix(at(2), "low", partial(low.resolve, at(2)), exact=False)
        assert later == scope_book(world).at(at(1)) == {"1:0": 15 * ENTRY}

    def test_turns_that_dead_runs_left_are_removed_by_the_next(self) -> None:
        """One left alone would make the number after it look unused to a run that was asleep."""
        book = MemoryBook()
        world = World(sink=MemorySink(boundary_book=book))
        kept = {}

        def fix(hour: int) -> None:
            answer = Resolved({"1:0": hour * ENTRY})
            scope_book(world).fix(at(hour), "says", lambda: answer, exact=False)

        for hour in range(1, 106):
            fix(hour)
            kept |= {key: turn for key, turn in book.fixed.items() if key.startswith("turn-5-")}
        assert len(kept) == 1
        assert not kept.keys() & book.fixed.keys()
        book.fixed |= kept  # the runs of turns 105 and 106 died before they removed it
        fix(106)
        fix(107)
        assert not kept.keys() & book.fixed.keys()


class TestPartitions:
    def test_a_partition_that_is_not_announced_for_a_while_is_read_once(self, world: World) -> None:
        both = Clocked(p1_0={0: 0, 1: 5 * ENTRY, 2: 6 * ENTRY, 3: 7 * ENTRY}, p2_0={0: 0, 1: 28})
        world.log.append("2:0", 3)
        window(world, 0, 1, both)
        # Its broker is out of the configuration: nothing tells of it, also not at the start.
        with pytest.raises(WindowNotReady, match="2:0"):
            window(world, 2, 3, both)
        back = Clocked(
            p1_0={1: 5 * ENTRY, 2: 6 * ENTRY, 3: 20 * ENTRY},
            p2_0={1: 28, 2: 2 * ENTRY, 3: 3 * ENTRY},
        )
        window(world, 2, 3, back)
        window(world, 1, 2, back)
        assert once(world)

    def test_a_partition_that_an_old_boundary_forgot_goes_on_where_it_was(
        self, world: World
    ) -> None:
        """Earlier releases fixed boundaries that did not name what was not announced."""
        world.log.append("2:0", 3)
        window(world, 0, 1, Clocked(p1_0={0: 0, 1: 5 * ENTRY}, p2_0={0: 0, 1: 2 * ENTRY}))
        book = world.sink.boundary_book
        assert book is not None
        book.fixed = book.boundaries
        for document in book.fixed.values():
            del document["whole"]
        h, offsets = world.scope.scope_hash, {"1:0": 6 * ENTRY}
        book.fixed[f"{basic_instant(at(2))}-{h}"] = {"v": 1, "h": h, "offsets": offsets}
        later = Clocked(p1_0={3: 20 * ENTRY}, p2_0={3: 3 * ENTRY})
        window(world, 1, 2, later)
        window(world, 2, 3, later)
        assert once(world)

    def test_an_older_window_leaves_out_what_joined_later(self, world: World) -> None:
        """A partition was added between 11 and 12; 12 to 13 ran, and then 10 to 11 and 11 to 12,
        while the partition is there and would be told for every instant."""
        window(world, 1, 2, Clocked(p1_0={1: 6 * ENTRY, 2: 9 * ENTRY}))
        world.log.append("2:0", 4)
        window(world, 2, 3, Clocked(p1_0={3: 20 * ENTRY}, p2_0={2: 28, 3: 4 * ENTRY}))
        older = window(world, 0, 1, Clocked(p1_0={0: 0, 1: 0}, p2_0={0: 28, 1: 28}))
        assert "2:0" not in older.ranges
        assert once(world)

    def test_a_window_from_before_all_partitions_is_empty(self, world: World) -> None:
        window(world, 1, 2, Clocked(p1_0={2: 20 * ENTRY}))
        assert window(world, 0, 1, Clocked(p1_0={0: 28, 1: 28})).empty
        assert once(world)

    def test_a_partition_that_joins_while_nobody_offers_it_waits(self, world: World) -> None:
        told = Clocked(p1_0={0: 0, 1: 20 * ENTRY}, p2_0={1: 28})
        with pytest.raises(WindowNotReady, match="where it begins"):
            window(world, 0, 1, told)
        world.log.append("2:0", 1)
        window(world, 0, 1, told)
        assert once(world)


class TestRetired:
    def test_a_broker_that_is_gone_for_good_blocks_until_it_is_retired(self, world: World) -> None:
        world.log.append("2:0", 3)
        window(world, 0, 1, Clocked(p1_0={0: 0, 1: 5 * ENTRY}, p2_0={0: 0, 1: 3 * ENTRY}))
        world.log.partitions.remove("2:0")
        rest = Clocked(p1_0={2: 20 * ENTRY})
        with pytest.raises(
            WindowNotReady, match="offsets retire c1/orders/g1 --sink SINK --broker 2"
        ):
            window(world, 1, 2, rest)
        scope_book(world).retire(2)
        result = window(world, 1, 2, rest)
        assert result.ranges["2:0"] == (3 * ENTRY, 3 * ENTRY)
        assert once(world)

    def test_what_it_took_with_it_is_a_gap(self, world: World) -> None:
        world.log.append("2:0", 3)
        told = Clocked(p1_0={0: 0, 1: 20 * ENTRY}, p2_0={0: 0, 1: 3 * ENTRY})
        book = scope_book(world)
        for hours in (0, 1):
            book.fix(
                at(hours),
                "clocked",
                lambda h=hours: Resolved(told.offsets_at(at(h))),  # type: ignore[misc]
                exact=False,
            )
        world.log.partitions.remove("2:0")
        with pytest.raises(WindowNotReady, match="no broker offers it"):
            window(world, 0, 1, told)
        book.retire(2)
        result = window(world, 0, 1, told)
        assert result.gaps == {"2:0": [[0, 3 * ENTRY]]}
        assert result.records == {"1:0": 20, "2:0": 0}

    def test_a_plan_that_was_stored_before_is_made_anew(self, world: World) -> None:
        world.log.append("2:0", 3)
        told = Clocked(p1_0={0: 0, 1: 20 * ENTRY}, p2_0={0: 0, 1: 3 * ENTRY})
        world.engine.failing = RuntimeError("the broker died")
        with pytest.raises(RuntimeError):
            window(world, 0, 1, told)
        world.engine.failing = None
        world.log.partitions.remove("2:0")
        scope_book(world).retire(2)
        assert window(world, 0, 1, told).gaps == {"2:0": [[0, 3 * ENTRY]]}

    def test_a_partition_that_joined_and_went_is_a_gap(self, world: World) -> None:
        scope_book(world).retire(2)
        told = Clocked(p1_0={0: 0, 1: 20 * ENTRY}, p2_0={1: 3 * ENTRY})
        assert window(world, 0, 1, told).gaps == {"2:0": [[0, 3 * ENTRY]]}

    def test_it_may_come_back(self, world: World) -> None:
        world.log.append("2:0", 3)
        window(world, 0, 1, Clocked(p1_0={0: 0, 1: 5 * ENTRY}, p2_0={0: 0, 1: 2 * ENTRY}))
        scope_book(world).retire(2)
        window(world, 1, 2, Clocked(p1_0={2: 20 * ENTRY}))
        window(world, 2, 3, Clocked(p1_0={3: 20 * ENTRY}, p2_0={3: 3 * ENTRY}))
        assert once(world)

    def test_a_mapping_may_leave_it_out_or_repeat_its_last_offset(self, world: World) -> None:
        def given(**hours: Mapping[str, int]) -> Boundaries:
            mapping = {
                at(int(hour[1:])).isoformat(): {TOPIC: offsets} for hour, offsets in hours.items()
            }
            return Boundaries(mapping, TOPIC)

        world.log.append("2:0", 3)
        end = {"1:0": 5 * ENTRY, "2:0": 3 * ENTRY}
        window(world, 0, 1, given(h0={"1:0": 0, "2:0": 0}, h1=end))
        world.log.partitions.remove("2:0")
        repeated = given(h1=end, h2={"1:0": 9 * ENTRY, "2:0": 3 * ENTRY})
        window(world, 1, 2, repeated)
        with pytest.raises(
            BoundaryConflict, match="offsets retire c1/orders/g1 --sink SINK --broker 2"
        ):
            window(world, 2, 3, given(h2={"1:0": 9 * ENTRY}, h3={"1:0": 20 * ENTRY}))
        scope_book(world).retire(2)
        window(world, 2, 3, given(h2={"1:0": 9 * ENTRY}, h3={"1:0": 20 * ENTRY}))
        assert once(world)

    def test_what_a_resolver_cannot_tell_waits_or_is_retired(self, world: World) -> None:
        unknown = Says({"1:0": 0}, {"2/0": "no sample at or after 10:00"})
        with pytest.raises(WindowNotReady, match=r"2/0: no sample"):
            window(world, 0, 1, unknown)
        scope_book(world).retire(2)
        assert window(world, 0, 1, unknown).empty


class TestGivenOffsets:
    def mapping(self, **hours: int) -> Boundaries:
        return Boundaries(
            {
                at(int(h[1:])).isoformat(): {TOPIC: {"1:0": entry * ENTRY}}
                for h, entry in hours.items()
            },
            TOPIC,
        )

    def test_a_corrected_boundary_is_an_error_until_the_old_one_is_taken_back(
        self, world: World
    ) -> None:
        world.engine.failing = RuntimeError("executor lost")
        with pytest.raises(RuntimeError):
            window(world, 0, 1, self.mapping(h0=0, h1=15))
        world.engine.failing = None
        corrected = self.mapping(h0=0, h1=12, h2=20)
        for _ in range(2):
            with pytest.raises(
                BoundaryConflict,
                match="offsets unfix c1/orders/g1 --sink SINK --instant 2026-11-21T11:00:00Z",
            ):
                window(world, 0, 1, corrected)
        scope_book(world).withdraw(at(1))
        # The stored plan of the run that failed has the wrong number still, and is not believed.
        assert window(world, 0, 1, corrected).ranges == {"1:0": (0, 12 * ENTRY)}
        window(world, 1, 2, corrected)
        assert once(world)

    def test_offsets_that_fit_lead_out_of_a_contradiction(self, world: World) -> None:
        window(world, 2, 3, self.mapping(h2=10, h3=20))
        with pytest.raises(BoundaryConflict, match=r"1:0: 308 is given, 280 fits"):
            window(world, 0, 1, self.mapping(h0=0, h1=11))
        fits = self.mapping(h0=0, h1=10, h2=10)
        window(world, 0, 1, fits)
        window(world, 1, 2, fits)
        assert once(world)

    def test_a_published_window_is_not_replayed_for_other_offsets(self, world: World) -> None:
        window(world, 0, 1, self.mapping(h0=0, h1=15))
        with pytest.raises(BoundaryConflict):
            window(world, 0, 1, self.mapping(h0=0, h1=12))
        assert window(world, 0, 1, self.mapping(h0=0)).replayed


class TestOverlaps:
    CLOCK = Clocked(p1_0={0: 0, 1: 5 * ENTRY, 2: 9 * ENTRY, 3: 15 * ENTRY, 4: 20 * ENTRY})

    def test_a_changed_schedule_is_refused_before_anything_is_read(self, world: World) -> None:
        window(world, 0, 1, self.CLOCK)
        read = len(world.engine.ingested)
        with pytest.raises(BoundaryConflict, match="2026-11-21T11:00:00Z to 2026-11-21T12:00:00Z"):
            window(world, 0, 2, self.CLOCK)
        assert len(world.engine.ingested) == read
        window(world, 1, 2, self.CLOCK)
        window(world, 2, 4, self.CLOCK)
        assert once(world)

    @pytest.mark.parametrize("span", [(0, 4), (1.5, 1.75), (0, 1.5), (1.5, 4)])
    def test_any_overlap_is_found(self, world: World, span: tuple[float, float]) -> None:
        window(world, 1, 2, self.CLOCK)
        with pytest.raises(BoundaryConflict, match="is published"):
            window(world, *span, self.CLOCK)

    def test_an_overlap_that_is_published_meanwhile_is_found_before_publication(
        self, world: World
    ) -> None:
        store = MemoryOffsetStore(world.journal, task="slow")
        slow = window_run(
            planner(world, 0, 2, self.CLOCK), store, world.sink, world.engine, attempt="slow"
        ).steps()
        for step, point in slow:
            if (step, point) == ("ingest", "end"):
                break
        window(world, 0, 1, self.CLOCK)
        with pytest.raises(BoundaryConflict):
            list(slow)
        window(world, 1, 2, self.CLOCK)
        window(world, 2, 4, self.CLOCK)
        assert once(world)

"""Time turned into offsets: which samples count, and what is refused."""

from __future__ import annotations

import json
import random
import zlib
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest

from tests.provider.windows.clocks import (
    MINUTE,
    NOON,
    PARTITIONS,
    Shelf,
    Shelved,
    at,
    history_body,
    ms,
    timeline_of,
)
from tests.provider.windows.world import ENTRY, TOPIC, MemoryBook, MemorySink, World
from tubemq_client.errors import ConfigError
from tubemq_client.model import Partition, PartitionEnds
from tubemq_provider.sources.tubemq.history_resolver import (
    HISTORY_TOPIC,
    HistoryResolver,
    history_partition,
    history_sample,
)
from tubemq_provider.sources.tubemq.message_time_resolver import MessageTimeResolver
from tubemq_provider.windows.errors import DocumentError, WindowNotReady
from tubemq_provider.windows.planning.instants import TimeResolver
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.time_resolvers.samples import Sample
from tubemq_provider.windows.time_resolvers.timeline import (
    Timeline,
    TimelineResolver,
    record_sample,
)


class TestTimeline:
    SAMPLES = (
        Sample(ms(0), {"1/0": 28, "2/0": 0}),
        Sample(ms(10), {"1/0": 56, "2/0": 28}),
        Sample(ms(20), {"1/0": 84, "2/0": 28}),
    )

    @pytest.mark.parametrize(
        ("minutes", "expected"),
        [(0, (28, 0)), (0.001, (56, 28)), (10, (56, 28)), (11, (84, 28)), (20, (84, 28))],
    )
    def test_the_first_sample_at_or_after_an_instant_counts(
        self, minutes: float, expected: tuple[int, int]
    ) -> None:
        found = timeline_of(*self.SAMPLES).offsets_at(at(minutes))
        assert found == {"1:0": expected[0], "1:1": expected[0], "2:0": expected[1]}

    def test_the_samples_around_it_are_reported(self) -> None:
        found = timeline_of(*self.SAMPLES).resolve(at(12))
        assert found.evidence == {
            "since": "2026-11-21T12:10:00Z",
            "until": "2026-11-21T12:20:00Z",
        }

    def test_an_instant_that_no_sample_has_passed_may_be_asked_later(self) -> None:
        with pytest.raises(WindowNotReady, match="the one before it is of 2026-11-21T12:20:00Z"):
            timeline_of(*self.SAMPLES).offsets_at(at(20.5))

    def test_an_instant_before_the_first_sample_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="the first is of 2026-11-21T12:00:00Z"):
            timeline_of(*self.SAMPLES).offsets_at(at(-1))
        with pytest.raises(ConfigError, match="none"):
            timeline_of().offsets_at(NOON)

    def test_a_broker_that_was_not_sampled_holds_the_boundary_back(self) -> None:
        late = Sample(ms(30), {"1/0": 112})
        with pytest.raises(WindowNotReady, match="2/0"):
            timeline_of(*self.SAMPLES, late).offsets_at(at(25))
        back = Sample(ms(40), {"1/0": 140, "2/0": 56})
        found = timeline_of(*self.SAMPLES, late, back).offsets_at(at(25))
        assert found == {"1:0": 112, "1:1": 112, "2:0": 56}

    def test_a_store_that_appears_later_joins_with_the_next_boundary(self) -> None:
        first = Sample(ms(0), {"1/0": 28})
        second = Sample(ms(10), {"1/0": 56, "2/0": 28})
        resolver = timeline_of(first, second)
        assert resolver.offsets_at(at(5)) == {"1:0": 56, "1:1": 56}
        assert resolver.offsets_at(at(10)) == {"1:0": 56, "1:1": 56, "2:0": 28}

    def test_a_store_that_nobody_offers_now_is_not_forgotten(self) -> None:
        timeline = Timeline(TOPIC).with_sample(self.SAMPLES[0])
        resolver = TimelineResolver(TOPIC, timeline.to_document, lambda: PARTITIONS[:2])
        with pytest.raises(WindowNotReady, match="2/0"):
            resolver.offsets_at(NOON)

    def test_a_log_that_fell_back_does_not_move_a_boundary_back(self) -> None:
        crashed = Sample(ms(30), {"1/0": 56, "2/0": 28})
        assert timeline_of(*self.SAMPLES, crashed).offsets_at(at(25))["1:0"] == 84

    def test_an_allowance_lets_late_arrivals_count_as_before(self) -> None:
        timeline = Timeline(TOPIC)
        for sample in self.SAMPLES:
            timeline = timeline.with_sample(sample)
        resolver = TimelineResolver(TOPIC, timeline.to_document, lambda: PARTITIONS, 5 * MINUTE)
        assert resolver.offsets_at(at(6))["1:0"] == 84
        with pytest.raises(WindowNotReady):
            resolver.offsets_at(at(16))

    def test_an_allowance_ends_where_the_calendar_does(self) -> None:
        timeline = Timeline(TOPIC).with_sample(self.SAMPLES[0])
        resolver = TimelineResolver(TOPIC, timeline.to_document, lambda: PARTITIONS, 5 * MINUTE)
        with pytest.raises(WindowNotReady, match="9999"):
            resolver.offsets_at(datetime(9999, 12, 31, 23, 59, tzinfo=UTC))

    def test_a_sample_bears_the_time_before_the_look_up(self) -> None:
        clock = iter([at(0), at(7)])
        shelf, world = Shelf(), World()
        world.log.append("1:0", 3)
        record_sample(TOPIC, shelf, world.log.ends, lambda: next(clock))
        world.log.append("2:0", 1)
        timeline = record_sample(TOPIC, shelf, world.log.ends, lambda: next(clock))
        assert [sample.at_ms for sample in timeline.samples] == [ms(0), ms(7)]
        assert timeline.samples[-1].ends == {"1/0": 84, "2/0": 28}
        assert Timeline.from_document(shelf.load_timeline(), TOPIC) == timeline

    def test_a_look_up_that_fails_leaves_the_timeline_as_it_was(self) -> None:
        def fails() -> Mapping[Partition, PartitionEnds]:
            raise WindowNotReady("no broker")

        shelf = Shelf()
        with pytest.raises(WindowNotReady):
            record_sample(TOPIC, shelf, fails, lambda: NOON)
        assert shelf.document is None

    def test_it_stays_small_and_remembers_since_when_it_knows_a_store(self) -> None:
        timeline = Timeline(TOPIC)
        for number in range(400):
            ends = {"1/0": number**2 % 997 * ENTRY, "2/0": number**3 * ENTRY}
            timeline = timeline.with_sample(Sample(ms(number), ends), max_bytes=2_000)
        assert len(json.dumps(timeline.to_document(2_000))) < 2_500
        assert 50 < len(timeline.samples) < 400
        assert timeline.samples[-1].at_ms == ms(399)
        assert timeline.first_seen == {"1/0": ms(0), "2/0": ms(0)}

    @pytest.mark.parametrize(("stores", "period"), [(4, 2), (2_500, 30)])
    def test_a_day_of_samples_has_room_whatever_the_number_of_stores(
        self, stores: int, period: int
    ) -> None:
        source = random.Random(stores)
        names = [f"{1 + number // 10}/{number % 10}" for number in range(stores)]
        ends, timeline = dict.fromkeys(names, 0), Timeline(TOPIC)
        taken = list(range(0, 24 * 60, period))
        for minute in taken:
            ends = {name: end + ENTRY * source.randrange(1_000) for name, end in ends.items()}
            timeline = timeline.with_sample(Sample(ms(minute), ends))
        document = timeline.to_document()
        assert len(json.dumps(document)) < 480_000
        again = Timeline.from_document(json.loads(json.dumps(document)), TOPIC)
        assert again == timeline
        assert timeline.samples[0].at_ms == ms(0)
        assert len(timeline.samples) > 20
        newest = [sample.at_ms for sample in timeline.samples[-5:]]
        assert newest == [ms(minute) for minute in taken[-5:]]

    def test_too_many_stores_are_refused_with_the_first_sample(self) -> None:
        source = random.Random(1)
        ends = {f"{number}/0": ENTRY * source.randrange(10**15) for number in range(40_000)}
        with pytest.raises(ConfigError, match="resolver='history'"):
            Timeline(TOPIC).with_sample(Sample(ms(0), ends))

    @pytest.mark.parametrize(
        "packed", ["", "?", "eJw=", b64encode(zlib.compress(b"[1]")).decode(), 5, None]
    )
    def test_a_damaged_packed_document_is_reported(self, packed: object) -> None:
        with pytest.raises(DocumentError, match="unpacked"):
            Timeline.from_document({"v": 2, "topic": TOPIC, "zlib": packed}, TOPIC)

    def test_hours_of_silence_cost_two_samples(self) -> None:
        timeline = Timeline(TOPIC)
        for number in range(100):
            timeline = timeline.with_sample(Sample(ms(number), {"1/0": 28}))
        assert [sample.at_ms for sample in timeline.samples] == [ms(0), ms(99)]

    @pytest.mark.parametrize(
        "document",
        [
            [],
            {"v": 3, "topic": TOPIC},
            {"v": 1, "topic": "other", "stores": [], "samples": []},
            {"v": 1, "topic": TOPIC, "stores": ["1/0"], "samples": []},
            {"v": 1, "topic": TOPIC, "stores": [["1/0", 5]], "samples": [[5]]},
            {"v": 1, "topic": TOPIC, "stores": [["1/0", 5]], "samples": [[5, 27]]},
        ],
    )
    def test_a_damaged_document_is_reported(self, document: object) -> None:
        with pytest.raises(DocumentError):
            Timeline.from_document(document, TOPIC)


class TestHistory:
    PARTITION = Partition(1, HISTORY_TOPIC, history_partition("g"))

    def log(self, *scans: tuple[float, int]) -> Shelved:
        log = Shelved()
        for minutes, end in scans:
            log.put(self.PARTITION, history_body(ms(minutes), {0: 28 * 99}, "another"), skip=2)
            log.put(self.PARTITION, history_body(ms(minutes), {0: end}), skip=1)
        return log

    def resolver(self, log: Shelved) -> HistoryResolver:
        return HistoryResolver(
            TOPIC, "g", log.read, lambda: log.ends_of(self.PARTITION), lambda: PARTITIONS[:2]
        )

    def test_the_first_scan_at_or_after_an_instant_counts(self) -> None:
        log = self.log((0, 0), (1, 56), (2, 56), (3, 112))
        resolver = self.resolver(log)
        found = {m: resolver.offsets_at(at(m))["1:0"] for m in (0, 0.5, 1, 1.5, 2, 2.01, 3)}
        assert found == {0: 0, 0.5: 56, 1: 56, 1.5: 56, 2: 56, 2.01: 112, 3: 112}
        assert resolver.resolve(at(2.5)).evidence == {
            "since": "2026-11-21T12:02:00Z",
            "until": "2026-11-21T12:03:00Z",
        }

    def test_a_week_of_scans_takes_few_reads(self) -> None:
        log = self.log(*((minute, minute * 28) for minute in range(10_080)))
        assert self.resolver(log).offsets_at(at(7_000.5))["1:1"] == 7_001 * 28
        assert log.reads < 24

    def test_before_the_first_and_after_the_last_scan(self) -> None:
        resolver = self.resolver(self.log((0, 0), (1, 56)))
        with pytest.raises(ConfigError, match="before its first record, 2026-11-21T12:00:00Z"):
            resolver.offsets_at(at(-1))
        with pytest.raises(WindowNotReady):
            resolver.offsets_at(at(1.1))

    def test_a_history_that_retention_has_cut_is_not_guessed_at(self) -> None:
        log = self.log((0, 0), (1, 56), (2, 84))
        log.low = 6 * ENTRY
        with pytest.raises(ConfigError, match="has been removed"):
            self.resolver(log).offsets_at(at(0))
        assert self.resolver(log).offsets_at(at(1.5))["1:0"] == 84

    def test_a_group_that_is_not_recorded_is_told_how_to_become_so(self) -> None:
        with pytest.raises(ConfigError, match="history_group"):
            self.resolver(self.log()).offsets_at(NOON)

    def test_zeros_of_a_topic_that_was_not_published_are_not_believed(self) -> None:
        with pytest.raises(WindowNotReady):
            self.resolver(self.log((0, 56), (1, 0))).offsets_at(at(0.5))

    @pytest.mark.parametrize(("end", "later"), [(84, {"2:0": 84}), (0, {})])
    def test_a_broker_that_began_to_record_later_is_told_apart(
        self, end: int, later: dict[str, int]
    ) -> None:
        """Right for what has a boundary already; the zeros of one may not be believed."""
        log = self.log((0, 28), (1, 56))
        other = Partition(2, HISTORY_TOPIC, history_partition("g"))
        log.put(other, history_body(ms(2), {0: end}, bId=2))
        ends = partial(log.ends_of, self.PARTITION, other)
        found = HistoryResolver(TOPIC, "g", log.read, ends, lambda: PARTITIONS).resolve(at(0.5))
        assert (found.offsets, found.later) == ({"1:0": 56, "1:1": 56}, later)

    def test_a_record_of_another_version_is_refused(self) -> None:
        with pytest.raises(DocumentError, match="version 4"):
            history_sample(history_body(0, {0: 0}, ver=4), "g", TOPIC)
        with pytest.raises(DocumentError):
            history_sample(b"{", "g", TOPIC)
        assert history_sample(history_body(0, {0: 0}, "another"), "g", TOPIC) is None
        assert history_sample(history_body(0, {0: 28}), "g", "elsewhere") is None

    def test_groups_hash_as_java_strings_do(self) -> None:
        # From "...".hashCode() without its sign.
        hashes = {"group": 98629247, "header": 1221270899, "\N{GRINNING FACE}": 1772899}
        assert {g: history_partition(g) for g in hashes} == {g: h % 10 for g, h in hashes.items()}


class TestMessageTime:
    PARTITION = PARTITIONS[0]

    def log(self, *minutes: int | None) -> Shelved:
        log = Shelved()
        for minute in minutes:
            log.put(
                self.PARTITION, minute=None if minute is None else f"2026112112{minute:02d}", skip=1
            )
        return log

    def resolver(
        self, log: Shelved, now: datetime = NOON + 60 * MINUTE, **options: object
    ) -> MessageTimeResolver:
        return MessageTimeResolver(
            TOPIC,
            log.read,
            lambda: log.ends_of(self.PARTITION),
            lambda: now,
            **options,  # type: ignore[arg-type]
        )

    def test_records_in_order_are_cut_exactly(self) -> None:
        log = self.log(0, 0, 1, 1, None, 3)
        found = {m: self.resolver(log).offsets_at(at(m))["1:0"] // 56 for m in (1, 2, 3, 4)}
        assert found == {1: 2, 2: 4, 3: 4, 4: 6}

    def test_late_records_move_the_boundary_and_are_reported(self) -> None:
        log = self.log(0, 0, 1, 0, 1, 1, 0, 2, 2)
        found = self.resolver(log).resolve(at(1))
        assert found.offsets == {"1:0": 7 * 56}
        assert found.evidence["overlap"] == {"1:0": {"late": 2, "early": 3}}

    def test_only_so_many_entries_are_searched_for_late_records(self) -> None:
        log = self.log(0, 1, 1, 1, 1, 1, 1, 0)
        assert self.resolver(log, look_ahead=6).resolve(at(1)).offsets == {"1:0": 56}

    def test_a_partition_without_records_is_not_overtaken_by_retention(self) -> None:
        """Another partition of its store is busy: what retention takes was never its own."""
        log = Shelved()
        for minute in range(6):
            log.put(PARTITIONS[1], minute=f"20261121120{minute}")
        ends = partial(log.ends_of, *PARTITIONS[:2])
        resolver = MessageTimeResolver(TOPIC, log.read, ends, lambda: at(60))
        assert resolver.offsets_at(at(1)) == {"1:0": 6 * ENTRY, "1:1": ENTRY}
        log.low = 2 * ENTRY
        log.put(self.PARTITION, minute="202611211206")
        assert resolver.offsets_at(at(6)) == {"1:0": 6 * ENTRY, "1:1": 6 * ENTRY}

    def test_times_that_cannot_be_true_are_no_times(self) -> None:
        """The first one after retention, the last, some between: they neither block a window nor
        draw a boundary to themselves."""
        log = Shelved()
        wrong = {1: "999912312359", 3: "000101010000", 5: "197001010000", 7: "999912312359"}
        for number in range(8):
            log.put(self.PARTITION, minute=wrong.get(number, f"20261121120{number // 2}"))
        log.low = ENTRY
        for hours in (0, -8, 8):
            zone, instant = timezone(timedelta(hours=hours)), at(3) - timedelta(hours=hours)
            resolver = self.resolver(log, zone=zone, now=instant + 60 * MINUTE)
            assert resolver.offsets_at(instant) == {"1:0": 5 * ENTRY}

    def test_a_partition_of_wrong_times_only_blocks_no_window(self) -> None:
        log = Shelved()
        log.put(self.PARTITION, minute="999912312359")
        log.low = 0
        assert self.resolver(log).offsets_at(at(1)) == {"1:0": ENTRY}

    def test_one_record_ahead_of_time_does_not_hide_what_the_log_still_has(self) -> None:
        """The least of the first times says where the log begins, not the very first one."""
        log = self.log(0, 9, 1, 2, 3, 4)
        log.low = 2 * ENTRY
        assert self.resolver(log).offsets_at(at(3))["1:0"] >= 4 * 2 * ENTRY

    def test_a_million_records_take_few_reads(self) -> None:
        log = self.log(0)
        log.high = 2**20 * ENTRY
        self.resolver(log).resolve(at(1))
        assert log.reads < 48

    def test_a_window_waits_for_late_records(self) -> None:
        with pytest.raises(WindowNotReady, match="may come until 2026-11-21T13:01:00Z"):
            self.resolver(self.log(0), late_allowance=2 * MINUTE).offsets_at(at(59))

    def test_records_without_a_time_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="carry no"):
            self.resolver(self.log(None, None)).offsets_at(NOON)
        log = Shelved()
        log.put(self.PARTITION, minute="yesterday !!")
        with pytest.raises(ConfigError, match="carry no"):
            self.resolver(log).offsets_at(NOON)
        assert self.resolver(Shelved()).offsets_at(NOON) == {"1:0": 0}

    def test_what_retention_took_is_not_guessed_at(self) -> None:
        log = self.log(0, 1, 2)
        log.low = 56
        with pytest.raises(ConfigError, match="retention has removed"):
            self.resolver(log).offsets_at(at(1))
        assert self.resolver(log).offsets_at(at(2)) == {"1:0": 112}

    def test_minutes_are_read_in_the_producers_zone(self) -> None:
        zone = timedelta(hours=8)
        resolver = self.resolver(self.log(0, 1), zone=timezone(zone))
        assert resolver.offsets_at(at(1) - zone) == {"1:0": 56}


def test_the_boundary_keeps_what_it_rests_on() -> None:
    book = MemoryBook()
    world = World(sink=MemorySink(boundary_book=book))
    resolver = timeline_of(*TestTimeline.SAMPLES)
    world.log.append("1:0", 3)
    world.log.append("2:0", 1)
    planner = TimePlanner(world.scope, at(1), at(12), resolver, world.log.ends, book)
    planner.plan()
    (_, fixed) = book.boundaries.items()
    assert fixed[1]["resolver"] == "timeline"
    assert fixed[1]["evidence"]["until"] == "2026-11-21T12:20:00Z"


@pytest.mark.parametrize("name", ["timeline", "history", "message_time"])
def test_without_a_place_to_fix_boundaries_they_are_refused(name: str) -> None:
    world = World()
    log = Shelved()
    resolvers: dict[str, TimeResolver] = {
        "timeline": timeline_of(*TestTimeline.SAMPLES),
        "history": TestHistory().resolver(log),
        "message_time": TestMessageTime().resolver(log),
    }
    planner = TimePlanner(world.scope, at(0), at(1), resolvers[name], world.log.ends)
    with pytest.raises(ConfigError, match=f"'{name}' may answer differently later"):
        planner.plan()

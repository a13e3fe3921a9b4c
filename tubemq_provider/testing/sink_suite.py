"""Contract of every exactly-once `Sink`: what the built-in ones pass.

    class TestMySink(SinkSuite):
        def make(self, tmp_path):
            return MySink(tmp_path / "lake")

Two calls of `make` share nothing but the storage; it is called in threads and in other processes,
which import the module of the test. A sink whose records are no Parquet files, or not in a place
that `read_windows` reads, defines `rows` as well: what a reader sees, as (partition, value).
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.testing.publishing import (
    CHILD_TIMEOUT,
    CONTEXT,
    COUNTS,
    OpenSink,
    ignore,
    plan_of,
    publish,
    stage,
    start,
    told,
)
from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, OrderedBook, Sink
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

__all__ = ["Row", "SinkSuite", "rows_of", "written_by"]

Row = tuple[str, bytes]
"""Partition key and body."""
_STEP = space_of(FIRST_SOURCE).step


def written_by(who: str) -> Counter[Row]:
    """Return the records that `publish` stages."""
    keys = ("1:0", "1:0", "1:1")
    return Counter((key, f"{who} {index}".encode()) for index, key in enumerate(keys))


def rows_of(sink: Sink) -> Counter[Row]:
    """Return the records that `read_windows` reads, for sinks of files."""
    table = read_windows(sink).to_table()
    if not table.num_rows:
        return Counter()
    return Counter(zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True))


def _made(suite: type[SinkSuite], tmp_path: Path) -> Sink:
    """Open a suite's sink, in any process."""
    return suite().make(tmp_path)


class SinkSuite:
    """Behaviour shared by all exactly-once sinks. Subclasses define `make`."""

    points: tuple[str, ...] = ()
    """Points at which `publish` reports progress: a process is killed at each of them. By default
    those that one publication reports."""

    def make(self, tmp_path: Path) -> Sink:
        """Open the sink below `tmp_path`, as another process would."""
        raise NotImplementedError

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        """Return a function that opens the sink; it is pickled into other processes."""
        return partial(_made, type(self), tmp_path)

    def rows(self, sink: Sink) -> Counter[Row]:
        """Return the records that a reader sees."""
        return rows_of(sink)

    def test_an_empty_sink_knows_no_window(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        assert isinstance(sink, Sink)
        assert sink.exactly_once
        assert sink.marker(plan_of(sink).window_id) is None
        assert list(sink.window_ids()) == []
        assert self.rows(sink) == Counter()
        sink.tidy(plan_of(sink).window_id)

    def test_a_marker_comes_back_as_it_went_in(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = WindowPlan.cursor(
            WindowScope("c1", "orders", "g1", sink.identity, ("s1", "s2"), "epoch-1"),
            7,
            {"1:0": (0, 2**62 // _STEP * _STEP), "1:1": (_STEP, _STEP)},
            gaps={"1:0": ((0, 56),)},
            resets={"1:1": 56},
            has_more=True,
        )
        counts = IngestCounts({"1:0": 3, "1:1": 0}, 2**40, {"1:0": [[0, 56]]}, 2)
        staging = sink.begin(plan, "a")
        stage(staging, "a", ["1:0"] * 3)
        assert sink.publish(staging, plan, counts, ignore).won
        for found in (sink.marker(plan.window_id), open_sink().marker(plan.window_id)):
            assert found is not None
            assert found.plan == plan
            assert found.counts == counts
            assert found.ref

    def test_nothing_is_visible_before_it_is_published(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = plan_of(sink)
        stage(sink.begin(plan, "a"), "a")
        assert list(sink.window_ids()) == []
        assert sink.marker(plan.window_id) is None
        assert self.rows(sink) == Counter()

    def test_a_published_window_is_there_for_everybody(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        for seq in (1, 2, 3):
            assert publish(sink, plan_of(sink, seq), f"w{seq}").won
        other = open_sink()
        ids = {plan_of(sink, seq).window_id for seq in (1, 2, 3)}
        assert set(other.window_ids()) == ids
        assert self.rows(other) == written_by("w1") + written_by("w2") + written_by("w3")

    def test_time_windows_before_an_id_may_be_left_out_of_a_listing(
        self, open_sink: OpenSink
    ) -> None:
        sink = open_sink()
        cursor = plan_of(sink)
        noon, hour = datetime(2026, 11, 21, 12, tzinfo=UTC), timedelta(hours=1)
        scope = WindowScope("c1", "orders", "g1", sink.identity)
        hours = [
            WindowPlan.for_time(scope, at, at + hour, dict(cursor.ranges))
            for at in (noon, noon + hour)
        ]
        for plan in (cursor, *hours):
            assert publish(sink, plan, plan.window_id).won
        later = set(open_sink().later_window_ids("t-20261121T130000"))
        assert {cursor.window_id, hours[1].window_id} <= later
        assert later <= {plan.window_id for plan in (cursor, *hours)}

    def test_who_comes_second_gets_the_first_ones_marker(self, open_sink: OpenSink) -> None:
        first, second = open_sink(), open_sink()
        plan, other = plan_of(first), plan_of(first, end=560)
        assert plan.window_id == other.window_id
        assert plan.hash != other.hash
        late = second.begin(other, "late")
        stage(late, "late")
        assert publish(first, plan, "early").won
        found = second.publish(late, other, COUNTS, ignore)
        second.discard(late)
        assert not found.won
        assert found.marker.plan == plan
        assert self.rows(second) == written_by("early")
        assert list(second.window_ids()) == [plan.window_id]

    def test_publishing_again_changes_nothing(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = plan_of(sink)
        first = publish(sink, plan, "a")
        for again in (sink, open_sink()):
            found = publish(again, plan, "b")
            assert not found.won
            assert found.marker == first.marker
        assert self.rows(sink) == written_by("a")

    def test_files_that_do_not_hold_what_was_counted_are_refused(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = plan_of(sink)
        staging = sink.begin(plan, "a")
        stage(staging, "a")
        with pytest.raises(CountMismatch, match="1:0: 2 records in files, 3 counted"):
            sink.publish(staging, plan, IngestCounts({"1:0": 3, "1:1": 0}), ignore)
        sink.discard(staging)
        sink.discard(staging)
        assert sink.marker(plan.window_id) is None
        assert self.rows(sink) == Counter()
        assert publish(sink, plan, "b").won

    def test_facts_are_held_against_the_storage(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = plan_of(sink)
        staging = sink.begin(plan, "a")
        stage(staging, "a")
        counts = told(staging)
        (fact,) = counts.files or ()
        for wrong, said in (
            ((replace(fact, size=fact.size + 1),), "were written"),
            ((replace(fact, path="part-1.parquet"),), "is not there"),
            ((fact, fact), "named 2 times"),
            ((replace(fact, partitions={"1:0": 3}),), "1:1: 0 records in files, 1 counted"),
        ):
            with pytest.raises(CountMismatch, match=said):
                sink.publish(staging, plan, replace(counts, files=wrong), ignore)
        assert sink.marker(plan.window_id) is None
        assert sink.publish(staging, plan, counts, ignore).won
        assert self.rows(open_sink()) == written_by("a")

    def test_an_empty_window_is_a_marker_alone(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = plan_of(sink)
        staging = sink.begin(plan, "a")
        nothing = IngestCounts({"1:0": 0, "1:1": 0})
        assert sink.publish(staging, plan, nothing, ignore).won
        found = open_sink().marker(plan.window_id)
        assert found is not None
        assert found.counts == nothing
        assert publish(sink, plan_of(sink, 2), "b").won
        assert self.rows(sink) == written_by("b")

    def test_of_many_threads_one_wins(self, open_sink: OpenSink) -> None:
        tries = 5
        publish(open_sink(), plan_of(open_sink(), 9), "before")
        sinks = [open_sink() for _ in range(tries)]
        plans = [plan_of(sinks[0], end=280 + _STEP * number) for number in range(tries)]

        def one(number: int) -> tuple[bool, str]:
            found = publish(sinks[number], plans[number], f"try-{number}")
            return found.won, found.marker.plan.hash

        with ThreadPoolExecutor(tries) as pool:
            outcomes = list(pool.map(one, range(tries)))
        winners = [number for number, (won, _) in enumerate(outcomes) if won]
        assert len(winners) == 1
        assert {found for _, found in outcomes} == {plans[winners[0]].hash}
        sinks[0].tidy(plans[0].window_id)
        expected = written_by("before") + written_by(f"try-{winners[0]}")
        assert self.rows(open_sink()) == expected

    def test_different_windows_at_once_are_all_published(self, open_sink: OpenSink) -> None:
        sinks = [open_sink() for _ in range(4)]

        def one(number: int) -> bool:
            plan = plan_of(sinks[number], number + 1)
            return publish(sinks[number], plan, f"w{number}").won

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(one, range(4))) == [True] * 4
        total: Counter[Row] = sum((written_by(f"w{number}") for number in range(4)), Counter())
        assert self.rows(open_sink()) == total

    def test_of_two_processes_one_wins(self, open_sink: OpenSink, tmp_path: Path) -> None:
        names = ("left", "right")
        barrier = CONTEXT.Barrier(2)
        outcomes = {name: tmp_path / f"{name}.json" for name in names}
        children = [
            start(open_sink, name, outcomes[name], end=280 + 280 * number, barrier=barrier)
            for number, name in enumerate(names)
        ]
        for child in children:
            child.join(CHILD_TIMEOUT)
            assert child.exitcode == 0
        found = [json.loads(path.read_text()) for path in outcomes.values()]
        winners = [outcome["who"] for outcome in found if outcome["won"]]
        assert len(winners) == 1
        assert len({outcome["hash"] for outcome in found}) == 1
        assert self.rows(open_sink()) == written_by(winners[0])

    def test_killed_while_publishing_the_retry_makes_it_right(
        self, open_sink: OpenSink, tmp_path: Path
    ) -> None:
        expected: Counter[Row] = Counter()
        points = [*self.points]
        if not points:
            sink = open_sink()
            plan = plan_of(sink, 99)
            staging = sink.begin(plan, "dry")
            stage(staging, "dry")
            sink.publish(staging, plan, COUNTS, points.append)
            expected += written_by("dry")
        for seq, point in enumerate(dict.fromkeys(points), start=1):
            killed = start(open_sink, f"k{seq}", tmp_path / "none", seq=seq, kill_at=point)
            killed.join(CHILD_TIMEOUT)
            assert killed.exitcode == -signal.SIGKILL, point
            sink = open_sink()
            plan = plan_of(sink, seq)
            visible = sink.marker(plan.window_id) is not None
            whole = written_by(f"k{seq}") if visible else Counter()
            assert self.rows(sink) == expected + whole, point
            found = publish(sink, plan, f"r{seq}")
            sink.tidy(plan.window_id)
            assert found.won is not visible
            expected += written_by(f"r{seq}" if found.won else f"k{seq}")
            assert self.rows(open_sink()) == expected, point

    def test_a_replaced_window_has_the_new_records_alone(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = plan_of(sink)
        publish(sink, plan, "old")
        staging = sink.begin(plan, "new")
        stage(staging, "new")
        if not sink.can_replace:
            with pytest.raises(ConfigError, match="on_clear='rewrite'"):
                sink.replace(staging, plan, COUNTS, ignore)
            assert self.rows(open_sink()) == written_by("old")
            return
        assert sink.replace(staging, plan, COUNTS, ignore).won
        assert self.rows(open_sink()) == written_by("new")
        assert list(open_sink().window_ids()) == [plan.window_id]

    def test_tidy_leaves_the_published_window_alone(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        plan = plan_of(sink)
        stage(sink.begin(plan, "dead"), "dead")
        publish(sink, plan, "a")
        sink.tidy(plan.window_id)
        sink.tidy(plan.window_id)
        assert self.rows(sink) == written_by("a")
        assert publish(sink, plan_of(sink, 2), "b").won

    def test_boundaries_are_fixed_once(self, open_sink: OpenSink) -> None:
        book = open_sink().boundaries
        if book is None:
            pytest.skip("this sink has no place for boundaries")
        key = "20261121T120000Z-0123456789"
        assert book.read(key) is None
        assert book.fix(key, {"v": 1}) == {"v": 1}
        other = open_sink().boundaries
        assert other is not None
        assert other.fix(key, {"v": 2}) == {"v": 1}
        assert other.read(key) == {"v": 1}

    def test_boundaries_are_listed_and_can_be_taken_back(self, open_sink: OpenSink) -> None:
        book = open_sink().boundaries
        if book is None:
            pytest.skip("this sink has no place for boundaries")
        assert list(book.listing()) == []
        keys = {"20261121T120000Z-0123456789", "turn-1-0123456789", "retired-3-0123456789"}
        for key in keys:
            book.fix(key, {"v": 1})
        other = open_sink().boundaries
        assert other is not None
        assert set(other.listing()) == keys
        other.withdraw("turn-1-0123456789")
        other.withdraw("turn-1-0123456789")
        assert set(book.listing()) == keys - {"turn-1-0123456789"}
        assert book.read("turn-1-0123456789") is None

    def test_boundaries_are_listed_from_an_instant_on(self, open_sink: OpenSink) -> None:
        book = open_sink().boundaries
        if book is None:
            pytest.skip("this sink has no place for boundaries")
        assert isinstance(book, OrderedBook)
        h = "0123456789"
        instants = [f"20261121T{at}Z-{h}" for at in ("110000", "120000.5", "120000", "130000")]
        others = [f"retired-3-{h}", f"turn-12-{h}"]
        for key in (*instants, *others):
            book.fix(key, {"v": 1})
        assert set(book.listing_from("20261121T120000")) == {*instants[1:], *others}
        assert set(book.listing_from("turn-")) == {others[1]}

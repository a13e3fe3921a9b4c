"""Contract of every `Source`: what the built-in ones pass.

    class TestMySource(SourceSuite):
        def make(self, tmp_path):
            return SourceTopic("mine", {"root": str(tmp_path)}, "orders", produce)

`make` returns a topic that exists, has at least one partition and no records yet; `produce` appends
records and returns once they are below the stable end. The kind is looked up like in a Dag, so the
plug-in has to be installed.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.files.columns import columns_of
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sources.base import Source
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.steps import WindowRun
from tubemq_provider.windows.spaces import space_of

__all__ = ["Pipeline", "SourceSuite", "SourceTopic"]

_STOPS = 40
"""More points than a run has."""


class SourceTopic(NamedTuple):
    """Topic for a suite: its kind, the options of the connection, its name, and a producer.

    `secrets` are texts among the options that nothing may repeat. `values` is the column of bodies,
    and `body` turns one of its values into the bytes that were produced.
    """

    kind: str
    options: Mapping[str, Any]
    topic: str
    produce: Callable[[Sequence[bytes]], None]
    secrets: tuple[str, ...] = ()
    values: str = "value"
    body: Callable[[Any], bytes] = bytes

    def settings(self) -> Any:
        """Return settings as a hook makes them."""
        return config_of(self.kind).parse(self.options).settings()

    def open(self) -> Source:
        """Open the topic as a task does."""
        return open_source(
            self.kind, self.settings(), identity="suite", topic=self.topic, group="suite"
        )


class Pipeline:
    """Windows of a topic into a Parquet directory, by the inline engine."""

    def __init__(self, topic: SourceTopic, root: Path) -> None:
        self.topic, self.sink, self.journal = topic, ParquetSink(root), MemoryJournal()
        self.tries = 0

    def run(self, source: Source, task: str, **options: Any) -> WindowRun:
        """Return a try of the task `task`."""
        self.tries += 1
        scope = WindowScope(
            source.identity,
            source.topic,
            source.group,
            self.sink.identity,
            source=source.space.source,
        )
        planner = CursorPlanner(scope, source.ends, "earliest", **options)
        return window_run(
            planner,
            MemoryOffsetStore(self.journal, task=task),
            self.sink,
            InlineEngine.for_source(source, policies=Policies()),
            attempt=f"try-{self.tries}",
        )

    def bodies(self) -> Counter[bytes]:
        """Return the bodies in the sink."""
        table = read_windows(self.sink).to_table()
        if not table.num_rows:
            return Counter()
        return Counter(map(self.topic.body, table[self.topic.values].to_pylist()))


def bodies_of(count: int, prefix: str = "body") -> list[bytes]:
    """Return different bodies."""
    return [f"{prefix} {number}".encode() for number in range(count)]


class SourceSuite:
    """Behaviour shared by all sources. Subclasses define `make`."""

    def make(self, tmp_path: Path) -> SourceTopic:
        """Create an empty topic, and return it."""
        raise NotImplementedError

    @pytest.fixture
    def topic(self, tmp_path: Path) -> SourceTopic:
        """Return the topic."""
        return self.make(tmp_path)

    @pytest.fixture
    def source(self, topic: SourceTopic) -> Iterator[Source]:
        """Return the open source."""
        with topic.open() as source:
            yield source

    def read(self, topic: SourceTopic, source: Source, ranges: Mapping[str, Any]) -> list[bytes]:
        """Read ranges by key, and check each batch."""
        columns = columns_of(topic.kind)
        assert {"partition", topic.values} <= set(columns.names)
        plan = WindowPlan.cursor(
            WindowScope("suite", topic.topic, "suite", "memory", source=topic.kind), 1, ranges
        )
        found: list[bytes] = []
        with source.open_reader(plan, Policies()) as reader:
            for range_ in plan.reads():
                for batch in reader.read(range_):
                    rows = batch.to_arrow(columns.arrow_schema())
                    assert rows.schema == columns.arrow_schema()
                    assert rows.num_rows == len(batch) == len([*batch.messages()])
                    some = columns.arrow_schema(["partition", topic.values])
                    assert batch.to_arrow(some).schema == some
                    assert set(rows["partition"].to_pylist()) <= {range_.partition.key}
                    if "offset" in columns.names:
                        offsets = rows["offset"].drop_null().to_pylist()
                        assert offsets == sorted(offsets)
                        assert all(range_.start <= at < range_.end for at in offsets)
                    bodies = [topic.body(each) for each in rows[topic.values].to_pylist()]
                    assert batch.nbytes >= sum(map(len, bodies))
                    found += bodies
            assert reader.stats.corrupt == 0
            assert [*reader.stats.gaps] == []
        return found

    def whole(self, source: Source) -> dict[str, tuple[int, int]]:
        """Return the range of each partition, from its start to its stable end."""
        starts = {partition.key: start for partition, start in source.starts().items()}
        ends = {partition.key: found.max_offset for partition, found in source.ends().items()}
        return {key: (starts[key], ends[key]) for key in source.space.ordered(ends)}

    def test_keys_and_offsets_belong_to_the_space(self, topic: SourceTopic, source: Source) -> None:
        topic.produce(bodies_of(5))
        space = source.space
        assert space is space_of(topic.kind)
        assert space.source == topic.kind
        partitions = [*source.partitions()]
        assert partitions
        for partition in partitions:
            assert space.is_key(partition.key)
            assert space.partition(topic.topic, partition.key) == partition
        for text in ("", "no key of anything", None, 7):
            assert not space.is_key(text)
        with pytest.raises(ValueError, match=r"."):
            space.partition(topic.topic, "no key of anything")
        for partition, ends in source.ends().items():
            assert ends.partition == partition
            assert ends.stable
            assert space.offset_problem(ends.min_offset) is None
            assert space.offset_problem(ends.max_offset) is None

    def test_ends_grow_with_records_and_starts_do_not(
        self, topic: SourceTopic, source: Source
    ) -> None:
        before = {key: end for key, (_, end) in self.whole(source).items()}
        assert all(start <= end for start, end in self.whole(source).values())
        topic.produce(bodies_of(7))
        after = self.whole(source)
        assert all(before.get(key, 0) <= end for key, (_, end) in after.items())
        assert {key: end for key, (_, end) in after.items()} != before
        assert self.whole(source) == after
        latest = {found.key: end.max_offset for found, end in source.ends("latest").items()}
        assert all(latest[key] >= end for key, (_, end) in after.items())

    def test_a_whole_range_has_each_record_once(self, topic: SourceTopic, source: Source) -> None:
        bodies = bodies_of(50)
        topic.produce(bodies)
        found = self.read(topic, source, self.whole(source))
        assert Counter(found) == Counter(bodies)
        assert self.read(topic, source, self.whole(source)) == found
        assert (
            self.read(topic, source, {k: (a, a) for k, (a, _) in self.whole(source).items()}) == []
        )

    def test_adjacent_ranges_tile_the_topic(self, topic: SourceTopic, source: Source) -> None:
        bodies = bodies_of(30)
        topic.produce(bodies)
        step, found = source.space.step, list[bytes]()
        for key, (start, end) in self.whole(source).items():
            entries = (end - start) // step
            cuts = sorted({0, 1, entries // 3, entries // 3 + 1, entries // 2, entries})
            for low, high in pairwise(cut for cut in cuts if cut <= entries):
                found += self.read(topic, source, {key: (start + low * step, start + high * step)})
        assert Counter(found) == Counter(bodies)

    def test_windows_of_a_growing_topic_have_each_record_once(
        self, topic: SourceTopic, tmp_path: Path
    ) -> None:
        lake, bodies = Pipeline(topic, tmp_path / "lake"), list[bytes]()
        for number in range(3):
            more = bodies_of(8, f"window {number}")
            topic.produce(more)
            bodies += more
            with topic.open() as source:
                assert lake.run(source, f"task-{number}").run().total == len(more)
        with topic.open() as source:
            assert lake.run(source, "nothing").run().empty
        with topic.open() as source:
            assert lake.run(source, "task-0").run().replayed
        assert lake.bodies() == Counter(bodies)

    def test_a_run_stopped_at_any_point_is_finished_by_its_retry(
        self, topic: SourceTopic, tmp_path: Path
    ) -> None:
        lake, bodies = Pipeline(topic, tmp_path / "lake"), list[bytes]()
        for stop in range(0, _STOPS, 4):
            more = bodies_of(2, f"stop {stop}")
            topic.produce(more)
            bodies += more
            with topic.open() as source:
                steps = lake.run(source, f"task-{stop}").steps()
                for _ in range(stop):
                    next(steps, None)
                del steps
            with topic.open() as source:
                lake.run(source, f"task-{stop}").run()
        assert lake.bodies() == Counter(bodies)

    def test_a_limited_window_leaves_the_rest_to_the_next(
        self, topic: SourceTopic, source: Source, tmp_path: Path
    ) -> None:
        bodies = bodies_of(12)
        topic.produce(bodies)
        lake = Pipeline(topic, tmp_path / "lake")
        for number in range(30):
            if lake.run(source, f"task-{number}", max_records=5).run().empty:
                break
        assert lake.bodies() == Counter(bodies)
        assert len([*lake.sink.window_ids()]) > 1

    def test_a_position_may_be_mirrored(self, topic: SourceTopic, source: Source) -> None:
        topic.produce(bodies_of(3))
        left_out = source.mirror({key: end for key, (_, end) in self.whole(source).items()})
        assert not left_out

    def test_a_probe_reads_small_ranges(self, topic: SourceTopic, source: Source) -> None:
        topic.produce(bodies_of(6))
        read = source.probe()
        seen = 0
        for key, (start, end) in self.whole(source).items():
            seen += sum(1 for _ in read(source.space.ranges(topic.topic, key, start, end)))
        assert seen == 6

    def test_settings_travel_and_show_no_secret(self, topic: SourceTopic) -> None:
        topic.produce(bodies_of(3))
        settings = pickle.loads(pickle.dumps(topic.settings()))  # noqa: S301 - the suite's own
        with open_source(
            topic.kind, settings, identity="suite", topic=topic.topic, group="suite"
        ) as source:
            assert Counter(self.read(topic, source, self.whole(source))) == Counter(bodies_of(3))
            shown = f"{settings!r} {source!r} {source.space!r}"
        assert not [secret for secret in topic.secrets if secret in shown]

    def test_wrong_options_are_refused_without_their_secrets(self, topic: SourceTopic) -> None:
        with pytest.raises(ConfigError) as caught:
            config_of(topic.kind).parse({**topic.options, "no_such_option": "1"})
        text = str(caught.value)
        assert "no_such_option" in text
        assert not [secret for secret in topic.secrets if secret in text]

    def test_an_unknown_resolver_is_refused(self, source: Source) -> None:
        with pytest.raises(ConfigError):
            source.resolver("no_such_resolver", {})

    def test_closing_twice_is_allowed(self, topic: SourceTopic) -> None:
        source = topic.open()
        source.close()
        with topic.open() as again:
            again.ends()
        again.close()

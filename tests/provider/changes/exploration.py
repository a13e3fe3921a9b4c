"""Windows of routes killed at every point, between and inside the steps of all tables.

Five tables in five kinds of sinks: a directory, an object store's layout, Delta, Iceberg and a
database. Each window is killed at the next point, and once more at a random one, until no point is
left. After each window every table must have each record of its stream once. `python -m
tests.provider.changes.exploration` visits every point; `--stride 8` every eighth, `--spark` those
of the engines on Spark.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from deltalake import DeltaTable

from tests.provider.changes.test_followed_tables import DieAfter, Died
from tests.provider.changes.test_routes import KEYS, Topic
from tests.provider.sinks.openers import iceberg, iceberg_catalog
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sinks.routed import Route, RoutedSink
from tubemq_provider.windows.protocols import Step

STREAMS = ("files", "objects", "delta", "iceberg", "rows")


class Killable:
    """Sink of one table whose every call is a point before and after it."""

    def __init__(self, sink: Any, at: Callable[[str], None]) -> None:
        self._sink, self._at = sink, at
        self.identity, self.kind, self.independent = sink.identity, sink.kind, False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._sink, name)

        def call(*arguments: Any) -> Any:
            self._at(f"{self.kind}: before {name}")
            answer = method(*arguments)
            self._at(f"{self.kind}: after {name}")
            return answer

        return call


class Lake:
    """Topic, home and the five tables, under a kind of routed sink that may be mistaken."""

    def __init__(
        self,
        root: Path,
        kind: type[RoutedSink] = RoutedSink,
        streams: tuple[str, ...] = STREAMS,
        topic: Callable[[Path, Any], Any] = Topic,
    ) -> None:
        self.root, self._kind, self.streams = root, kind, streams
        tables = {name: f"{root}/{name}" for name in streams}
        self.topic = topic(root / "home", {"name": "shop", "tables": tables})
        self.sent: dict[str, Counter[bytes]] = {name: Counter() for name in streams}
        self._at: Callable[[str], None] = lambda _: None
        self.topic.make_sink = self._sink

    def _sink(self, home: Any, routes: Any) -> RoutedSink:
        return self._kind(home, routes, self._open_table)

    def _open_table(self, route: Route, address: str) -> Any:
        name = Path(address).name
        staging = self.root / f"{name}_staging"
        openers: dict[str, Callable[[], Any]] = {
            "objects": lambda: ObjectStoreSink(address),
            "delta": lambda: DeltaSink(address, staging_root=staging),
            "iceberg": lambda: iceberg(Path(address)),
            "rows": lambda: sink_for(f"sqlite:///{self.root}/lake.db?table=rows"),
        }
        opened = openers.get(name, lambda: sink_for(address))()

        def at(point: str) -> None:
            self._at(point)  # that of the run, not of now

        return Killable(opened, at)

    def send(self, rng: random.Random, count: int = 14) -> None:
        """Add records of each stream, the same number as of any other at the least."""
        for at in range(count):
            some = at < len(self.streams)
            name = self.streams[at] if some else rng.choice(self.streams)
            body = b"%d.%d" % (sum(map(Counter.total, self.sent.values())), at)
            self.topic.add(rng.choice(KEYS), name, body)
            self.sent[name][body] += 1

    def run(self, task: str, points: int | None = None) -> int | None:
        """Run a window; return the number of its points, or None if it was killed before."""
        observer = DieAfter(10**6 if points is None else points)
        self._at = lambda point: observer.at(Step.PUBLISH, point)
        try:
            self.topic.run(task, observer)
        except Died:
            return None
        return (10**6 if points is None else points) - observer.points

    def stored(self, name: str) -> Counter[bytes]:
        """Return the bodies in a table."""
        place = self.root / name
        if name == "rows":
            with sa.create_engine(f"sqlite:///{self.root}/lake.db").connect() as connection:
                if not sa.inspect(connection).has_table("rows"):
                    return Counter()
                return Counter(connection.scalars(sa.text("SELECT value FROM rows")))
        if name == "iceberg":
            catalog = iceberg_catalog(place)
            if not catalog.table_exists("sales.orders"):
                return Counter()
            table = catalog.load_table("sales.orders").scan().to_arrow()
            return Counter(table["value"].to_pylist())
        if name == "delta":
            if not DeltaTable.is_deltatable(str(place)):
                return Counter()
            return Counter(DeltaTable(str(place)).to_pyarrow_table()["value"].to_pylist())
        sink = ObjectStoreSink(str(place)) if name == "objects" else sink_for(place)
        return Counter(read_windows(sink).to_table()["value"].to_pylist())

    def problems(self) -> list[str]:
        """Return the tables that have not each record once."""
        return [
            f"{name}: {(self.sent[name] - found).total()} lost, "
            f"{(found - self.sent[name]).total()} doubled"
            for name in self.streams
            if (found := self.stored(name)) != self.sent[name]
        ]


def explore(lake: Lake, *, stride: int = 1) -> tuple[int, int]:
    """Kill a window at every `stride`-th point; return the numbers of points and of kills. Raises
    `AssertionError` at the first table that has not each record once."""
    rng = random.Random(stride)
    lake.send(rng)
    total = lake.run("first")
    assert total is not None
    kills = 0
    for point in range(stride // 2, total, stride):
        lake.send(rng)
        task = f"t{point}"
        for points in (point, rng.randrange(total)):
            kills += lake.run(task, points) is None
        assert lake.run(task) is not None
        problems = lake.problems()
        assert not problems, f"killed at point {point}: {problems}"
    return total, kills


class SkipsATable(RoutedSink):
    """Mistake: a try that finds a table published takes the last one for published, too."""

    def publish_tables(self, staging: Any, *others: Any) -> None:
        tables = self.tables(staging)
        if any(table.marker for table in tables):
            tables[-1].staging = None
        super().publish_tables(staging, *others)


class ForgetsRoutes(RoutedSink):
    """Mistake: a try does not look at which tables an earlier one has published."""

    def _note_publishing(self, *_: Any) -> None:
        """Note nothing."""


class PublishesTwice(ForgetsRoutes):
    """Mistake: the id of a table's window depends on the try, too."""

    def _table(self, staging: Any, plan: Any, route: Any, value: str) -> Any:
        identity = self.identity
        try:
            self.identity = f"{identity}/{staging.path}"
            return super()._table(staging, plan, route, value)
        finally:
            self.identity = identity


def change_a_route(lake: Lake) -> list[str]:
    """Move the stream of the first published table to the last one between two tries; return the
    problems of the tables. Raises `CountMismatch` where it is seen."""
    lake.send(random.Random(1))
    total = lake.run("first")
    assert total is not None
    lake.send(random.Random(2))
    first, last = min(lake.streams), max(lake.streams)
    points = total // 2
    while lake.stored(first) != lake.sent[first]:
        assert lake.run("second", points) is None
        points += 1
    before = lake.topic.routes
    tables = {**before["tables"], first: before["tables"][last]}
    lake.topic.routes = {**before, "tables": tables}
    lake.run("second")
    return lake.problems()


def main() -> int:
    """Explore, and say how many kills there were."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--spark", action="store_true", help="tasks of Spark, in this process")
    options = parser.parse_args()
    with ExitStack() as stack:
        topic: Callable[[Path, Any], Any] = Topic
        if options.spark:
            from tests.provider.spark.routed import SparkTopic, serving

            topic = partial(SparkTopic, stack.enter_context(serving()))
        root = stack.enter_context(tempfile.TemporaryDirectory())
        points, kills = explore(Lake(Path(root), topic=topic), stride=options.stride)
    print(f"{points} points, {kills} kills over five kinds of tables: 0 lost, 0 doubled")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Cleared tasks in each sink: windows are counted again, or replaced in one step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from tests.provider.sinks.gcs_server import gcs_server
from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.openers import delta, jdbc, object_store, parquet
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, expected, open_fake
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.files.locations import location_of
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import SinkDamaged, SinkHistoryLost, StoreConflict
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import OnClear, Policies
from tubemq_provider.windows.protocols import IngestCounts, Progress, Sink, Step
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

ENDS = dict.fromkeys(KEYS, 28 * 12)


class Died(BaseException):
    """The process is gone."""


class DieAt:
    def __init__(self, point: str) -> None:
        self.point = point

    def at(self, step: Step, point: str) -> None:
        if step is Step.PUBLISH and point == self.point:
            raise Died


class Scene:
    """A window that one task has written, and clears again."""

    def __init__(self, open_sink: Callable[[], Any], values: Callable[[], list[bytes]]) -> None:
        self.open_sink, self.values = open_sink, values
        self.journal = MemoryJournal()

    def run(self, on_clear: str = "verify", *, cleared: bool = True, die: str = "") -> WindowResult:
        sink: Sink = self.open_sink()
        scope = WindowScope("c1", TOPIC, "g1", sink.identity)
        planner = CursorPlanner(
            scope,
            lambda: ends_of(ENDS),
            initial_position="earliest",
            policies=Policies(on_clear=OnClear(on_clear)),
        )
        store = MemoryOffsetStore(self.journal, task="cleared")
        run = window_run(
            planner,
            store,
            sink,
            InlineEngine(open_fake),
            attempt="a",
            observer=DieAt(die),
            cleared=cleared,
        )
        return run.run()


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with object_server("clear") as options:
        yield options


@pytest.fixture(params=["object_store", "local_objects", "jdbc"])
def rewriting(request: pytest.FixtureRequest, tmp_path: Path, server: dict[str, str]) -> Scene:
    """Sinks that can replace a window."""
    if request.param == "jdbc":
        url = f"sqlite:///{tmp_path}/lake.db"

        def rows() -> list[bytes]:
            with sa.create_engine(url).connect() as connection:
                return sorted(connection.scalars(sa.text("SELECT value FROM orders")))

        return Scene(lambda: jdbc(url, "orders", tmp_path / "staging"), rows)
    remote = request.param == "object_store"
    place = f"s3://clear/{request.node.name}" if remote else str(tmp_path / "objects")
    options = server if remote else None

    staging = None if remote else tmp_path / "staging"

    def in_files() -> list[bytes]:
        found = read_windows(object_store(place, staging, options))
        return sorted(found.to_table()["value"].to_pylist())

    return Scene(lambda: object_store(place, staging, options), in_files)


def test_a_rewrite_replaces_the_window_and_survives_a_crash(rewriting: Scene) -> None:
    first = rewriting.run("rewrite", cleared=False)
    again = rewriting.run("rewrite")
    assert not again.replayed
    assert (again.window_id, again.hash) == (first.window_id, first.hash)
    assert rewriting.values() == expected(ENDS)
    for point in ("files verified", "manifest replaced", "rows counted", "committed"):
        try:
            rewriting.run("rewrite", die=point)
        except Died:
            assert rewriting.values() == expected(ENDS)
    assert not rewriting.run("rewrite").replayed
    assert rewriting.run("rewrite", cleared=False).replayed
    assert rewriting.values() == expected(ENDS)


def test_a_retry_without_a_clear_rewrites_nothing(rewriting: Scene) -> None:
    rewriting.run("rewrite", cleared=False)
    assert rewriting.run("rewrite", cleared=False).replayed


def test_of_two_rewrites_one_stays_and_nothing_of_the_other(
    tmp_path: Path, server: dict[str, str]
) -> None:
    for place, staging, options in (
        (str(tmp_path / "o"), tmp_path, None),
        ("s3://clear/race", tmp_path, server),
        ("s3://clear/race-in-place", None, server),
    ):
        places = [staging and staging / f"s{i}" for i in range(4)]
        sinks = [object_store(place, where, options) for where in places]
        scope = WindowScope("c1", TOPIC, "g1", sinks[0].identity)
        plan = WindowPlan.explicit(scope, {"1:0": (0, 84)})
        _publish(sinks[0], plan, b"old")
        start = threading.Barrier(len(sinks))
        won: list[bool] = []

        def replace(sink: ObjectStoreSink, number: int) -> None:
            start.wait(60)  # noqa: B023
            with suppress(StoreConflict):
                won.append(_publish(sink, plan, b"new %d" % number, replace=True))  # noqa: B023

        threads = [threading.Thread(target=replace, args=(sink, i)) for i, sink in enumerate(sinks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sum(won) >= 1
        sinks[0].tidy(plan.window_id)
        values = read_windows(sinks[0]).to_table()["value"].to_pylist()
        assert len(values) == 3
        assert len(set(values)) == 1
        assert values[0] != b"old"
        assert len([*sinks[0].storage.names("data")]) == 1


@pytest.mark.parametrize("point", ["replacement noted", "file uploaded"])
def test_a_rewrite_that_is_overtaken_by_one_that_dies_is_done_by_its_retry(
    tmp_path: Path, server: dict[str, str], point: str
) -> None:
    """The old records are no answer to what was asked for, whatever the other try comes to."""
    for place, options in ((str(tmp_path / "o"), None), (f"s3://clear/dies-{len(point)}", server)):
        slow, dying = (object_store(place, tmp_path / f"s{i}", options) for i in range(2))
        scope = WindowScope("c1", TOPIC, "g1", slow.identity)
        plan = WindowPlan.explicit(scope, {"1:0": (0, 84)})
        _publish(slow, plan, b"old")

        def die(at: str) -> None:
            if at == "file uploaded":
                raise Died

        def overtake(at: str) -> None:
            if at == point:
                with pytest.raises(Died):
                    _publish(dying, plan, b"dead", replace=True, progress=die)  # noqa: B023

        with pytest.raises(StoreConflict) as overtaken:
            _publish(slow, plan, b"slow", replace=True, progress=overtake)
        assert overtaken.value.retriable
        assert read_windows(slow).to_table()["value"].to_pylist() == [b"old"] * 3
        assert _publish(slow, plan, b"retry", replace=True)
        slow.tidy(plan.window_id)
        assert read_windows(slow).to_table()["value"].to_pylist() == [b"retry"] * 3
        assert len(list(slow.storage.names("data"))) == 1


def test_google_cloud_storage_rewrites_by_generations(tmp_path: Path) -> None:
    with gcs_server() as options:
        sinks = [object_store("gs://lake/orders", tmp_path / f"s{i}", options) for i in range(2)]
        scope = WindowScope("c1", TOPIC, "g1", sinks[0].identity)
        plan = WindowPlan.explicit(scope, {"1:0": (0, 84)})
        assert _publish(sinks[0], plan, b"old")
        assert not _publish(sinks[1], plan, b"late")
        assert _publish(sinks[1], plan, b"new", replace=True)
        name = f"_tubemq/windows/{plan.window_id}.json"
        known = sinks[0].storage.read(name)
        assert known is not None
        assert _publish(sinks[1], plan, b"newer", replace=True)
        assert not sinks[0].storage.swap(name, known, known)
        sinks[0].tidy(plan.window_id)
        assert read_windows(sinks[0]).to_table()["value"].to_pylist() == [b"newer"] * 3


def test_who_tidies_leaves_the_files_of_a_rewrite(tmp_path: Path, server: dict[str, str]) -> None:
    for place, options in ((str(tmp_path / "o"), None), ("s3://clear/tidied", server)):
        first, rewriting = (object_store(place, tmp_path / f"s{i}", options) for i in range(2))
        scope = WindowScope("c1", TOPIC, "g1", first.identity)
        plan = WindowPlan.explicit(scope, {"1:0": (0, 84)})
        _publish(first, plan, b"old")

        def tidy(point: str) -> None:
            if point == "file uploaded":
                first.tidy(plan.window_id)  # noqa: B023

        assert _publish(rewriting, plan, b"new", replace=True, progress=tidy)
        rewriting.tidy(plan.window_id)
        values = read_windows(first).to_table()["value"].to_pylist()
        assert values == [b"new"] * 3


def _publish(
    sink: ObjectStoreSink,
    plan: WindowPlan,
    value: bytes,
    *,
    replace: bool = False,
    progress: Progress = lambda _: None,
) -> bool:
    staging = sink.begin(plan, value.decode())
    table = pa.table({"partition": ["1:0"] * 3, "value": [value] * 3})
    output = location_of(staging).create("part.parquet")
    pq.write_table(table, output.stream)
    output.finish()
    step = sink.replace if replace else sink.publish
    return step(staging, plan, IngestCounts({"1:0": 3}), progress).won


def test_a_cleared_window_is_counted_again(tmp_path: Path) -> None:
    scene = Scene(lambda: parquet(tmp_path), list)
    scene.run(cleared=False)
    assert scene.run().replayed
    file = next(tmp_path.glob("window_id=*/part-*.parquet"))
    whole = pq.read_table(file)
    pq.write_table(whole.slice(1), file)
    with pytest.raises(SinkDamaged, match="5 rows in the sink, 6 were published"):
        scene.run()
    file.unlink()
    with pytest.raises(SinkHistoryLost, match="has it no more"):
        scene.run()


def test_deleted_rows_are_missed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    scene = Scene(lambda: jdbc(url, "orders", tmp_path / "staging"), list)
    scene.run(cleared=False)
    assert scene.run().replayed
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("DELETE FROM orders WHERE partition = '2:1'"))
    with pytest.raises(SinkDamaged, match="2:1: 0 rows in the sink, 6 were published"):
        scene.run()
    assert not scene.run("rewrite").replayed
    assert scene.run().replayed


def test_sinks_that_cannot_replace_say_so(tmp_path: Path) -> None:
    for sink in (parquet(tmp_path / "p"), delta(str(tmp_path / "d"))):
        assert not sink.can_replace
        with pytest.raises(ConfigError, match="replaces a window in one step"):
            Scene(lambda sink=sink: sink, list).run("rewrite")

"""Windows whose records are kept elsewhere: one try wins the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.windows import COUNTS, ignore, plan_of
from tubemq_provider.sinks.markers import MarkerSink
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Publication, Sink

Open = Callable[[], MarkerSink]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_server() as found:
        yield found


@pytest.fixture(params=["directory", "s3"])
def open_sink(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "directory":
        return lambda: MarkerSink.at(tmp_path / "done")
    options = request.getfixturevalue("options")
    url = f"s3://lake/{tmp_path.name}"
    return lambda: MarkerSink.at(url, storage_options=options)


def publish(sink: MarkerSink, plan: WindowPlan, attempt: str) -> Publication:
    return sink.publish(sink.begin(plan, attempt), plan, COUNTS, ignore)


def test_a_marker_comes_back_as_it_went_in(open_sink: Open) -> None:
    sink = open_sink()
    plans = [plan_of(sink, seq) for seq in (1, 2)]
    assert isinstance(sink, Sink)
    assert [sink.marker(plan.window_id) for plan in plans] == [None, None]
    assert list(sink.window_ids()) == []
    assert all(publish(sink, plan, "a").won for plan in plans)
    other = open_sink()
    found = [other.marker(plan.window_id) for plan in plans]
    assert [(m.plan, m.counts, m.files) for m in found if m] == [(p, COUNTS, ()) for p in plans]
    assert set(other.window_ids()) == {plan.window_id for plan in plans}


def test_of_many_threads_one_wins_and_all_learn_its_plan(open_sink: Open) -> None:
    sinks = [open_sink() for _ in range(5)]
    plans = [plan_of(sinks[0], end=280 + 28 * number) for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(publish, sinks, plans, map(str, range(5))))
    (winner,) = (number for number, outcome in enumerate(found) if outcome.won)
    assert {outcome.marker.plan.hash for outcome in found} == {plans[winner].hash}


def test_a_try_that_died_after_its_marker_has_done_the_window(open_sink: Open) -> None:
    sink = open_sink()
    plan = plan_of(sink)

    def die(point: str) -> None:
        raise KeyboardInterrupt(point)

    with pytest.raises(KeyboardInterrupt, match="marker written"):
        sink.publish(sink.begin(plan, "dead"), plan, COUNTS, die)
    assert publish(open_sink(), plan, "dead").won  # the same try asks again
    assert not publish(open_sink(), plan, "next").won
    sink.discard(sink.begin(plan, "next"))
    sink.tidy(plan.window_id)
    assert open_sink().marker(plan.window_id) is not None


def test_a_marker_that_was_edited_is_refused_with_its_place(tmp_path: Path) -> None:
    sink = MarkerSink.at(tmp_path / "done")
    plan = plan_of(sink)
    publish(sink, plan, "a")
    (path,) = (found for found in (tmp_path / "done").rglob("*") if plan.window_id in found.name)
    path.write_text(path.read_text().replace('"1:0"', '"1:7"'))
    with pytest.raises(SinkDamaged, match=plan.window_id):
        MarkerSink.at(tmp_path / "done").marker(plan.window_id)


def test_markers_of_a_directory_that_is_not_mounted_are_missed(tmp_path: Path) -> None:
    sink = MarkerSink.at(tmp_path / "done")
    assert "not mounted" in str(sink.missing())
    publish(sink, plan_of(sink), "a")
    assert MarkerSink.at(tmp_path / "done").missing() is None
    assert MarkerSink.at("s3://lake/done", storage_options={"region": "x"}).missing() is None

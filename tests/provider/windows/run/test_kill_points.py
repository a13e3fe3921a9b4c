"""SIGKILL between and inside each of the eight steps, on real files: the rerun makes it right.

Every point of a run is named in `POINTS`; a test compares the list with what a run really passes,
so a new action cannot go undrilled.
"""

from __future__ import annotations

import json
import random
import signal
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from tests.kit.forked import CONTEXT
from tests.provider.windows.fake_reader import KEYS, TOPIC, expected
from tests.provider.windows.kill_child import Point, run_window
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.verify import chain_problems

pytestmark = pytest.mark.timeout(120)

CHILD_TIMEOUT = 60

FIRST = dict.fromkeys(KEYS, 28 * 11)
SECOND = {"1:0": 28 * 40, "1:1": 28 * 40, "2:0": 28 * 33, "2:1": 28 * 33}
THIRD = dict.fromkeys(KEYS, 28 * 50)

INSIDE: dict[str, list[str]] = {
    "load": [
        "cursor read",
        "event read",
        "windows listed",
        "marker of position read",
        "history of sink read",
    ],
    "plan": [
        "task plan read",
        "stored plan read",
        "plan created",
        "plan stored",
        "task plan stored",
    ],
    "check_marker": ["marker read"],
    "ingest": [
        "staging ready",
        *["row group written"] * 2,
        *["range written"] * 4,
        "records written",
        "ingested",
    ],
    "publish": [
        "cursor read again",
        "marker of position read",
        "history of sink read",
        "files verified",
        "marker staged",
        "staging on disk",
        "renamed",
        "root on disk",
        "published",
        "tidied",
    ],
    "advance": ["cursor read", "cursor stored"],
    "commit_event": ["event emitted"],
    "mirror": ["mirrored"],
}


def _points() -> list[Point]:
    points = []
    for step, inside in INSIDE.items():
        for index, point in enumerate(["begin", *inside, "end"]):
            count = ["begin", *inside][:index].count(point) + 1
            points.append((step, point, count))
    return points


POINTS = _points()


def start(root: Path, task: str, ends: dict[str, int], kill_at: Point | None) -> ForkServerProcess:
    """Run one window in a child; leave its outcome in `<root>/<task>.json`."""
    outcome = str(root / f"{task}.json")
    child = CONTEXT.Process(target=run_window, args=(str(root), task, ends, kill_at, outcome))
    child.start()
    return child


def run(root: Path, task: str, ends: dict[str, int]) -> dict[str, object]:
    """Run to the end; the outcome document."""
    child = start(root, task, ends, None)
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == 0
    outcome: dict[str, object] = json.loads((root / f"{task}.json").read_text())
    return outcome


def check(root: Path, ends: dict[str, int], windows: int | None = None) -> None:
    """Every record up to `ends` once, windows that follow each other, a cursor at their end."""
    sink = ParquetSink(root / "lake")
    table = read_windows(sink.root).to_table(columns=["value"])
    assert sorted(table["value"].to_pylist()) == expected(ends)
    plans = [marker.plan for marker in published_windows(sink.root)]
    assert chain_problems(plans) == []
    assert windows is None or len(plans) == windows
    cursor = json.loads((root / "offsets" / "cursor.json").read_text())
    assert cursor["seq"] == len(plans)
    assert cursor["next"] == plans[-1].ends == ends


def test_the_drilled_points_are_all_points_of_a_run(tmp_path: Path) -> None:
    run(tmp_path, "first", FIRST)
    outcome = run(tmp_path, "second", SECOND)
    seen = [tuple(point) for point in outcome["points"]]  # type: ignore[attr-defined]
    drilled = set(POINTS)
    assert [point for point in seen if point in drilled] == POINTS
    # More row groups than are drilled may be written; everything else is drilled.
    assert {point[:2] for point in seen if point not in drilled} <= {
        ("ingest", "row group written")
    }


@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point)))
def test_killed_at(point: Point, tmp_path: Path) -> None:
    run(tmp_path, "first", FIRST)
    killed = start(tmp_path, "second", SECOND, point)
    killed.join(CHILD_TIMEOUT)
    assert killed.exitcode == -signal.SIGKILL
    run(tmp_path, "second", SECOND)
    check(tmp_path, SECOND, windows=2)
    assert list((tmp_path / ".lake.tubemq-staging").iterdir()) == []


@pytest.mark.parametrize("point", POINTS[::4], ids=lambda point: "-".join(map(str, point)))
def test_killed_at_and_never_retried(point: Point, tmp_path: Path) -> None:
    """The task failed for good; the next scheduled run takes over, with more data there."""
    first = start(tmp_path, "first", FIRST, point)
    first.join(CHILD_TIMEOUT)
    run(tmp_path, "second", SECOND)
    run(tmp_path, "third", THIRD)
    run(tmp_path, "fourth", THIRD)
    check(tmp_path, THIRD)


def test_three_runs_without_new_data_then_one_with_data(tmp_path: Path) -> None:
    run(tmp_path, "first", FIRST)
    for number in range(3):
        outcome = run(tmp_path, f"idle-{number}", FIRST)
        assert outcome["result"]["empty"]  # type: ignore[index]
    run(tmp_path, "second", SECOND)
    check(tmp_path, SECOND, windows=2)
    sink = ParquetSink(tmp_path / "lake")
    h = WindowScope("c1", TOPIC, "g1", sink.identity).scope_hash
    assert set(sink.window_ids()) == {f"c-1-{h}", f"c-2-{h}"}


@pytest.mark.parametrize("seed", range(3))
def test_processes_side_by_side_and_killed_at_random(seed: int, tmp_path: Path) -> None:
    """Nothing serialises these runs but the sink."""
    source = random.Random(seed)
    ends = {"1:0": 0, "1:1": 0, "2:0": 0, "2:1": 0}
    for turn in range(8):
        grown = 28 * source.randrange(12)
        broker = source.choice("12")
        ends |= {key: ends[key] + grown for key in ends if key.startswith(broker)}
        children = [
            start(
                tmp_path,
                f"run-{turn}-{number}",
                dict(ends),
                source.choice(POINTS) if source.random() < 0.6 else None,
            )
            for number in range(3)
        ]
        for child in children:
            child.join(CHILD_TIMEOUT)
            assert child.exitcode in {0, -signal.SIGKILL}
    ends = {key: end + 28 for key, end in ends.items()}
    run(tmp_path, "catch-up", ends)
    run(tmp_path, "last", ends)
    check(tmp_path, ends)

"""Windows in random worlds: each has the records that were on disk, once; missing ones are
reported."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rocketmq_client import errors
from tests.rocketmq.windows.topics import Topic
from tests.rocketmq.windows.worlds import EPOCH, World
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.verify import chain_problems

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WORLDS = int(os.environ.get("ROCKETMQ_WORLDS", "3"))
"""Number of worlds; more by hand."""
STEPS = 12


class Windows:
    """Windows of one kind, in order; a failed try is repeated as the same task."""

    def __init__(self, world: World, root: Path, *, timed: bool) -> None:
        root.mkdir()
        self.world, self.timed = world, timed
        self.topic = Topic(world.mq.settings, "orders", root)
        self.lake = root / "lake"
        self.done = 0
        self.start = self.end = EPOCH

    def attempt(self, *, last: bool = False):
        """Run one try; the last one is a window up to now. Another try must cure a failure, unless
        the group has not begun."""
        if self.timed and self.start == self.end:
            length = self.world.chance.choice([37, 500, 3_000])
            self.end = self.start + timedelta(milliseconds=length)
            self.end = self.world.now - timedelta(seconds=8) if last else self.end
        between = (self.start, self.end)
        most = self.world.chance.choice([None, 3, 20])
        options = {"between": between} if self.timed else {"max_records": None if last else most}
        try:
            result = self.topic.run(f"{self.done}", policies={"gap_policy": "skip"}, **options)
        except (WindowNotReady, errors.RocketMQError) as error:
            if error.retriable or (isinstance(error, errors.UnknownTopic) and not self.done):
                return None
            raise
        self.done += 1
        self.start = self.end
        return result

    def plans(self) -> list[WindowPlan]:
        return [marker.plan for marker in published_windows(self.lake)]

    def rows(self) -> dict[tuple[str, int], bytes]:
        return self.topic.rows()


@pytest.mark.parametrize("seed", range(WORLDS))
def test_windows_of_a_random_world_equal_what_was_on_disk(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with World(seed, monkeypatch) as world:
        cursor = Windows(world, tmp_path / "cursor", timed=False)
        timed = Windows(world, tmp_path / "timed", timed=True)
        world.restless = True
        for _ in range(STEPS):
            world.chance.choice([cursor, timed]).attempt()
        world.heal()
        while (result := cursor.attempt(last=True)) is None or result.total or result.has_more:
            assert result is not None, "nothing is in the way"
        world.past_ms = max(world.past_ms, 60_000)  # an interval may be under way
        for _ in range(2):
            assert timed.attempt(last=True) is not None, "nothing is in the way"
        world.look()

        assert chain_problems(cursor.plans()) == []
        _check_rows(world, cursor)
        _check_rows(world, timed)
        _check_ends(world, cursor)
        _check_times(world, timed)


def _check_rows(world: World, windows: Windows) -> None:
    """Check that each offset of the ranges is a row, or a reported gap without our records."""
    rows, seen = windows.rows(), set()
    for key, offset, is_gap in _places(windows):
        assert (key, offset) not in seen, "in two windows"
        seen.add((key, offset))
        if is_gap:
            assert offset in world.expired[key], "it is there"
        else:
            assert rows.pop((key, offset)) in world.truth[key][offset].data
    assert rows == {}, "outside of all ranges"


def _check_ends(world: World, windows: Windows) -> None:
    """Check that windows reach the end of every queue that has records."""
    ends: dict[str, int] = defaultdict(int)
    for key, offset, _ in _places(windows):
        ends[key] = max(ends[key], offset + 1)
    for key, records in world.truth.items():
        live = records.keys() - world.expired[key]
        assert max(live, default=-1) < ends[key] or not live, key


def _check_times(world: World, windows: Windows) -> None:
    """Check that rows were stored within their window, except those of queues that join with it,
    and that all readable records stored by now are present."""
    rows = set(windows.rows())
    for marker in published_windows(windows.lake):
        start, end = (_milliseconds(datetime.fromisoformat(at)) for at in marker.plan.time)
        for key, (first, last) in marker.plan.ranges.items():
            for offset in range(first, last) if key not in marker.plan.joined else ():
                if (key, offset) in rows:
                    assert start <= world.truth[key][offset].store_ms < end, (key, offset)
    end_ms = _milliseconds(windows.start)
    planned = {(key, offset) for key, offset, _ in _places(windows)}
    for key, records in world.truth.items():
        for offset, entry in records.items():
            if entry.store_ms < end_ms and offset not in world.expired[key]:
                assert (key, offset) in planned, "a silent gap"


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _places(windows: Windows) -> Iterator[tuple[str, int, bool]]:
    """Yield every offset of every range, with True if it is reported as missing."""
    for marker in published_windows(windows.lake):
        for key, (start, end) in marker.plan.ranges.items():
            lost = [*marker.plan.gaps.get(key, ()), *marker.counts.gaps.get(key, ())]
            for offset in range(start, end):
                yield key, offset, any(low <= offset < high for low, high in lost)

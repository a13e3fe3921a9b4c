"""The work of a round: the number of windows of each Dag, and the next request.

A seeded random source decides between backfills, single runs, several runs at once, backfills of
done intervals, and clears. Intervals are requested in order, so that each lake must be without
gaps. A round may have several epochs of its logs: each starts with new cuts and perhaps with
another schedule. Nothing here waits, kills or audits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tools.drill.cluster import ENTRY, TOPIC
from tools.drill.control import Control

__all__ = ["Boundaries", "LogEpoch", "Quota", "Work", "quotas"]

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LANES = 3
_AT_ONCE = 3
_CLEAR = 0.08
_INTERVAL_DAGS = ("intervals", *(f"intervals_{lane}" for lane in range(LANES)))


@dataclass
class Quota:
    """Work of a Dag. `requested` counts the intervals (or mapped windows) of the present epoch that
    were requested, `before` those of earlier epochs."""

    dag_id: str
    target: int
    requested: int = 0
    before: list[int] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Number of windows that are not requested yet."""
        return self.target - self.requested - sum(self.before)

    def recreate_logs(self) -> None:
        """Start an epoch: cuts of the former one that were not requested are dropped."""
        self.before.append(self.requested)
        self.requested = 0

    @property
    def spark(self) -> bool:
        return self.dag_id.startswith("spark")

    @property
    def kind(self) -> str:
        """``intervals``, ``mapped`` or ``cursor``."""
        name = self.dag_id.removeprefix("spark_")
        return name.partition("_")[0] if name.startswith(("intervals", "mapped")) else "cursor"


def quotas(inline: int, spark: int) -> list[Quota]:
    """Distribute a round's windows over the Dags; only Dags that get any."""
    shares = {f"intervals_{lane}": 15 for lane in range(LANES)}
    shares |= {f"follow_{lane}": 8 for lane in range(LANES)}
    shares |= {"mapped": 18, "race": 13}
    quotas_ = [*_spread(inline, shares), *_spread(spark, {"spark_intervals": 1, "spark_follow": 1})]
    return [quota for quota in quotas_ if quota.target]


def _spread(total: int, shares: Mapping[str, int]) -> list[Quota]:
    left, weight, spread = total, sum(shares.values()), []
    for name, share in shares.items():
        part = round(left * share / weight)
        spread.append(Quota(name, part))
        left, weight = left - part, weight - share
    return spread


@dataclass(frozen=True)
class LogEpoch:
    """A part of a round with separate logs: `first` is the index of its first usable cut, and its
    schedule has an interval every `minutes` minutes."""

    first: int
    minutes: int


class Boundaries:
    """Cuts of the log, one for each minute from `FIRST` on, in the file that the Dags read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = True
        self.cuts: list[dict[str, int]] = []
        self.lives = [LogEpoch(0, 1)]

    def recreate_logs(self, minutes: int) -> None:
        """Start an epoch of new logs; intervals of `minutes` start where such a schedule
        has one."""
        self.lives.append(LogEpoch(-(-len(self.cuts) // minutes) * minutes, minutes))
        self._fresh = True

    def cut(self, ends: Mapping[str, int], least: int) -> None:
        """Cut at `ends` if every partition's store has grown by `least` entries since the last."""
        if not self._fresh:
            last = self.cuts[-1]
            if any(ends[key] - last[key] < least * ENTRY for key in last):
                return
        self._fresh = False
        self.cuts.append(dict(ends))
        document = {
            (FIRST + MINUTE * number).isoformat(): {TOPIC: cut}
            for number, cut in enumerate(self.cuts)
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(document))
        fresh.replace(self._path)

    @property
    def intervals(self) -> int:
        """Number of intervals of the present epoch that have both ends."""
        life = self.lives[-1]
        return max(0, (len(self.cuts) - 1 - life.first) // life.minutes)

    def interval(self, number: int) -> tuple[datetime, datetime]:
        """Return the `number`-th interval of the present epoch."""
        life = self.lives[-1]
        start = FIRST + MINUTE * (life.first + number * life.minutes)
        return start, start + MINUTE * life.minutes

    def window(self, number: int) -> dict[str, Any]:
        """Return the same interval as offsets for the operator."""
        life = self.lives[-1]
        first = life.first + number * life.minutes
        return {
            "starting_offsets": {TOPIC: self.cuts[first]},
            "ending_offsets": {TOPIC: self.cuts[first + life.minutes]},
        }

    def span(self, count: int, life: int = 0) -> dict[str, tuple[int, int]]:
        """Return the span of the first `count` intervals of an epoch, by partition."""
        if not count:
            return {}
        epoch = self.lives[life]
        last = self.cuts[epoch.first + count * epoch.minutes]
        return {key: (start, last[key]) for key, start in self.cuts[epoch.first].items()}


class Work:
    """Requests the work that is still to do from Airflow."""

    def __init__(
        self, control: Control, todo: list[Quota], boundaries: Boundaries, source: random.Random
    ) -> None:
        self.todo = todo
        self.backfills = 0
        self.clears = 0
        self.runs = 0
        self._control = control
        self._boundaries = boundaries
        self._source = source
        self._named = 0

    def ask(self, published: Mapping[str, int], active: Mapping[str, int]) -> None:
        """Request one more window of a Dag that is behind, and sometimes repeat a done one."""
        behind = [
            quota
            for quota in self.todo
            if active.get(quota.dag_id, 0) < (1 if quota.spark else _AT_ONCE)
            and self._wants(quota, published)
        ]
        if behind:
            quota = self._source.choice(behind)
            {"intervals": self._intervals, "mapped": self._mapped, "cursor": self._cursor}[
                quota.kind
            ](quota)
        if self._source.random() < _CLEAR:
            self._clear()

    def finished(self, published: Mapping[str, int]) -> bool:
        """Return True if every Dag has published its target."""
        return all(published.get(quota.dag_id, 0) >= quota.target for quota in self.todo)

    def request_one(self, quota: Quota) -> None:
        """Request the next window of a Dag, alone."""
        if quota.kind == "cursor":
            self._control.trigger(quota.dag_id, self._name())
        elif quota.kind == "mapped":
            self._map(quota, 1)
        else:
            self._single(quota)

    def recreate_logs(self) -> None:
        """Start an epoch: earlier requests belong to logs that no longer exist."""
        for quota in self.todo:
            quota.recreate_logs()

    def _wants(self, quota: Quota, published: Mapping[str, int]) -> bool:
        if quota.kind == "cursor":
            return published.get(quota.dag_id, 0) < quota.target
        return self._ready(quota) > 0

    def _ready(self, quota: Quota) -> int:
        """Return the number of intervals that may be requested next."""
        return min(quota.left, self._boundaries.intervals - quota.requested)

    def _intervals(self, quota: Quota) -> None:
        """Request a backfill of the next few intervals, or one of them by hand."""
        ready = self._ready(quota)
        count = min(ready, self._source.randint(2, 6))
        if ready > 1 and self._backfill(quota, quota.requested, count, again=False):
            quota.requested += count
            return
        self._single(quota)

    def _single(self, quota: Quota) -> None:
        start, end = self._boundaries.interval(quota.requested)
        self._control.trigger_interval(quota.dag_id, start, end)
        self.runs += 1
        quota.requested += 1

    def _backfill(self, quota: Quota, number: int, count: int, *, again: bool) -> bool:
        first, last = (self._boundaries.interval(n)[0] for n in (number, number + count - 1))
        done = self._control.backfill(quota.dag_id, first, last, again=again)
        self.backfills += done
        return done

    def _mapped(self, quota: Quota) -> None:
        self._map(quota, min(self._ready(quota), self._source.randint(3, 8)))

    def _map(self, quota: Quota, count: int) -> None:
        windows = [self._boundaries.window(quota.requested + number) for number in range(count)]
        self._control.trigger(quota.dag_id, self._name(), {"windows": windows})
        quota.requested += count

    def _cursor(self, quota: Quota) -> None:
        # One JVM after the other: several runs at once would only queue up.
        for _ in range(1 if quota.spark else self._source.randint(1, _AT_ONCE)):
            self._control.trigger(quota.dag_id, self._name())

    def _clear(self) -> None:
        """Repeat done work: a whole backfill, or one task."""
        over = [r for r in self._control.succeeded_lately() if r["dag_id"] != "mapped"]
        over = [run for run in over if self._of_this_epoch(run)]
        if not over:
            return
        run = self._source.choice(over)
        quota = next(quota for quota in self.todo if quota.dag_id == run["dag_id"])
        if quota.kind == "intervals" and not quota.spark and self._source.random() < 0.5:
            if self._backfill(quota, self._source.randrange(quota.requested), 1, again=True):
                self.clears += 1
            return
        self._control.clear(run["dag_id"], run["dag_run_id"])
        self.clears += 1

    def _of_this_epoch(self, run: Mapping[str, Any]) -> bool:
        """Return False for intervals of former logs, which cannot be planned again.

        A cursor's window may be requested in any epoch: it is found in the sink.
        """
        if run["data_interval_start"] is None or not run["dag_id"].endswith(_INTERVAL_DAGS):
            return True
        start = datetime.fromisoformat(run["data_interval_start"])
        return start >= self._boundaries.interval(0)[0]

    def _name(self) -> str:
        self._named += 1
        self.runs += 1
        return f"drill__{self._named:05d}"

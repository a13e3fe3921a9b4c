"""The work of a round: how many windows each Dag is to make, and the next thing to ask for.

A source of random numbers from the seed decides between backfills, single runs, several runs at
once, backfills of what is done, and clears. Intervals are taken in order, so that each lake must be
without gaps. Nothing here waits, kills or judges.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from drill.cluster import ENTRY, TOPIC
from drill.control import Control

__all__ = ["Boundaries", "Quota", "Work", "quotas"]

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LANES = 3
_AT_ONCE = 3
_CLEAR = 0.08


@dataclass
class Quota:
    """What a Dag is to make. `asked` counts intervals (or mapped windows) already asked for."""

    dag_id: str
    target: int
    asked: int = 0

    @property
    def spark(self) -> bool:
        return self.dag_id.startswith("spark")

    @property
    def kind(self) -> str:
        """``intervals``, ``mapped`` or ``cursor``."""
        name = self.dag_id.removeprefix("spark_")
        return name.partition("_")[0] if name.startswith(("intervals", "mapped")) else "cursor"


def quotas(inline: int, spark: int) -> list[Quota]:
    """How a round's windows are spread over the Dags; only Dags that get any."""
    shares = {f"intervals_{lane}": 15 for lane in range(LANES)}
    shares |= {f"follow_{lane}": 8 for lane in range(LANES)}
    shares |= {"mapped": 18, "race": 13}
    found = [*_spread(inline, shares), *_spread(spark, {"spark_intervals": 1, "spark_follow": 1})]
    return [quota for quota in found if quota.target]


def _spread(total: int, shares: Mapping[str, int]) -> list[Quota]:
    left, weight, found = total, sum(shares.values()), []
    for name, share in shares.items():
        part = round(left * share / weight)
        found.append(Quota(name, part))
        left, weight = left - part, weight - share
    return found


class Boundaries:
    """Cuts of the log, one for each minute from `FIRST` on, in the file that the Dags read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cuts: list[dict[str, int]] = []

    def cut(self, ends: Mapping[str, int], least: int) -> None:
        """Cut at `ends` if every partition's store has grown by `least` entries since the last."""
        if self.cuts:
            last = self.cuts[-1]
            if any(ends[key] - last[key] < least * ENTRY for key in last):
                return
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
        """How many intervals have both ends."""
        return max(0, len(self.cuts) - 1)

    def offsets(self, number: int) -> dict[str, dict[str, int]]:
        """A cut, as the operator takes offsets."""
        return {TOPIC: self.cuts[number]}

    def span(self, count: int) -> dict[str, tuple[int, int]]:
        """What the first `count` intervals cover, by partition."""
        if not count:
            return {}
        return {key: (start, self.cuts[count][key]) for key, start in self.cuts[0].items()}


class Work:
    """Asks Airflow for what is still to be done."""

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
        """One thing more for a Dag that is behind, and now and then something done again."""
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
        """Every Dag has published what it is to make."""
        return all(published.get(quota.dag_id, 0) >= quota.target for quota in self.todo)

    def _wants(self, quota: Quota, published: Mapping[str, int]) -> bool:
        if quota.kind == "cursor":
            return published.get(quota.dag_id, 0) < quota.target
        return min(quota.target, self._boundaries.intervals) > quota.asked

    def _intervals(self, quota: Quota) -> None:
        """A backfill of the next few intervals, or one of them by hand."""
        ready = min(quota.target, self._boundaries.intervals) - quota.asked
        count = min(ready, self._source.randint(2, 6))
        first = FIRST + MINUTE * quota.asked
        if ready > 1 and self._backfill(quota, first, count, again=False):
            quota.asked += count
            return
        self._control.trigger_interval(quota.dag_id, first, first + MINUTE)
        self.runs += 1
        quota.asked += 1

    def _backfill(self, quota: Quota, first: datetime, count: int, *, again: bool) -> bool:
        last = first + MINUTE * (count - 1)
        done = self._control.backfill(quota.dag_id, first, last, again=again)
        self.backfills += done
        return done

    def _mapped(self, quota: Quota) -> None:
        ready = min(quota.target, self._boundaries.intervals) - quota.asked
        count = min(ready, self._source.randint(3, 8))
        windows: list[dict[str, Any]] = [
            {
                "starting_offsets": self._boundaries.offsets(number),
                "ending_offsets": self._boundaries.offsets(number + 1),
            }
            for number in range(quota.asked, quota.asked + count)
        ]
        self._control.trigger(quota.dag_id, self._name(), {"windows": windows})
        quota.asked += count

    def _cursor(self, quota: Quota) -> None:
        # One JVM after the other: several runs at once would only stand in line.
        for _ in range(1 if quota.spark else self._source.randint(1, _AT_ONCE)):
            self._control.trigger(quota.dag_id, self._name())

    def _clear(self) -> None:
        """Do something again that is done: a whole backfill, or one task."""
        over = [r for r in self._control.succeeded_lately() if r["dag_id"] != "mapped"]
        if not over:
            return
        run = self._source.choice(over)
        quota = next(quota for quota in self.todo if quota.dag_id == run["dag_id"])
        if quota.kind == "intervals" and not quota.spark and self._source.random() < 0.5:
            first = self._source.randrange(quota.asked)
            if self._backfill(quota, FIRST + MINUTE * first, 1, again=True):
                self.clears += 1
            return
        self._control.clear(run["dag_id"], run["dag_run_id"])
        self.clears += 1

    def _name(self) -> str:
        self._named += 1
        self.runs += 1
        return f"drill__{self._named:05d}"

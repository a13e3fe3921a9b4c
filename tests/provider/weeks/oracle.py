"""Invariants of a group's windows, for a topic whose records are all known.

Each record of the logs is in the lake once at the end, except those that retention took (a window
has to report them as a gap), those that were skipped by hand, and those that a new epoch reads
again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq

from tests.provider.weeks.airflow import Airflow
from tests.provider.weeks.topic import BROKERS, Topic
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.verify import chain_problems


class ViolationError(AssertionError):
    """Something is wrong that must never be."""


class Oracle:
    """Checks of the lake after every move. `depth` is the number of runs in progress."""

    def __init__(self, topic: Topic, airflow: Airflow, lake: Path) -> None:
        self.topic, self.airflow = topic, airflow
        self.lake, self.spec = lake, str(lake)
        self.depth, self.epochs = 0, 0
        self.was_set, self.regressed = False, False
        self.log: list[str] = []
        self.stores: set[str] = set()
        self.may_double: set[bytes] = set()
        self.may_miss: set[bytes] = set()
        self.expired: dict[bytes, tuple[str, int]] = {}
        self.windows: dict[str, Counter[Any]] = {}
        self.plans: dict[str, Any] = {}
        self.markers: dict[str, Any] = {}
        self.stored: Counter[bytes] = Counter()

    def say(self, text: str) -> None:
        self.log.append("  " * self.depth + text)

    def fail(self, text: str) -> NoReturn:
        raise ViolationError(text)

    def look(self) -> None:
        if not self.lake.exists():
            return
        there = {path.name for path in self.lake.glob("window_id=*")}
        if len(there) == len(self.windows):
            return
        self.markers = {m.plan.window_id: m for m in published_windows(self.lake)}
        new = [m for name, m in self.markers.items() if name not in self.windows]
        for marker in new:
            name = marker.plan.window_id
            self.windows[name] = self.rows(name)
            self.plans[name] = marker.plan
            self.say(f"+ {name} {dict(marker.plan.ranges)} gaps {dict(marker.plan.gaps)}")
            self.judge(name, marker)

    def rows(self, name: str) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for path in (self.lake / f"window_id={name}").glob("*.parquet"):
            table = pq.read_table(path, columns=["partition", "value"], partitioning=None)
            found.update(zip(*table.to_pydict().values(), strict=True))
        return found

    def judge(self, name: str, marker: Any) -> None:
        """Check that a window holds exactly the records of its ranges in one epoch of each log."""
        for broker in BROKERS:
            keys = [key for key in marker.plan.ranges if key.startswith(f"{broker}:")]
            got = {
                key: Counter({body: n for (k, body), n in self.windows[name].items() if k == key})
                for key in keys
            }
            for life in self.topic.lives[broker]:
                if all(Counter(self.wanted(life, marker, key)) == got[key] for key in keys):
                    break
            else:
                self.fail(f"{name} does not hold what its ranges say: {got}")

    def wanted(self, life: Any, marker: Any, key: str) -> list[bytes]:
        start, end = marker.plan.ranges[key]
        bodies: list[bytes] = life.between(key, start, end)
        for gaps in (marker.plan.gaps, marker.counts.gaps):
            for low, high in gaps.get(key, ()):
                lost = set(life.between(key, low, high))
                bodies = [body for body in bodies if body not in lost]
        return bodies

    def check(self) -> None:
        self.look()
        counts: Counter[bytes] = Counter()
        for rows in self.windows.values():
            for (_, body), n in rows.items():
                counts[body] += n
        twice = [body for body, n in counts.items() if n > 1 and body not in self.may_double]
        if twice:
            self.fail(f"records twice: {twice}")
        self.stored = counts

    def judge_all(self) -> None:
        """Check that everything readable was read, and that losses to retention are gaps."""
        gaps = [
            (key, low, high)
            for name in self.plans
            for m in [self.markers[name]]
            for found in (m.plan.gaps, m.counts.gaps)
            for key, lost in found.items()
            for low, high in lost
        ]
        missing = [
            (key, offset, body)
            for key, offset, body in self.topic.alive()
            if not self.stored[body] and body not in self.may_miss
        ]
        if missing:
            self.fail(f"lost: {missing}")
        untold = [
            (key, at, body)
            for body, (key, at) in self.expired.items()
            if not self.stored[body]
            and body not in self.may_miss
            and not any(key == k and low <= at < high for k, low, high in gaps)
            and not self.before_all(key, at)
        ]
        if untold and not self.regressed:
            self.fail(f"lost and not told: {untold}")
        followed = not (self.regressed or self.epochs or self.was_set)
        if followed and (problems := chain_problems(self.plans.values())):
            self.fail(f"windows do not follow: {problems}")
        # A run that dies between completing a claim and success is announced by no event.
        if "ledger" not in self.stores and not self.epochs:
            self.judge_events()

    def before_all(self, key: str, at: int) -> bool:
        """Return True if the record was gone before the group began, or its partition joined."""
        starts = [plan.ranges[key][0] for plan in self.plans.values() if key in plan.ranges]
        return not starts or at < min(starts)

    def judge_events(self) -> None:
        """Check that every window is in a commit event, as its own or as recovered."""
        named: set[str] = set()
        for event in self.airflow.events():
            named.update(event.get("recovered", ()))
            if "window_id" in event:
                named.add(event["window_id"])
        missing = [
            name
            for name in self.plans
            if name not in named and (self.windows[name].total() or self.plans[name].gaps)
        ]
        if missing:
            self.fail(f"no event names {missing}")

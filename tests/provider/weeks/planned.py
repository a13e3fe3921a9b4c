"""Weeks of a group whose windows are read by tasks of a user's own, between two of ours."""

from __future__ import annotations

from collections import Counter
from typing import Any

from airflow.sdk import DAG

from tests.provider.weeks.weeks import FINISHING, GROUP, MAX_TRIES, Run, Watched, Weeks
from tubemq_provider.ingest.values import IngestPolicies
from tubemq_provider.operators.planning import (
    TubeMQCommitWindowOperator,
    TubeMQPlanWindowOperator,
)
from tubemq_provider.sinks.factory import sink_for


class Plan(Watched, TubeMQPlanWindowOperator):
    """The first of ours."""


class Commit(Watched, TubeMQCommitWindowOperator):
    """The second of ours."""


class PlannedWeeks(Weeks):
    """Runs plan, read and commit; without the ledger one after the other, as the operator asks."""

    def __init__(self, *given: Any, **flags: Any) -> None:
        super().__init__(*given, **flags)
        if self.store == "events":
            self.store = "asset_state"
        self.spec = f"markers:{self.lake}"
        self.effects: dict[str, Counter[Any]] = {}
        self.xcoms: dict[str, Any] = {}
        self.counts: dict[str, Any] = {}

    def change_store(self) -> None:
        if self.depth == 0 and not any(run.state == "open" for run in self.runs):
            self.store = self.source.choice(["asset_state", "ledger"])
            self.stores.add(self.store)
            self.say(f"store {self.store}")

    def start(self) -> None:
        if self.store != "ledger":
            if self.depth:
                return
            for run in self.runs:
                if run.state == "open":
                    self.give_up(run)
        super().start()

    def give_up(self, run: Run) -> None:
        run.state = self.airflow.runs[run.name] = "failed"
        self.say(f"{run.name} is given up")

    def clear(self) -> None:
        if self.store != "ledger" and (self.depth or any(r.state == "open" for r in self.runs)):
            return
        super().clear()

    def attempt(self, run: Run, *, dies: bool = True, **more: Any) -> Exception | None:
        """Run the next task of a run; at the end all that are left of it."""
        if run.name in self.xcoms and run.name not in self.counts:
            self.read(run)
            if run.state == "failed":
                return None
        error = super().attempt(run, dies=dies, **more)
        if error is None and not dies and run.state == "open":
            return self.attempt(run, dies=False, **more)
        return error

    def succeeded(self, run: Run, task: Any, context: Any, result: Any) -> None:
        super().succeeded(run, task, context, result)
        if isinstance(task, Plan) and result["window_id"] is not None:
            self.xcoms[run.name] = result
            run.state, run.tries = "open", 0

    def read(self, run: Run) -> None:
        """Run the user's task: it replaces the output of an earlier one under the window's id."""
        plan = self.xcoms[run.name]
        got: Counter[Any] = Counter()
        for key, (start, end) in plan["ranges"].items():
            life = self.topic.life(int(key[0]))
            first = start
            if start < life.low and self.gap_policy == "skip":
                first = min(life.low, end)
                self.may_miss.update(life.between(key, start, first))
            away = int(key[0]) in self.topic.away
            if first < end and (away or first < life.low or end > life.end):
                self.say(f"{run.name} cannot read {key}")
                self.give_up(run)
                if self.depth == FINISHING:
                    self.gap_policy = "skip"
                return
            got.update((key, body) for body in life.between(key, first, end))
        self.effects[plan["window_id"]] = got
        self.counts[run.name] = dict(Counter(key for key, _ in got.elements()))
        self.say(f"{run.name} read {got.total()}")

    def operator(self, run: Run, **more: Any) -> Any:
        given = {
            "topic": self.topic.name,
            "group": GROUP,
            "markers": str(self.lake),
            "cluster": "test",
            "initial_position": "earliest",
            "max_records": self.source.choice([None, None, 1, 3, 7]),
            "offset_store": self.store,
            "policies": IngestPolicies(gap_policy=self.gap_policy),
            "max_active_tis_per_dag": 4,
            "retries": MAX_TRIES - 1,
            **{name: value for name, value in more.items() if name != "skip_if_empty"},
        }
        with DAG("d", schedule=None):
            if run.name not in self.xcoms:
                task: Any = Plan(task_id="plan", **given)
            else:
                counts = self.counts[run.name]
                task = Commit(task_id="commit", plan=self.xcoms[run.name], records=counts, **given)
        task.world, task.run_name = self, run.name
        return task

    def wanted(self, life: Any, marker: Any, key: str) -> list[bytes]:
        found = super().wanted(life, marker, key)
        return [body for body in found if body not in self.may_miss]

    def look(self) -> None:
        if not self.lake.exists():
            return
        sink = sink_for(f"markers:{self.lake}")
        for window_id in sink.window_ids():
            if window_id in self.windows:
                continue
            marker = sink.marker(window_id)
            assert marker is not None
            self.markers[window_id] = marker
            self.windows[window_id] = Counter()
            self.plans[window_id] = marker.plan
            self.say(f"+ {window_id} {dict(marker.plan.ranges)} gaps {dict(marker.plan.gaps)}")
            self.windows[window_id] = self.effects.get(window_id, Counter())
            self.judge(window_id, marker)

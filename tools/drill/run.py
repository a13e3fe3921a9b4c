"""One round: start everything, request windows and kill, audit everything.

A round has a separate folder: TubeMQ's data, Airflow's logs, the lakes, the kills and the resulting
windows. It is deleted after a round without findings and kept otherwise. Every wait is bounded;
everything started is stopped in every case.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tools.devkit.quick_java import QUICK_JAVA
from tools.devkit.reaper import Reaper
from tools.drill.audit import Audit, audit_lake, audit_writer, windows_in_events
from tools.drill.cluster import REPOSITORY, TOPIC, Log, TubeMQ, Writer, read_log
from tools.drill.control import Control
from tools.drill.epochs import LogEpochs, epoch_name, wait_until_idle
from tools.drill.kill_plan import KillLog
from tools.drill.killing import Killing
from tools.drill.totals import Round
from tools.drill.work import LANES, Boundaries, Quota, Work, quotas
from tubemq_client.errors import TubeMQError

__all__ = ["Settings", "play"]

_STEP_S = 1.0
_LEAST_ENTRIES = 20
_CAP = 600
_REPORT_S = 15.0
_SETTLE_S = 600.0
_EXECUTOR_SLOTS = 40
"""Far more than the pool admits: LocalExecutor never gets back the slot of a killed supervisor."""

_AIRFLOW = {
    "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
    # Kills must be detected in seconds, not minutes.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    # Not too short: a scheduler that starves on a busy machine takes its own tasks for orphans.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "25",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "40",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__NUM_STUCK_IN_QUEUED_RETRIES": "20",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "2",
    "SPARK_SUBMIT_OPTS": QUICK_JAVA,
}


@dataclass(frozen=True)
class Settings:
    """Settings of a round. `limit` bounds its feeding part in seconds; during it the logs are
    recreated `lives` - 1 times."""

    number: int
    seed: str
    inline: int
    spark: int
    share: float
    folder: Path
    limit: float
    parallelism: int = 5
    lives: int = 1


def play(settings: Settings) -> Round:
    """Run a round; return its findings. Raises the error that made it impossible to run at all."""
    began = time.monotonic()
    shutil.rmtree(settings.folder, ignore_errors=True)
    settings.folder.mkdir(parents=True)
    result = Round(settings.number, f"{settings.seed}/{settings.number}")
    with ExitStack() as stack:
        running = _RunningRound(settings, stack, result)
        running.feed()
        running.wait_until_stable()
        events = running.events()
    running.judge(events)
    result.seconds = round(time.monotonic() - began, 1)
    result.ended = datetime.now(UTC).isoformat(timespec="seconds")
    return result


class _RunningRound:
    """Parts of a running round."""

    def __init__(self, settings: Settings, stack: ExitStack, result: Round) -> None:
        self.settings = settings
        self.result = result
        self.lakes = settings.folder / "lakes"
        self.lakes.mkdir()
        self.todo = quotas(settings.inline, settings.spark)
        self.boundaries = Boundaries(settings.folder / "boundaries.json")
        self.kills = KillLog(settings.folder / "kills.jsonl")
        self.outcomes = KillLog(settings.folder / "outcomes.jsonl")
        self.tubemq = stack.enter_context(_tubemq(settings.folder))
        self.airflow = stack.enter_context(_airflow(settings, result.seed, self.tubemq))
        self.control = Control(self.airflow.api)
        self.writer = Writer(self.tubemq)
        stack.enter_context(self.writer.writing())
        source = random.Random(result.seed)  # noqa: S311 - repeatable on purpose
        self.work = Work(self.control, self.todo, self.boundaries, source)
        self.killing = Killing(
            self.airflow, self.tubemq, self.writer, self.control, self.kills, source
        )
        stack.callback(self.killing.stop)
        self.lives = LogEpochs(
            self.airflow,
            self.tubemq,
            self.writer,
            self.control,
            source,
            settings.folder / "life.json",
        )
        self.goal = {quota.dag_id: quota.target for quota in self.todo}

    def feed(self) -> None:
        """Request windows and kill until every Dag has made its part, or time is up."""
        names = [quota.dag_id for quota in self.todo]
        self.airflow.wait_for_dags(names)
        self.control.unpause(names)
        self.killing.plan(self.settings.inline + self.settings.spark)
        deadline = time.monotonic() + self.settings.limit
        for number in range(1, self.settings.lives + 1):
            for quota in self.todo:
                quota.target = -(-self.goal[quota.dag_id] * number // self.settings.lives)
            if not self._live(deadline, last=number == self.settings.lives):
                print(f"time is up after {self.settings.limit:.0f} s; the next round has the rest")
                return
            if number < self.settings.lives:
                self._begin_life()

    def _live(self, deadline: float, *, last: bool) -> bool:
        """Request and kill until every Dag has made its part of this epoch; return False if time is
        up."""
        reported_at = 0.0
        while time.monotonic() < deadline:
            published = self.published()
            self._cut()
            self.killing.step(sum(published.values()))
            active = Counter(run["dag_id"] for run in self.control.active())
            if self.work.finished(published) and (not last or self._share_reached()):
                return True
            self._ask(published, active)
            if time.monotonic() - reported_at > _REPORT_S:
                reported_at = time.monotonic()
                self._report(published, active)
            time.sleep(_STEP_S)
        self._report(self.published(), Counter())
        return False

    def _begin_life(self) -> None:
        """Wait until all runs end, recreate the logs, and follow the advice of the errors."""
        if not wait_until_idle(self.control, lambda: self.killing.step(self._sum())):
            self.result.problems.append("runs do not end before the logs are recreated")
            return
        self.killing.rest()
        self.lives.end(self.boundaries, self.work)
        scheduled = [quota.dag_id for quota in self.todo if quota.kind == "intervals"]
        self.lives.await_schedule(scheduled, self.boundaries.lives[-1].minutes, self.killing.revive)
        deadline = time.monotonic() + _SETTLE_S
        while not self.boundaries.intervals and time.monotonic() < deadline:
            self._cut()
            time.sleep(_STEP_S)
        self.lives.follow_error_advice(self.todo, self.work, self.killing.revive)
        print(f"the logs were recreated: {dict(self.lives.changes)}", flush=True)

    def _sum(self) -> int:
        return sum(self.published().values())

    def wait_until_stable(self) -> None:
        """Wait until everything that was started ends; what does not would need manual repair."""
        self.killing.stop()
        deadline = time.monotonic() + _SETTLE_S
        while (active := self.control.active()) and time.monotonic() < deadline:
            self.killing.step(0)
            time.sleep(_STEP_S)
        failed = self.control.failed()
        self.result.repairs = len(active) + len(failed)
        for state, runs in (("still active", active), ("failed", failed)):
            names = [f"{run['dag_id']} {run['dag_run_id']}" for run in runs]
            self.result.problems += [f"{state}: {name}" for name in names[:5]]
        self.writer.stop()

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Return the commit events of each Dag's group."""
        return {
            quota.dag_id: self.control.events(f"tubemq:drill/{TOPIC}/{quota.dag_id}")
            for quota in self.todo
        }

    def judge(self, events: dict[str, list[dict[str, Any]]]) -> None:
        """Compare lakes, log and events, and count the kills. TubeMQ has stopped."""
        logs, total = [*self.lives.past, read_log(self.tubemq.data)], Audit()
        for quota in self.todo:
            audit = self._audit_lake(quota, logs, windows_in_events(events[quota.dag_id]))
            total.add(audit)
            if quota.spark:
                self.result.spark += audit.windows
            else:
                self.result.inline += audit.windows
        result = self.result
        result.records, result.lost, result.duplicated = total.records, total.lost, total.duplicated
        result.gaps, result.unaccounted = total.gaps, total.unaccounted
        result.problems += [*total.problems, *audit_writer(logs, self.writer.numbers)]
        result.problems += self.lives.problems
        result.lives, result.changes = len(logs), dict(self.lives.changes)
        result.written_again = self.writer.repeated
        result.backfills, result.clears = self.work.backfills, self.work.clears
        self._count_kills()

    def _audit_lake(self, quota: Quota, logs: list[Log], named: set[str]) -> Audit:
        """Audit each epoch of a lake against the logs of that epoch; windows of no epoch are a
        finding."""
        lake, total = self.lakes / quota.dag_id, Audit()
        for number, (log, requested) in enumerate(
            zip(logs, [*quota.before, quota.requested], strict=True)
        ):
            span = None if quota.kind == "cursor" else self.boundaries.span(requested, number)
            total.add(audit_lake(lake, log, span, named, epoch_name(number)))
        strays = self.published()[quota.dag_id] - total.windows
        if strays:
            total.gaps += strays
            total.problems.append(f"{quota.dag_id}: {strays} windows of no epoch of the logs")
        return total

    def published(self) -> Counter[str]:
        """Count the windows in each lake so far."""
        return Counter(
            {
                lake.name: sum(1 for _ in lake.glob("window_id=*"))
                for lake in (self.lakes.iterdir() if self.lakes.exists() else ())
            }
        )

    def _count_kills(self) -> None:
        kills, outcomes = self.kills.lines(), self.outcomes.lines()
        self.result.kills = dict(sorted(Counter(kill["victim"] for kill in kills).items()))
        self.result.tries = len(outcomes)
        self.result.replayed = sum(bool(outcome["replayed"]) for outcome in outcomes)
        hit = _hit(kills)
        windows = {
            (outcome["dag_id"], outcome["window_id"])
            for outcome in outcomes
            if outcome["window_id"] and _task(outcome) in hit
        }
        self.result.hit = len(windows)

    def _share_reached(self) -> bool:
        """Return True if the promised share of tasks was hit; more work is requested until then."""
        promised = self.settings.share * (self.settings.inline + self.settings.spark)
        self._count_kills()
        return self.result.hit >= promised

    def _cut(self) -> None:
        try:
            self.boundaries.cut(self.tubemq.stable_ends(), _LEAST_ENTRIES)
        except (TubeMQError, OSError):
            pass  # The brokers are down; a later cut will do.

    def _ask(self, published: Counter[str], active: Counter[str]) -> None:
        if self.work.finished(published):
            for quota in self.todo:
                quota.target += not quota.spark
        if sum(active.values()) < 2 * self.settings.parallelism:
            self.work.ask(published, active)

    def _report(self, published: Counter[str], active: Counter[str]) -> None:
        kills = Counter(kill["victim"] for kill in self.kills.lines())
        print(
            f"{datetime.now(UTC):%H:%M:%S} round {self.settings.number}: "
            f"{sum(published.values())} windows, {sum(active.values())} active runs, "
            f"killed {dict(sorted(kills.items()))}",
            flush=True,
        )


def _hit(kills: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """Return the tasks that were killed, or were running during another kill."""
    hit: set[tuple[str, str, int]] = set()
    for kill in kills:
        hit.update(_task(task) for task in kill.get("running", [kill]))
    return hit


def _task(line: dict[str, Any]) -> tuple[str, str, int]:
    return line["dag_id"], line["run_id"], line["map_index"]


@contextmanager
def _tubemq(folder: Path) -> Iterator[TubeMQ]:
    reaper = Reaper()
    try:
        tubemq = TubeMQ(folder, reaper)
        tubemq.start()
        try:
            yield tubemq
        finally:
            tubemq.stop()
    finally:
        reaper.close()


@contextmanager
def _airflow(settings: Settings, seed: str, tubemq: TubeMQ) -> Iterator[AirflowStack]:
    environment = {
        **_AIRFLOW,
        "PYTHONPATH": str(REPOSITORY),
        "AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT": str(settings.parallelism),
        "TUBEMQ_DRILL_FOLDER": str(settings.folder),
        "TUBEMQ_DRILL_SEED": seed,
        # Not every plan is reached, but kills from outside hit additional windows.
        "TUBEMQ_DRILL_SHARE": str(min(0.9, settings.share * 1.1)),
        "TUBEMQ_DRILL_CAP": str(_CAP),
        "TUBEMQ_DRILL_LANES": str(LANES),
    }
    connection = {"conn_type": "tubemq", "host": tubemq.masters, "extra": {"cluster": "drill"}}
    with running_airflow(
        REPOSITORY / "tools" / "drill" / "dags",
        root=settings.folder / "airflow",
        connections={"tubemq_default": connection},
        environment=environment,
        parallelism=_EXECUTOR_SLOTS,
    ) as airflow:
        yield airflow

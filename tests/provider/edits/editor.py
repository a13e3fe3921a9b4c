"""An author who edits a Dag between tries, clears and runs; by hand:
``python -m tests.provider.edits.editor --edits 200 --seed 0``.

Each history is a Dag over one topic that is edited at random: where its windows go and the kind of
sink, the group, the filters, the mode, the resolver, the granularity, the schedule, its timetable
and zone, the task's id, the store. Its runs are killed at random points, tried again and cleared.
The operators are the real ones, on a real cluster and real lakes; Airflow's states and events are
those of `contexts`.

At any moment: a sink has no record twice; a green run of an interval has all records of it, and its
interval is the one it had at its first try; what the log says of an earlier try's window is what
happened to it; time between two published windows was told as missing; and what is refused is
refused by an error of the product.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from airflow.sdk import DAG, CronDataIntervalTimetable, CronPartitionTimetable
from deltalake import DeltaTable
from sqlalchemy.pool import StaticPool

from tests.provider.contexts import accept, data_interval, fake_context
from tests.provider.offsets.accessors import LedgerState
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import TubeMQError
from tubemq_provider._airflow import AirflowFailException
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.operators.base import IngestOperator
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.partitions import is_tick
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.canonical import parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Editor", "Wrong", "play", "topic_of_quarters"]

TOPIC: Final = "orders"
DAY: Final = datetime(2026, 1, 2, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
QUARTERS: Final = 288
"""Records, one a quarter of an hour from `DAY` on."""
ENTRY: Final = 28

POINTS: Final = (
    "load:begin",
    "plan:begin",
    "plan:plan stored",
    "plan:task plan stored",
    "ingest:ingested",
    "publish:published",
    "advance:begin",
    "mirror:end",
)
TICKS: Final = {
    "days": "0 0 * * *",
    "half days": "0 */12 * * *",
    "three hours": "0 */3 * * *",
    "two hours": "0 */2 * * *",
    "hours": "0 * * * *",
}
"""Timetables of local time."""

CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "timetable": tuple(TICKS),
    "schedule": ("partitions", "partitions", "intervals", "none"),
    "zone": ("UTC", "UTC", "Europe/Berlin", "Asia/Kolkata"),
    "granularity": (None, None, None, HOUR, timedelta(hours=3)),
    "path": ("a", "b"),
    "sink": ("parquet", "parquet", "delta", "sqlite"),
    "group": ("lake", "other"),
    "filters": ((), ("s0",), ("s0", "s1")),
    "mode": ("time", "time", "cursor"),
    "resolver": ("boundaries", "boundaries", "boundaries", "message_time"),
    "task_id": ("ingest", "copy"),
    "offset_store": ("asset_state", "asset_state", "ledger", "events"),
}


def timetable_of(dag: dict[str, Any]) -> Any:
    """Return the timetable of a Dag as it is now, None for one without a schedule."""
    kinds = {"partitions": CronPartitionTimetable, "intervals": CronDataIntervalTimetable}
    kind: Any = kinds.get(dag["schedule"])
    return kind and kind(TICKS[dag["timetable"]], timezone=dag["zone"])


def address_of(root: Path, dag: dict[str, Any]) -> str:
    """Return the place of a Dag's windows as it is now: each path has one of each kind."""
    place = root / dag["path"]
    return {
        "parquet": str(place),
        "delta": f"delta:{place}-delta",
        "sqlite": f"sqlite:///{place}.db?table=orders",
    }[dag["sink"]]


class Killed(BaseException):
    """Ends a try as SIGKILL does."""


class Wrong(AssertionError):
    """The product did what it promises not to do."""


class Task(IngestOperator):
    """An operator, killed at the point `kill`; what it logs of steps and windows is in `said`."""

    kill: str | None = None
    said: Any = None

    def observer(self, context: Any, progress_logger: Any) -> Any:
        said = self.said

        def info(text: str, *args: Any) -> None:
            said.append(text % args)

        nothing = lambda *_: None  # noqa: E731
        progress_logger.log = SimpleNamespace(info=info, debug=nothing, warning=nothing)

        def at(step: Any, point: str) -> None:
            progress_logger.at(step, point)
            if f"{step}:{point}" == self.kill:
                raise Killed(self.kill)

        return SimpleNamespace(at=at)


class Follow(Task, TubeMQCursorIngestOperator):
    """The operator of cursor windows."""


class Interval(Task, TubeMQWindowIngestOperator):
    """The operator of windows of time."""


@dataclass
class Run:
    """A Dag run: what it stands for, and how its task instances stand."""

    run_id: str
    date: datetime | None
    span: tuple[datetime, datetime] | None
    tries: dict[str, int] = field(default_factory=dict)
    clears: int = 0
    green: bool = False
    intervals: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By task, what its first try took for the interval."""


@contextmanager
def topic_of_quarters() -> Iterator[None]:
    """Return a cluster with the topic, named by Airflow's default connection."""
    with EmbeddedTubeMQ(topics=[TopicSpec(TOPIC)], brokers=1) as mq:
        connection = {"conn_type": "tubemq", "host": mq.masters, "extra": {"cluster": "test"}}
        before = os.environ.get("AIRFLOW_CONN_TUBEMQ_DEFAULT")
        os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"] = json.dumps(connection)
        try:
            only = Partition(1, TOPIC, 0)
            records = [
                Record(
                    b"%d" % number,
                    stream_id=f"s{number % 2}",
                    msg_time=f"{DAY + number * HOUR / 4:%Y%m%d%H%M}",
                    partition=only,
                )
                for number in range(QUARTERS)
            ]
            list(TubeMQHook().produce(TOPIC, records))
            mq.broker(1).flush()
            yield
        finally:
            if before is None:
                del os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"]
            else:
                os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"] = before


def quarter(at: datetime) -> int:
    """Return the number of the first record at or after an instant."""
    return min(max(-(-(at - DAY) // (HOUR / 4)), 0), QUARTERS)


class Editor:
    """One history. `edits`, `outcomes` and `errors` count what happened; `moves` say it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.dag: dict[str, Any] = {name: choices[0] for name, choices in CHOICES.items()}
        self.dag["timetable"] = self.random.choice(list(TICKS)[:4])
        kinds = [kind for kind in CHOICES["schedule"] if kind != "none"]
        self.dag["schedule"] = self.random.choice(kinds)
        self.dag["sink"] = self.random.choice(CHOICES["sink"])
        self.dag["resolver"] = self.random.choice(CHOICES["resolver"])
        engine = sa.create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        metadata.create_all(engine)
        assets = [offsets_asset("test", TOPIC, group) for group in CHOICES["group"]]
        self.kept: dict[Any, Any] = {a: LedgerState(engine, a.name) for a in assets}
        self.undo: dict[str, Any] | None = None
        self.runs: list[Run] = []
        self.moves: list[str] = []
        self.told: set[tuple[str, str]] = set()
        self.accepted: set[tuple[str, str, str]] = set()
        self.edits: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.boundaries = {
            at.isoformat(): {TOPIC: {"1:0": quarter(at) * ENTRY}}
            for at in (DAY + HOUR / 2 * half for half in range(-50, 240))
        }

    def play(self, edits: int) -> None:
        """Make a number of edits, with runs, tries and clears between; then finish every run."""
        while self.edits.total() < edits:
            self.random.choices([self._edit, self._new_run, self._again], [3, 3, 4])[0]()
        for _ in range(2):
            for run in self.runs:
                if not run.green:
                    self._attempt(run, kill=None)
        self._judge_holes()

    # -- moves --------------------------------------------------------------------------------

    def _edit(self) -> None:
        name = self.random.choice(list(CHOICES))
        before = dict(self.dag)
        self.dag[name] = self.random.choice(CHOICES[name])
        if self.dag != before:
            self.undo = before
            self.edits[name] += 1
            self.moves.append(f"edit {name}: {before[name]!r} -> {self.dag[name]!r}")

    def _new_run(self) -> None:
        """Return the scheduler's next run: the next date of the present timetable."""
        if len(self.runs) >= 8:
            return
        timetable = timetable_of(self.dag)
        last = self._last()
        number = f"r{len(self.runs)}"
        if timetable is None:
            run = Run(number, None, (last, last + self.random.choice([1, 2, 6]) * HOUR))
        else:
            halves = (last + HOUR / 2 * half for half in range(150))
            ticks = (at for at in halves if is_tick(timetable, at))
            date = next(ticks)
            if isinstance(timetable, CronPartitionTimetable):
                run = Run(number, date, None)
            else:
                run = Run(number, None, (date, next(ticks)))
        self.runs.append(run)
        self._attempt(run, kill=self._point())

    def _last(self) -> datetime:
        """Behind the last run, by its end or, as after an edit, by its beginning."""
        ends = [DAY]
        for run in self.runs[-1:]:
            known = [parse_instant(end) for _, end in run.intervals.values()]
            begin = run.date or (run.span[0] if run.span else DAY)
            ends += known if self.random.random() < 0.8 else []
            ends.append(begin + HOUR)
        return max(ends)

    def _again(self) -> None:
        if not self.runs:
            return
        run = self.random.choice(self.runs)
        if run.green or self.random.random() < 0.4:
            run.clears += 1
        self._attempt(run, kill=self._point())

    def _point(self) -> str | None:
        return self.random.choice([*POINTS, None, None, None, None])

    # -- a try --------------------------------------------------------------------------------

    def _task(self) -> Task:
        dag = self.dag
        given: dict[str, Any] = {
            "task_id": dag["task_id"],
            "topic": TOPIC,
            "group": dag["group"],
            "cluster": "test",
            "sink": address_of(self.root, dag),
            "filters": dag["filters"],
            "engine": "inline",
            "offset_store": dag["offset_store"],
            "retries": 50,
            "max_active_tis_per_dag": 1,
        }
        if dag["mode"] == "time":
            given |= {"granularity": dag["granularity"]}
            if dag["resolver"] == "boundaries":
                given["boundaries"] = self.boundaries
            else:
                given["resolver"] = dag["resolver"]
        else:
            given |= {"initial_position": "earliest", "max_records": 40}
        with DAG("edited", schedule=timetable_of(dag)):
            return (Interval if dag["mode"] == "time" else Follow)(**given)

    def _attempt(self, run: Run, *, kill: str | None) -> None:
        task = self._task()
        name = task.task_id
        run.tries[name] = number = run.tries.get(name, 0) + 1
        span = data_interval(*run.span) if run.span else {}
        context = fake_context(
            task, self.kept, run=run.run_id, dag=task.dag, partition_date=run.date, **span
        )
        ti = context["ti"]
        ti.try_number, ti.max_tries = number, 50
        ti.get_dagrun_state = lambda *_: "running"
        ti.get_task_states = lambda *_, **__: {}
        context["dag_run"].clear_number = run.clears
        earlier = context["task_state_store"].get("plan")
        task.kill, task.said = kill, []
        what = f"{run.run_id} {name} try {number}, clears {run.clears}"
        try:
            result = type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
        except Killed as killed:
            self._note(run, what, f"killed at {killed}", "killed")
            self._learn(run, context, name)
        except (AirflowFailException, TubeMQError) as refusal:
            text = str(refusal)
            kind = text.partition(":")[0] if isinstance(refusal, AirflowFailException) else ""
            run.green = False
            self._note(run, what, f"refused: {text}", f"refused {kind or type(refusal).__name__}")
            self._learn(run, context, name)
            if self.undo is not None and self.random.random() < 0.6:
                # As most errors advise.
                self.dag, self.undo = self.undo, None
                self.moves.append("the edit is taken back")
        else:
            run.green = True
            self._learn(run, context, name)
            self._note(run, what, f"green {result['window_id']} {result['total']}", "green")
            accept(context, self.kept)
            self.told |= {(low, high) for low, high in result["missing"]}
            self.accepted.add((str(task.sink), result.get("start", ""), result.get("end", "")))
            self._judge_result(run, task, result)
        self._judge_log(task.said, earlier, number)
        self._judge_sinks()

    def _note(self, run: Run, what: str, text: str, outcome: str) -> None:
        self.outcomes[outcome] += 1
        self.moves.append(f"{what}: {text} ({run.date or run.span})")

    def _learn(self, run: Run, context: Any, task_id: str) -> None:
        """Check that a run keeps the interval of the first try that had one."""
        kept = context["task_state_store"].get("interval")
        if run.span is not None:
            run.intervals.setdefault(
                task_id,
                tuple(f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in run.span),  # type: ignore[arg-type]
            )
        elif kept:
            run.intervals.setdefault(task_id, (kept["start"], kept["end"]))

    # -- what must hold -----------------------------------------------------------------------

    def _judge_result(self, run: Run, task: Task, result: dict[str, Any]) -> None:
        if task.mode != "time":
            return
        expected = run.intervals.get(task.task_id)
        if (result["start"], result["end"]) != expected:
            raise Wrong(f"{run.run_id} stands for {expected}, and is green with {result}")
        wanted = {
            number
            for number in range(*(quarter(parse_instant(at)) for at in expected))
            if not task.filters or f"s{number % 2}" in task.filters
        }
        if missing := wanted - set(records_in(str(task.sink))):
            raise Wrong(f"{run.run_id} is green without records {sorted(missing)}")

    def _judge_sinks(self) -> None:
        for address in self._addresses():
            twice = [n for n, c in Counter(records_in(address)).items() if c > 1]
            if twice:
                raise Wrong(f"sink {address} has records {twice} twice")

    def _addresses(self) -> list[str]:
        """Return the places that have been written to."""
        kinds, paths = dict.fromkeys(CHOICES["sink"]), CHOICES["path"]
        return [
            address_of(self.root, {"path": path, "sink": kind}) for path in paths for kind in kinds
        ]

    def _judge_log(self, said: list[str], earlier: Any, number: int) -> None:
        over = [line for line in said if f"try {number} takes over window" in line]
        begun = [line for line in said if ": window " in line and " -> " in line]
        for line in over:
            if earlier is None or earlier["id"] not in line:
                raise Wrong(f"the log says {line!r}, and the earlier plan is {earlier}")
            if begun and earlier["id"] not in begun[-1]:
                raise Wrong(f"the log says {line!r}, and then {begun[-1]!r}")

    def _judge_holes(self) -> None:
        """Time between two published windows of a scope was told when the later one was."""
        for path in self._addresses():
            spans: dict[str, list[tuple[str, str]]] = {}
            if place_of(path).exists():
                for window in published_windows(sink_for(path)):
                    plan = getattr(window, "plan", window)
                    if plan.time:
                        spans.setdefault(plan.scope_hash, []).append(tuple(plan.time))
            for known in spans.values():
                known.sort()
                for (low, end), (start, high) in itertools.pairwise(known):
                    # A window whose run was killed, and continued elsewhere, had no chance to tell.
                    if not {(path, low, end), (path, start, high)} <= self.accepted:
                        continue
                    if end < start and (end, start) not in self.told and self._all_green():
                        raise Wrong(f"nothing told of {end} to {start} in sink {path}")

    def _all_green(self) -> bool:
        """Check that a run without an end is failed and has emitted nothing."""
        return all(run.green for run in self.runs)


def place_of(address: str) -> Path:
    """Return the directory or file of a sink."""
    return Path(address.removeprefix("delta:").removeprefix("sqlite:///").partition("?")[0])


def records_in(address: str) -> list[int]:
    """Return the numbers of the records that a sink has."""
    place = place_of(address)
    if not place.exists():
        return []
    if address.startswith("sqlite:"):
        engine = sa.create_engine(address.partition("?")[0])
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("orders"):
                return []  # of windows without records
            if "value" not in {col["name"] for col in sa.inspect(connection).get_columns("orders")}:
                return []
            return [int(value) for value in connection.scalars(sa.text("SELECT value FROM orders"))]
    if not list(sink_for(address).window_ids()):
        return []
    if address.startswith("delta:"):
        table = DeltaTable(str(place)).to_pyarrow_table()
    else:
        table = read_windows(sink_for(address)).to_table()
    if "value" not in table.column_names:
        return []  # of windows without records
    return [int(value) for value in table["value"].to_pylist()]


def play(seed: int, edits: int, root: Path) -> Editor:
    """Play one history; what goes wrong is raised with its moves as a note."""
    editor = Editor(seed, root)
    try:
        editor.play(edits)
    except Exception as error:
        error.add_note("\n".join(editor.moves))
        raise
    return editor


def main() -> int:
    """Play histories of ten edits each; the exit status is 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=200, help="how many, over all histories")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    edits: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    wrong = 0
    with topic_of_quarters():
        for seed in range(given.seed, given.seed + -(-given.edits // 10)):
            with tempfile.TemporaryDirectory() as directory:
                try:
                    played = play(seed, 10, Path(directory))
                except Exception as error:  # noqa: BLE001 - it is reported, and the others run
                    wrong += 1
                    notes = "\n".join(getattr(error, "__notes__", ()))
                    print(f"seed {seed}: {type(error).__name__}: {error}\n{notes}", file=sys.stderr)
                else:
                    edits += played.edits
                    outcomes += played.outcomes
    print(f"edits: {edits.total()} {dict(edits)}")
    print(f"tries: {outcomes.total()} {dict(outcomes)}")
    print(f"histories that went wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

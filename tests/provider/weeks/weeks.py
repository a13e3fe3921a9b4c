"""Weeks of a group: random moves over the real operators, stores, commands and a real sink.

A move is what happens to a group: records, partitions, retention, brokers that crash or are away,
recreated logs; tasks that run, die at any point of a run, are tried again or cleared, while others
act in the middle of theirs; another store, a wipe of asset state, offsets set by hand. Every record
has a number, so an oracle knows what must be in the lake. At the end the group has to come to the
end of its logs, by nothing but what its errors say. Moves follow from the seed.
"""

from __future__ import annotations

import inspect
import random
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tests.provider.grouped import grouped
from tests.provider.weeks.airflow import Airflow
from tests.provider.weeks.model import Hook
from tests.provider.weeks.oracle import Oracle
from tests.provider.weeks.topic import BROKERS, ENTRY, Topic
from tubemq_client.errors import TubeMQError
from tubemq_provider._airflow import DownstreamTasksSkipped
from tubemq_provider.cli import epochs, offsets
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.operators.offsets import TubeMQOffsetsOperator

GROUP = "lake"
MAX_TRIES = 3
FINISHING = 9
"""Nesting depth without further moves."""


_OF_RUNS = {"open": "running", "failed": "failed", "success": "success", "skipped": "success"}


class Killed(BaseException):
    """A task's process dies here."""


class Watched:
    """An operator over the world's topic, watched at every point."""

    world: Any = None
    run_name = ""

    def _hook(self) -> Any:
        return Hook(self.world.topic)

    def observer(self, context: Any, progress_logger: Any) -> Any:
        inner = super().observer(context, progress_logger)  # type: ignore[misc]
        world, name = self.world, self.run_name

        class Watch:
            def at(self, step: Any, point: str) -> None:
                inner.at(step, point)
                world.at(name, f"{step}: {point}")

        return Watch()


class Ingest(Watched, TubeMQCursorIngestOperator):
    """The one task of a run."""


class Run:
    """A run of the Dag: ``open`` while it may be tried again."""

    def __init__(self, name: str) -> None:
        self.name, self.tries, self.clears = name, 0, 0
        self.state = "open"

    @property
    def after_failure(self) -> str:
        """Return True if another try follows."""
        return "failed" if self.tries >= MAX_TRIES else "open"


class Weeks(Oracle):
    """The weeks of one seed. `flags` say what may happen besides: `sets`, `wipes`, `lives`."""

    def __init__(self, seed: int, lake: Path, **flags: Any) -> None:
        self.source = random.Random(seed)
        self.flags = flags
        topic = Topic(f"w{seed}")
        super().__init__(topic, Airflow(topic.name, GROUP), lake)
        self.runs: list[Run] = []
        self.kill_at: dict[str, int] = {}
        self.passed: Counter[str] = Counter()
        self.store = self.source.choice(["asset_state", "events", "ledger"])
        self.stores.add(self.store)
        self.skips = self.source.random() < 0.3
        self.moves_store = flags.get("moves_store", True)
        self.gap_policy = "fail"
        self.last: dict[str, Any] = {}
        self.named: dict[str, Any] = {}

    # -- playing -------------------------------------------------------------------------------

    def play(self, moves: int = 25) -> None:
        self.topic.produce(self.topic.places())
        for _ in range(moves):
            self.move()
        self.finish()

    def moves(self) -> list[Any]:
        return [
            *[self.produce] * 4,
            *[self.flush] * 2,
            *[self.start] * 5,
            *[self.retry] * 2,
            self.clear,
            self.expire,
            self.add_partition,
            self.crash,
            self.leave,
            self.come_back,
            *([self.change_store] if self.moves_store else []),
            *([self.set_offsets] if self.flags.get("sets") else []),
            *([self.truncate, self.begin_anew] if self.flags.get("lives") else []),
            *([self.wipe] if self.flags.get("wipes") else []),
        ]

    def move(self) -> None:
        self.source.choice(self.moves())()

    def at(self, name: str, point: str) -> None:
        """Act at a point of a run: others make moves, or the run dies."""
        self.passed[name] += 1
        if self.kill_at.get(name) == self.passed[name]:
            self.say(f"{name} dies at {point}")
            raise Killed(point)
        if self.depth < 2 and self.source.random() < self.flags.get("interrupt", 0.02):
            self.say(f"[{name} at {point}]")
            self.depth += 1
            try:
                self.move()
            finally:
                self.depth -= 1

    # -- what happens --------------------------------------------------------------------------

    def produce(self) -> None:
        keys = self.topic.places()
        chosen = [self.source.choice(keys) for _ in range(self.source.randrange(1, 6))]
        self.topic.produce(chosen)
        self.say(f"produce {chosen}")
        if self.source.random() < 0.7:
            self.flush()

    def flush(self) -> None:
        for broker in BROKERS:
            self.topic.flush(broker)
        self.say("flush")

    def expire(self) -> None:
        broker = self.source.choice(BROKERS)
        life = self.topic.life(broker)
        offset = self.source.randrange(len(life.entries) + 1) * ENTRY
        low = life.low
        self.topic.expire(broker, offset)
        self.say(f"expire {broker} to {life.low}")
        for index in range(low // ENTRY, life.low // ENTRY):
            key, body = life.entries[index]
            self.expired[body] = (key, index * ENTRY)

    def add_partition(self) -> None:
        if self.topic.partitions < 4 and not self.topic.away:
            self.topic.partitions += 1
            self.say(f"partitions {self.topic.partitions}")

    def crash(self) -> None:
        broker = self.source.choice(BROKERS)
        self.say(f"crash {broker}")
        self.topic.crash(broker)

    def truncate(self) -> None:
        broker = self.source.choice(BROKERS)
        if broker in self.topic.away:
            return
        life = self.topic.life(broker)
        offset = life.end - self.source.randrange(4) * ENTRY
        self.say(f"truncate {broker} to {offset} from {life.end}")
        self.topic.truncate(broker, offset)
        self.regressed = True

    def begin_anew(self) -> None:
        if self.topic.away:
            return
        brokers = BROKERS if self.source.random() < 0.6 else [self.source.choice(BROKERS)]
        self.say(f"anew {brokers}")
        for broker in brokers:
            self.topic.begin_anew(broker)
        self.regressed = True

    def leave(self) -> None:
        broker = self.source.choice(BROKERS)
        self.say(f"leave {broker}")
        self.topic.leave(broker)

    def come_back(self) -> None:
        self.say("come back")
        self.topic.come_back()

    def change_store(self) -> None:
        if self.depth and not self.flags.get("moves_inside"):
            return
        self.store = self.source.choice(["asset_state", "events", "ledger"])
        self.stores.add(self.store)
        self.say(f"store {self.store}")

    def wipe(self) -> None:
        """Asset state is wiped, by hand or by Airflow; the ledger's tables stay."""
        if self.depth:
            return
        self.say("wipe")
        self.airflow.state.clear()

    def start(self) -> None:
        self.runs.append(Run(f"run{len(self.runs)}"))
        self.attempt(self.runs[-1])

    def retry(self) -> None:
        some = [run for run in self.runs if run.state == "open"]
        if some:
            self.attempt(self.source.choice(some))

    def clear(self) -> None:
        some = [run for run in self.runs if run.state in ("success", "skipped", "failed")]
        if some:
            run = self.source.choice(some)
            run.tries, run.state = 0, "open"
            run.clears += 1
            self.say(f"clear {run.name}")
            self.attempt(run)

    # -- runs ----------------------------------------------------------------------------------

    def operator(self, run: Run, **more: Any) -> Any:
        given = {
            "initial_position": "earliest",
            "max_records": self.source.choice([None, None, 1, 3, 7]),
            "offset_store": self.store,
            "gap_policy": self.gap_policy,
            "skip_if_empty": self.skips,
            "max_active_tis_per_dag": 4,
            **self.named,
            **more,
        }
        task = Ingest(
            task_id="ingest",
            topic=self.topic.name,
            group=GROUP,
            path=str(self.lake),
            cluster="test",
            engine="inline",
            retries=MAX_TRIES - 1,
            **grouped(**given),
        )
        task.world, task.run_name = self, run.name
        return task

    def attempt(self, run: Run, *, dies: bool = True, **more: Any) -> Exception | None:
        """Run one try; return the error if it fails."""
        run.tries += 1
        run.state = self.airflow.runs[run.name] = "running"
        self.passed[run.name] = 0
        self.kill_at.pop(run.name, None)
        if dies and self.source.random() < 0.35:
            self.kill_at[run.name] = self.source.randrange(1, 40)
        task = self.operator(run, **more)
        context = self.airflow.context(task, run.name, tries=run.tries, clears=run.clears)
        self.say(f"{run.name} {task.task_id} try {run.tries} in {self.store}")
        error = None
        try:
            result = type(task).execute.__wrapped__(task, context)
        except Killed:
            run.state = run.after_failure
        except (AirflowSkipException, DownstreamTasksSkipped) as exc:
            self.skipped(run, context, exc)
        except (TubeMQError, AirflowFailException) as exc:
            self.say(f"{run.name} failed: {type(exc).__name__}: {str(exc)[:1500]}")
            run.state = "failed" if isinstance(exc, AirflowFailException) else run.after_failure
            error = exc
        else:
            if dies and self.source.random() < 0.05:
                self.say(f"{run.name} dies before its success")
                run.state = run.after_failure
            else:
                self.succeeded(run, task, context, result)
        self.airflow.runs[run.name] = _OF_RUNS[run.state]
        self.check()
        return error

    def skipped(self, run: Run, context: Any, exc: Exception) -> None:
        """Airflow drops the events of a skipped task."""
        self.say(f"{run.name} skipped")
        run.state = "skipped"
        self.last = {}
        if isinstance(exc, DownstreamTasksSkipped):
            self.airflow.accept(context)

    def succeeded(self, run: Run, task: Any, context: Any, result: Any) -> None:
        """Make the events of the task visible."""
        self.say(f"{run.name} {task.task_id} done {result['window_id']} {result['ranges']}")
        run.state = "success"
        self.airflow.accept(context)
        self.last = result

    # -- commands ------------------------------------------------------------------------------

    def ask(self, command: Any, **arguments: Any) -> None:
        module = inspect.getmodule(inspect.unwrap(command))
        given = {"asset": "a", "output": "json", "yes": True, **arguments}
        assert module is not None
        kept = module.open_group
        module.open_group = self.airflow.open_group  # type: ignore[attr-defined]
        try:
            inspect.unwrap(command)(SimpleNamespace(**given))
        finally:
            module.open_group = kept  # type: ignore[attr-defined]

    def set_offsets(self) -> None:
        """Move the group by hand, while nothing runs."""
        if self.depth or any(run.state == "open" and run.tries for run in self.runs):
            return
        to = self.source.choice(["earliest", "stable"])
        task = TubeMQOffsetsOperator(
            task_id="set",
            topic=self.topic.name,
            group=GROUP,
            cluster="test",
            action="set",
            to=to,
            offset_store=self.store,
        )
        name = f"set{len(self.airflow.runs)}"
        self.airflow.runs[name] = "running"
        context = self.airflow.context(task, name, tries=1, clears=0)
        try:
            found = type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
        except (TubeMQError, AirflowFailException) as exc:
            self.say(f"set {to} failed: {str(exc)[:600]}")
            self.airflow.runs[name] = "failed"
            return
        self.airflow.accept(context)
        self.airflow.runs[name] = "success"
        self.say(f"set {to}: {found['before']} -> {found['after']}")
        self.moved(found["before"], found["after"])

    def moved(self, before: dict[str, int], after: dict[str, int]) -> None:
        """Record that records in between are read again, or never."""
        self.was_set = True
        for broker in BROKERS:
            for life in self.topic.lives[broker]:
                for index, (key, body) in enumerate(life.entries):
                    at = index * ENTRY
                    if at >= after.get(key, 0):
                        self.may_double.add(body)
                    else:
                        self.may_miss.add(body)

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Restore everything, and run the group to the end of its logs, following errors'
        advice."""
        self.say("-- finish")
        self.depth = FINISHING
        self.topic.come_back()
        self.flush()
        for run in self.runs:
            if run.state == "open":
                run.state = "failed"
                self.airflow.runs[run.name] = "failed"
        told: Counter[str] = Counter()
        for _ in range(150):
            run = Run(f"run{len(self.runs)}")
            self.runs.append(run)
            error = self.attempt(run, dies=False, skip_if_empty=False, max_records=None)
            if error is None:
                if self.last.get("window_id") is None:
                    break
                continue
            run.state = self.airflow.runs[run.name] = "failed"
            text = str(error)
            told[re.sub(r"\d+", "N", text)[:200]] += 1
            if max(told.values()) > 6:
                self.fail(f"stuck: {text}")
            self.obey(text)
        else:
            self.fail("never came to an end")
        self.judge_all()

    def obey(self, text: str) -> None:
        """Follow the advice of an error."""
        flat = " ".join(text.split())
        if "gap_policy" in flat and self.gap_policy == "fail":
            self.gap_policy = "skip"
            self.say("-> gap_policy skip")
        elif "offsets rebuild" in flat and "claims of group" in flat:
            self.say("-> rebuild")
            self.ask(offsets.rebuild, sink=self.spec, sink_conn_id=None, drop_claims=False)
        elif (
            "let runs with offset_store='ledger'" in flat
            or "only runs with offset_store='ledger'" in flat
        ):
            self.store = "ledger"
            self.say("-> ledger")
        elif match := re.search(r"offsets epoch (\S+) <name>(?: --seen (\S+))?", flat):
            self.begin_epoch(flat, (match[2] or "").rstrip(");,") or None)
        elif match := re.search(r"offsets set (\S+) --offsets '(.*?)'", flat):
            self.say(f"-> set {match[2]}")
            try:
                self.ask(offsets.set_position, offsets=match[2])
            except TubeMQError as exc:
                self.say(f"   refused: {exc}")
        elif "may have been removed" in flat or "retention" in flat:
            self.gap_policy = "skip"
        elif self.flags.get("strict", True):
            self.fail(f"no advice: {text}")

    def begin_epoch(self, flat: str, seen: str | None) -> None:
        self.epochs += 1
        begin = re.search(r"--begin '(\{.*?\})'", flat)
        goes_after = re.search("continue after (?!the newest one)", flat) is not None
        self.say(f"-> epoch life{self.epochs} seen {seen} begin {begin and begin[1]}")
        for _, _, body in self.topic.alive():
            if self.stored[body]:
                self.may_double.add(body)
        if self.store == "events":
            self.named = {"epoch": f"life{self.epochs}", "epoch_seen": seen}
            return
        self.named = {}
        self.ask(
            epochs.begin,
            name=f"life{self.epochs}",
            begin=begin[1] if begin and goes_after else "earliest",
            seen=seen,
        )

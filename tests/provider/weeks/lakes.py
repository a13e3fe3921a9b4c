"""Weeks in which the lake loses windows, and lake or progress come back older.

All of it between runs: who restores a lake stops the tasks that write into it. What the lake has
lost may be missing at the end, as a person may have removed it on purpose; but no run continues
after a lost window before its error's advice was followed.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import delete, insert, select

from tests.provider.weeks.weeks import GROUP, Weeks
from tubemq_client.errors import TubeMQError
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.operators.offsets import TubeMQOffsetsOperator


@dataclass
class Copy:
    """The lake, and Airflow's metadata, as they were."""

    lake: Path
    windows: set[str]
    state: dict[str, str]
    events: list[Any]
    tables: dict[Any, list[Any]]


class LakeWeeks(Weeks):
    """Weeks with copies of lake and metadata."""

    def __init__(self, seed: int, lake: Path, **flags: Any) -> None:
        super().__init__(seed, lake, **flags)
        self.copies: list[Copy] = []
        self.order: list[str] = []
        self.owing: str | None = None

    def moves(self) -> list[Any]:
        return [
            *super().moves(),
            self.copy,
            self.copy,
            self.lose_newest,
            self.lose_oldest,
            self.lose_some,
            self.restore_lake,
            self.empty_mount,
            self.restore_progress,
            self.restore_both,
        ]

    @property
    def idle(self) -> bool:
        return self.depth == 0 and self.lake.exists()

    # -- what happens to the lake ---------------------------------------------------------------

    def copy(self) -> None:
        if not self.idle:
            return
        place = self.lake.with_name(f"copy-{len(self.log)}")
        shutil.copytree(self.lake, place)
        with self.airflow.engine.connect() as connection:
            tables = {
                table: [dict(row) for row in connection.execute(select(table)).mappings()]
                for table in metadata.sorted_tables
            }
        events = list(self.airflow.kept.get("events", {}).get(self.airflow.asset, []))
        kept = Copy(place, set(self.windows), dict(self.airflow.state), events, tables)
        self.copies = [*self.copies[-2:], kept]
        self.say("copy")

    def lose_newest(self) -> None:
        if self.idle:
            self.lose(self.there()[-self.source.randrange(1, 3) :])

    def lose_oldest(self) -> None:
        """Retention of the lake by age."""
        if self.idle:
            self.lose(self.there()[:-1][: self.source.randrange(3)])

    def lose_some(self) -> None:
        if self.idle and self.windows:
            self.lose([self.source.choice(self.there())])

    def restore_lake(self) -> None:
        if self.idle and self.copies:
            older = self.source.choice(self.copies).windows
            self.lose([name for name in self.there() if name not in older])

    def empty_mount(self) -> None:
        """Unmount the lake: a run finds an empty directory."""
        if not self.idle or not self.counted():
            return
        away = self.lake.with_name("away")
        self.lake.rename(away)
        self.lake.mkdir()
        kept = self.windows, self.plans, self.markers, self.stored
        self.windows, self.plans, self.markers = {}, {}, {}
        self.say("the lake is away")
        self.depth += 1
        try:
            self.start()
        finally:
            self.depth -= 1
        if self.windows:
            self.fail(f"{list(self.windows)} were published while the lake was away")
        shutil.rmtree(self.lake)
        away.rename(self.lake)
        self.windows, self.plans, self.markers, self.stored = kept

    def restore_progress(self) -> None:
        if self.idle and self.copies:
            self.say("metadata comes back older")
            self.restore(self.source.choice(self.copies))

    def restore_both(self) -> None:
        if self.idle and self.copies:
            copy = self.source.choice(self.copies)
            self.say("metadata and lake come back older")
            shutil.rmtree(self.lake)
            shutil.copytree(copy.lake, self.lake)
            for name in self.windows.keys() - copy.windows:
                self.forget(name)
            if copy.windows - self.windows.keys():
                self.windows.clear()  # checked again
                self.look()
            self.order = [name for name in self.order if name in self.windows]
            self.owing = None
            self.restore(copy)

    def restore(self, copy: Copy) -> None:
        self.airflow.state.clear()
        self.airflow.state.update(copy.state)
        self.airflow.kept.setdefault("events", {})[self.airflow.asset] = list(copy.events)
        with self.airflow.engine.begin() as connection:
            for table, rows in copy.tables.items():
                connection.execute(delete(table))
                if rows:
                    connection.execute(insert(table), rows)
        for run in self.runs:
            if run.state == "open":
                run.state = self.airflow.runs[run.name] = "failed"

    def there(self) -> list[str]:
        """Return the windows in the lake, in the order of their publication."""
        return [name for name in self.order if name in self.windows]

    def lose(self, names: list[str]) -> None:
        if not names:
            return
        if self.there()[-1] in names:
            self.owing = self.there()[-1]
        self.say(f"the lake loses {names}")
        for name in names:
            shutil.rmtree(self.lake / f"window_id={name}")
            self.forget(name)

    def forget(self, name: str) -> None:
        self.may_miss.update(body for _, body in self.windows.pop(name))
        self.plans.pop(name, None)
        self.markers.pop(name, None)
        self.stored = self.rows_there()

    def rows_there(self) -> Any:
        counts: Any = type(self.stored)()
        for rows in self.windows.values():
            for (_, body), n in rows.items():
                counts[body] += n
        return counts

    def counted(self) -> bool:
        """Return True if progress includes a window: a group without progress begins again
        anywhere."""
        return any(
            event.get("position", {}).get("seq") and event.get("window_id")
            for event in self.airflow.events()
        )

    # -- what must hold -------------------------------------------------------------------------

    def judge(self, name: str, marker: Any) -> None:
        super().judge(name, marker)
        if self.owing is not None and self.depth == 0 and name not in self.order:
            position = max((e["position"]["seq"] for e in self.airflow.events()), default=0)
            if marker.plan.seq == position + 1 and self.owing.startswith(f"c-{position}-"):
                self.fail(f"{name} was published behind {self.owing}, which the lake has lost")
        self.order = [known for known in self.order if known != name] + [name]

    def judge_all(self) -> None:
        self.was_set = True  # windows of older copies need not follow
        self.stores.add("ledger")  # nor be told of by events that are gone
        self.expired.clear()
        super().judge_all()

    # -- what errors say ------------------------------------------------------------------------

    def obey(self, text: str) -> None:
        flat = " ".join(text.split())
        self.owing = None
        self.copies.clear()  # what was before has been given up
        sets = re.findall(r"offsets set \S+ --offsets '(\{.*?\})'", flat)
        if sets and "no more; its newest window" in flat:
            offsets = self.source.choice(sets)
            self.say(f"-> set {offsets}")
            if self.store == "events":
                self.set_by_task(offsets)
            else:
                from tubemq_provider.cli import offsets as commands

                self.ask(commands.set_position, offsets=offsets)
            return
        for _, _, body in self.topic.alive():
            self.may_miss.add(body)  # an epoch may leave out what the lake has lost
        super().obey(text)

    def set_by_task(self, offsets: str) -> None:
        """Follow the error's advice for tasks with offset_store='events'."""
        task = TubeMQOffsetsOperator(
            task_id="set",
            topic=self.topic.name,
            group=GROUP,
            cluster="test",
            action="set",
            to=offsets,
            offset_store="events",
        )
        name = f"set{len(self.airflow.runs)}"
        self.airflow.runs[name] = "running"
        context = self.airflow.context(task, name, tries=1, clears=0)
        try:
            type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
        except (TubeMQError, AirflowFailException) as exc:
            self.say(f"   refused: {exc}")
            self.airflow.runs[name] = "failed"
            return
        self.airflow.accept(context)
        self.airflow.runs[name] = "success"

"""Spark without a JVM: a runtime whose frames run their data source's tasks in this process.

Each task gets its partition and its reader pickled, as from a driver; every second one runs twice,
and the first attempt's rows are dropped, as those of a speculative task are.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tubemq_provider.engines.spark_engine import SparkEngine


class InProcess:
    """See `SparkRuntime`; also the session, its reader and its frames."""

    name = "session"

    def __init__(self) -> None:
        self.jobs = 0
        self._sources: dict[str, Any] = {}
        self._format, self._options = "", dict[str, str]()

    def open(self, plan_hash: str) -> InProcess:
        return self

    def ui_url(self, spark: Any) -> None:
        return None

    @contextmanager
    def job(self, spark: Any, group: str, description: str, tell: Any) -> Iterator[None]:
        yield

    def interrupt(self, spark: Any, group: str) -> None:
        """Have nothing to interrupt."""

    def run_isolated(self, spark: Any, body: Callable[[], Any], stop: Any) -> Any:
        return body()

    def slots(self, spark: Any) -> int:
        return 3

    def register(self, spark: Any, source: Any, secrets: Any) -> None:
        self._sources[source.name()] = source

    def hint_for(self, text: str) -> None:
        return None

    def stop(self) -> None:
        """Have nothing to stop."""

    # -- the session ------------------------------------------------------------------------------

    @property
    def read(self) -> InProcess:
        return self

    def format(self, name: str) -> InProcess:
        self._format = name
        return self

    def options(self, **options: str) -> InProcess:
        self._options = options
        return self

    def load(self) -> InProcess:
        return self

    def collect(self) -> list[Any]:
        self.jobs += 1
        source = self._sources[self._format](dict(self._options))
        reader = source.reader(None)
        rows: list[Any] = []
        for number, partition in enumerate(reader.partitions()):
            for _ in range(1 + number % 2):
                task, split = pickle.loads(pickle.dumps((reader, partition)))
                found = [row for batch in task.read(split) for row in batch.to_pylist()]
            rows += map(Row, found)
        return rows


class Row(dict[str, Any]):
    """Collected row."""

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(self)


def engine_in_process(settings: Any, **options: Any) -> SparkEngine:
    """Return the engine of Spark's sessions with such a runtime."""
    runtime: Any = InProcess()
    return SparkEngine(settings, runtime, **options)

"""Windows read by a function of the Dag's author instead of an engine of ours.

`FunctionEngine` hands the planned window to a function, and counts what the function reads of it;
`ReportedEngine` takes the counts of a task that has read it elsewhere. Neither writes anything:
what became of the records is the function's business, the window is done when it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubemq_client.errors import ConfigError
from tubemq_provider.files.columns import columns_of
from tubemq_provider.sources.base import RecordReader
from tubemq_provider.windows.errors import CountMismatch, WindowError
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import IngestCounts, Progress, Staging
from tubemq_provider.windows.verify import counts_of_another

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FunctionEngine", "PlannedWindow", "ReportedEngine"]

OpenReader = Callable[[WindowPlan], AbstractContextManager[RecordReader]]


class PlannedWindow:
    """What a function gets: the plan of a window, and ways to read its records, each once.

    - `window_id`: the same for every try; writes under this id happen once if they
      replace what an earlier try has left.
    - `ranges`: ``{"1:0": (0, 2800)}``, half open; `start` and `end`: the interval of a window of
      time, RFC 3339, or None.
    """

    def __init__(
        self,
        plan: WindowPlan,
        reader: RecordReader,
        *,
        check: Callable[[], None],
        told: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.plan = plan
        self.window_id = plan.window_id
        self.topic, self.group = plan.topic, plan.group
        self.ranges: Mapping[str, tuple[int, int]] = dict(plan.ranges)
        self.start: str | None = plan.time[0] if plan.time else None
        self.end: str | None = plan.time[1] if plan.time else None
        self._reader = reader
        self._check = check
        self._told = told
        self.counted: dict[str, int] = dict.fromkeys(plan.ranges, 0)
        self.bytes = 0
        self._done: dict[str, list[list[int]]] = {}
        self._gaps: dict[str, list[list[int]]] = {}
        self._corrupt = 0
        self._again = False

    def __repr__(self) -> str:
        return f"PlannedWindow({self.window_id!r})"

    @property
    def entries(self) -> int:
        """An upper bound on its records."""
        return self.plan.entries

    def messages(self) -> Iterator[Any]:
        """Every record, partition by partition, in the order of offsets."""
        for batch in self._batches():
            yield from batch.messages()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same as Arrow batches, with the columns that sinks of files have."""
        schema = columns_of(self.plan.space.source).arrow_schema()
        for batch in self._batches():
            yield batch.to_arrow(schema)

    def to_pandas(self) -> Any:
        """All of it as a pandas frame, in memory."""
        import pyarrow

        schema = columns_of(self.plan.space.source).arrow_schema()
        return pyarrow.Table.from_batches(list(self.batches()), schema=schema).to_pandas()

    def _batches(self) -> Iterator[Any]:
        self._again = self._again or bool(self._done) or any(self.counted.values())
        corrupt = self._reader.stats.corrupt
        for range_ in self.plan.reads():
            key, noted = range_.partition.key, len(self._reader.stats.gaps)
            for batch in self._reader.read(range_):
                self._check()
                self.counted[key] += len(batch)
                self.bytes += batch.nbytes
                if self._told is not None:
                    self._told(key, self.counted[key], sum(self.counted.values()))
                self._note(key, corrupt, noted)
                yield batch
            self._note(key, corrupt, noted)
            self._done.setdefault(key, []).append([range_.start, range_.end])

    def _note(self, key: str, corrupt: int, noted: int) -> None:
        """Keep what the reader met in a partition. A function that returns counts may read twice,
        and meets it twice; `corrupt` and `noted` (gaps) are what the reader had counted before. A
        gap may grow while its range is read."""
        stats = self._reader.stats
        for gap in stats.gaps[noted:]:
            known = self._gaps.setdefault(key, [])
            inside = [one for one in known if gap.start <= one[0] and one[1] <= gap.end]
            self._gaps[key] = [one for one in known if one not in inside] + [[gap.start, gap.end]]
        self._corrupt = max(self._corrupt, stats.corrupt - corrupt)

    def counts(self, returned: object) -> IngestCounts:
        """What was read: as the function says it, or as it was counted here; what the reader met is
        part of both.

        Raises `CountMismatch` if the function has neither read it all nor said what it has read.
        """
        if isinstance(returned, Mapping) and returned and self._are_counts(returned):
            said = reported(self.plan, returned)
            last = dict(self._reader.stats.last)
            return replace(said, gaps=self._gaps, corrupt=self._corrupt, last=last)
        wanted = {range_.partition.key for range_ in self.plan.reads()}
        if missing := sorted(wanted - self._done.keys()):
            raise CountMismatch(
                f"window {self.window_id}: the function has not read {', '.join(missing)} to the "
                f"end; read all of it, or return records by partition, as {{'1:0': 100}}"
            )
        if self._again:
            raise CountMismatch(f"window {self.window_id}: the function has read it twice")
        return IngestCounts(
            self.counted,
            self.bytes,
            self._gaps,
            self._corrupt,
            pieces=self._done,
            last=dict(self._reader.stats.last),
        )

    def _are_counts(self, returned: Mapping[Any, Any]) -> bool:
        is_key = self.plan.space.is_key
        return all(
            isinstance(key, str) and is_key(key) and isinstance(value, int)
            for key, value in returned.items()
        )


def reported(plan: WindowPlan, records: Mapping[str, Any], size: int = 0) -> IngestCounts:
    """Counts as a task reports them; partitions that are not named had none. Whether they can be
    those of the plan is judged where all counts are. Raises `ConfigError`, with the partition, for
    what is no whole number."""
    counts = {key: _whole(key, n) for key, n in records.items()}
    return IngestCounts({**dict.fromkeys(plan.ranges, 0), **counts}, size)


def _whole(key: str, count: Any) -> int:
    """A number as Python, numpy, XCom or a template gives it."""
    try:
        whole = int(count)
        exact = whole == (int(count) if isinstance(count, str) else count)
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact:
        raise ConfigError(
            f"partition {key}: {count!r} is not a whole number of records", subject="records"
        )
    return whole


class FunctionEngine:
    """Hands each plan to `function`; see `Engine`. Nothing is staged."""

    name = "function"

    def __init__(
        self, function: Callable[[PlannedWindow], object], open_reader: OpenReader
    ) -> None:
        self._function = function
        self._open_reader = open_reader
        self._cancelled = threading.Event()
        self.on_read: Callable[[str, int, int], None] | None = None
        self.returned: object = None

    def ingest(self, plan: WindowPlan, staging: Staging, progress: Progress) -> IngestCounts:  # noqa: ARG002
        """Call the function once. Raises what it raises."""
        self._stop_if_cancelled()
        with self._open_reader(plan) as reader:
            window = PlannedWindow(plan, reader, check=self._stop_if_cancelled, told=self.on_read)
            self.returned = self._function(window)
            counts = window.counts(self.returned)
        progress("function returned")
        return counts

    def cancel(self) -> None:
        """Stop at the next batch that the function reads, or before it is called."""
        self._cancelled.set()

    def _stop_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise WindowError("the window was cancelled")


class ReportedEngine:
    """Reads nothing: `records` by partition were counted where the window of that hash was read."""

    name = "reported"

    def __init__(self, plan_hash: str, records: Mapping[str, int], size: int = 0) -> None:
        self.plan_hash = plan_hash
        self._records = records
        self._size = size

    def ingest(self, plan: WindowPlan, staging: Staging, progress: Progress) -> IngestCounts:  # noqa: ARG002
        """The counts as they were said. Raises `MarkerConflict` for another window than theirs."""
        if plan.hash != self.plan_hash:
            raise counts_of_another()
        progress("counts taken")
        return reported(plan, self._records, self._size)

    def cancel(self) -> None:
        """There is nothing to stop."""

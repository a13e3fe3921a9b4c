"""Windows read by a function of the Dag's author instead of one of our engines.

`FunctionEngine` passes the planned window to a function and counts what the function reads;
`ReportedEngine` takes the counts of a task that has read it elsewhere. Neither writes anything: the
function decides what happens to the records, and the window is done when it returns.
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
from tubemq_provider.windows.protocols import Engine, IngestCounts, IngestWatch, Staging
from tubemq_provider.windows.verify import counts_of_another

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FunctionEngine", "PlannedWindow", "ReportedEngine"]

OpenReader = Callable[[WindowPlan], AbstractContextManager[RecordReader]]


class PlannedWindow:
    """Argument of the function: the plan of a window, and methods that read its records once.

    - `window_id`: the same for every try; writes keyed by it are idempotent if they replace those
      of an earlier try.
    - `ranges`: ``{"1:0": (0, 2800)}``, half open; `start` and `end`: the interval of a window of
      time, RFC 3339, or None.
    """

    def __init__(
        self,
        plan: WindowPlan,
        reader: RecordReader,
        *,
        check: Callable[[], None],
        on_read: Callable[[WindowPlan, str, int, int], None] = lambda *_: None,
    ) -> None:
        self.plan = plan
        self.window_id = plan.window_id
        self.topic, self.group = plan.topic, plan.group
        self.ranges: Mapping[str, tuple[int, int]] = dict(plan.ranges)
        self.start: str | None = plan.time[0] if plan.time else None
        self.end: str | None = plan.time[1] if plan.time else None
        self._reader = reader
        self._check = check
        self._on_read = on_read
        self.counted: dict[str, int] = dict.fromkeys(plan.ranges, 0)
        self.bytes = 0
        self._done: dict[str, list[list[int]]] = {}
        self._gaps: dict[str, list[list[int]]] = {}
        self._corrupt = 0
        self._read_twice = False

    def __repr__(self) -> str:
        return f"PlannedWindow({self.window_id!r})"

    @property
    def entries(self) -> int:
        """Upper bound on the number of records."""
        return self.plan.entries

    def messages(self) -> Iterator[Any]:
        """Yield every record, partition by partition, in the order of offsets."""
        for batch in self._batches():
            yield from batch.messages()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as Arrow batches, with the columns that file sinks have."""
        schema = columns_of(self.plan.space.source).arrow_schema()
        for batch in self._batches():
            yield batch.to_arrow(schema)

    def to_pandas(self) -> Any:
        """Return all records as one pandas frame, in memory."""
        import pyarrow

        schema = columns_of(self.plan.space.source).arrow_schema()
        return pyarrow.Table.from_batches(list(self.batches()), schema=schema).to_pandas()

    def _batches(self) -> Iterator[Any]:
        self._read_twice = self._read_twice or bool(self._done) or any(self.counted.values())
        corrupt = self._reader.stats.corrupt
        for range_ in self.plan.reads():
            key, noted = range_.partition.key, len(self._reader.stats.gaps)
            for batch in self._reader.read(range_):
                self._check()
                self.counted[key] += len(batch)
                self.bytes += batch.nbytes
                self._on_read(self.plan, key, self.counted[key], sum(self.counted.values()))
                self._note(key, corrupt, noted)
                yield batch
            self._note(key, corrupt, noted)
            self._done.setdefault(key, []).append([range_.start, range_.end])

    def _note(self, key: str, corrupt: int, noted: int) -> None:
        """Record gaps and corrupt records that the reader met in a partition, without counting them
        twice: a function that returns counts may read twice. `corrupt` and `noted` (gaps) are the
        reader's counts before. A gap may grow while its range is read."""
        stats = self._reader.stats
        for gap in stats.gaps[noted:]:
            gaps = self._gaps.setdefault(key, [])
            inside = [one for one in gaps if gap.start <= one[0] and one[1] <= gap.end]
            self._gaps[key] = [one for one in gaps if one not in inside] + [[gap.start, gap.end]]
        self._corrupt = max(self._corrupt, stats.corrupt - corrupt)

    def counts(self, returned: object) -> IngestCounts:
        """Return the counts of the window: those `returned` by the function, or else those counted
        here; gaps and corrupt records of the reader are part of both.

        Raises `CountMismatch` if the function has neither read the whole window nor returned
        counts.
        """
        if isinstance(returned, Mapping) and returned and self._are_counts(returned):
            counts = reported(self.plan, returned)
            last = dict(self._reader.stats.last)
            return replace(counts, gaps=self._gaps, corrupt=self._corrupt, last=last)
        partitions = {range_.partition.key for range_ in self.plan.reads()}
        if missing := sorted(partitions - self._done.keys()):
            raise CountMismatch(
                f"window {self.window_id}: the function has not read {', '.join(missing)} to the "
                f"end; read all of it, or return records by partition, as {{'1:0': 100}}"
            )
        if self._read_twice:
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
    """Build counts from the records per partition that a task reported; partitions that are not
    named had none. The caller of the engine checks them against the plan. Raises `ConfigError`,
    with the partition, for a value that is no whole number."""
    counts = {key: _whole(key, n) for key, n in records.items()}
    return IngestCounts({**dict.fromkeys(plan.ranges, 0), **counts}, size)


def _whole(key: str, count: Any) -> int:
    """Convert a number as Python, numpy, XCom or a template provides it."""
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


class FunctionEngine(Engine):
    """Engine that passes each plan to `function`; see `Engine`. Nothing is staged."""

    name = "function"

    def __init__(
        self, function: Callable[[PlannedWindow], object], open_reader: OpenReader
    ) -> None:
        self._function = function
        self._open_reader = open_reader
        self._cancelled = threading.Event()
        self.returned: object = None

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:  # noqa: ARG002
        """Call the function once. Raises what it raises."""
        self._stop_if_cancelled()
        with self._open_reader(plan) as reader:
            window = PlannedWindow(
                plan, reader, check=self._stop_if_cancelled, on_read=watch.on_read
            )
            self.returned = self._function(window)
            counts = window.counts(self.returned)
        watch.progress("function returned")
        return counts

    def cancel(self) -> None:
        """Stop at the next batch that the function reads, or before it is called."""
        self._cancelled.set()

    def _stop_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise WindowError("the window was cancelled")


class ReportedEngine(Engine):
    """Engine that reads nothing: `records` per partition were counted where the window with that
    plan hash was read."""

    name = "reported"

    def __init__(self, plan_hash: str, records: Mapping[str, int], size: int = 0) -> None:
        self.plan_hash = plan_hash
        self._records = records
        self._size = size

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:  # noqa: ARG002
        """Return the reported counts. Raises `MarkerConflict` for a window with another plan
        hash."""
        if plan.hash != self.plan_hash:
            raise counts_of_another()
        watch.progress("counts taken")
        return reported(plan, self._records, self._size)

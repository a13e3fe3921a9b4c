"""Log lines and progress of a run, for the readers of its log.

A first line with the range, progress while records are read, a last line with the result; the run's
inner steps are logged at DEBUG. Run and engine report here through an `IngestWatch`; nothing here
changes what is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.protocols import IngestWatch

if TYPE_CHECKING:
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import IngestCounts, Step
    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["Log", "ProgressLogger"]

PERIOD_S = 10.0
"""Seconds between two lines of progress."""
SHOWN_AFTER_S = 1.0
"""Seconds of reading before the page shows the window: each state shown is a request to Airflow."""
_MOST_PARTITIONS = 32
"""Windows of more partitions log each at DEBUG only."""


class Log(Protocol):
    """Logger interface; Airflow's tasks have structlog's."""

    def info(self, event: str, /, *args: Any) -> Any:
        """Log a line."""

    def warning(self, event: str, /, *args: Any) -> Any:
        """Log a line that should be looked at."""

    def debug(self, event: str, /, *args: Any) -> Any:
        """Log a line for debugging."""


@dataclass
class ProgressLogger:
    """`StepObserver` that logs steps at DEBUG, and ends a cancelled run by raising."""

    log: Log
    cancelled: threading.Event
    place: str
    bad_records: str = "dropped"
    """Fate of records that do not decode, for the last line: dropped or quarantined."""
    clock: Callable[[], float] = time.monotonic
    on_page: Callable[[str], None] = field(default=lambda _: None)
    earlier: tuple[int, str, str] | None = None
    """Number of this try, and id and hash of the window that an earlier try planned."""
    on_progress: Callable[[dict[str, Any]], None] = field(default=lambda _: None)
    """Receives the content of the lines as values: `state` (``reading``, ``waiting`` or ``done``),
    `window`, `entries` (upper bound of records), then `read` and `rate` (per second), or `done` of
    `tasks`, or `silent` (seconds without a record)."""
    _began: float = field(init=False)
    _told: float = field(init=False)
    _heard: float | None = field(default=None, init=False)
    """Time of the newest sign of progress; None while nothing is read."""
    _plan: WindowPlan | None = field(default=None, init=False)
    _shown: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._began = self._told = self.clock()

    def watch(self) -> IngestWatch:
        """Return the callbacks by which the run and its engine report to this log."""
        return IngestWatch(
            on_begin=self.begins,
            on_read=self.read,
            on_tasks=self.tasks,
            on_page=self.started,
            on_end=self.counted,
        )

    @contextmanager
    def telling_silence(self) -> Iterator[None]:
        """Log, and show on the page, every ten seconds without a record while a window is read."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(PERIOD_S / 10):
                self.check_silence()

        thread = threading.Thread(target=look, name="tubemq-silence", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def check_silence(self) -> None:
        """Report that no record came since the last report, if that is long ago."""
        now, heard, plan = self.clock(), self._heard, self._plan
        if heard is None or plan is None:
            return
        self._show(plan, now)
        if now - max(heard, self._told) < PERIOD_S:
            return
        self._told = now
        self.log.warning(
            "no record for %.0f s: a broker is silent or cannot be reached, or the sink is slow; "
            "the client's own lines name the broker",
            now - heard,
        )
        self._progress(plan, "waiting", silent=int(now - heard))

    def at(self, step: Step, point: str) -> None:
        """Log a step; called between any two actions of the run."""
        if self.cancelled.is_set():
            raise WindowError(f"the task was killed at {step}: {point}")
        if point not in {"begin", "end"}:
            self.log.debug("%s: %s", step, point)

    def begins(self, plan: WindowPlan) -> None:
        """Log the planned window, whose records are read next."""
        self._compare(plan.window_id, plan.hash, "it reads the same offsets")
        interval = f", {plan.time[0]} to {plan.time[1]}" if plan.time else ""
        partitions = sum(1 for start, end in plan.ranges.values() if start < end)
        self.log.info(
            "%s -> %s: window %s%s, %s of %s partitions, at most %s records, group %s @ %s (%s)",
            plan.topic,
            self.place,
            plan.window_id,
            interval,
            partitions,
            len(plan.ranges),
            _number(plan.record_limit),
            plan.group,
            plan.cluster,
            plan.kind,
        )
        self._began = self._told = self._heard = self.clock()
        self._plan, self._shown = plan, False
        self._show(plan, self._began)

    def started(self, page: str) -> None:
        """Log the address of Spark's page after the session has started."""
        self.log.info("Spark: %s", page)
        self.on_page(page)

    def read(self, plan: WindowPlan, key: str, records: int, total: int) -> None:
        """Log at most every ten seconds that `records` of a partition and `total` of all are
        read."""
        now = self._heard = self.clock()
        if now - self._told < PERIOD_S:
            return
        self._told = now
        rate = total / max(now - self._began, 0.001)
        left = max(plan.record_limit - total, 0) / max(rate, 0.001)
        start, end = plan.ranges[key]
        self.log.info(
            "partition %s: %s of at most %s records; in all %s of %s, %s/s, at most %.0f s left",
            key,
            _number(records),
            _number(plan.space.entries(start, end)),
            _number(total),
            _number(plan.record_limit),
            _number(int(rate)),
            left,
        )
        self._progress(plan, read=total, rate=int(rate))

    def tasks(self, plan: WindowPlan, done: int, total: int) -> None:
        """Log at most every ten seconds that `done` of `total` tasks of a Spark job have ended."""
        now = self._heard = self.clock()
        if now - self._told < PERIOD_S:
            return
        self._told = now
        left = f", about {(now - self._began) / done * (total - done):.0f} s left" if done else ""
        self.log.info(
            "%s of %s tasks are done, of at most %s records in all%s",
            _number(done),
            _number(total),
            _number(plan.record_limit),
            left,
        )
        self._progress(plan, done=done, tasks=total)

    def counted(self, plan: WindowPlan, counts: IngestCounts) -> None:
        """Log the counts of each partition, and totals, when everything is read and written."""
        self._heard = None
        seconds = max(self.clock() - self._began, 0.001)
        read = counts.records if counts.read is None else counts.read
        tell = self.log.info if len(plan.ranges) <= _MOST_PARTITIONS else self.log.debug
        for key, (start, end) in plan.ranges.items():
            if start < end:
                tell(
                    "partition %s: offsets [%s, %s): %s records of at most %s, %s rows",
                    key,
                    start,
                    end,
                    _number(read.get(key, 0)),
                    _number(plan.space.entries(start, end)),
                    _number(counts.records.get(key, 0)),
                )
        log = self.log.warning if counts.corrupt else self.log.info
        log(
            "read %s records, %.1f MB/s; %s rows, %s bad records%s",
            _number(sum(read.values())),
            counts.bytes / seconds / 1e6,
            _number(counts.total),
            _number(counts.corrupt),
            f", {self.bad_records}" if counts.corrupt else "",
        )
        self._progress(plan, "done", read=sum(read.values()))

    def _show(self, plan: WindowPlan, now: float) -> None:
        """Show that a window is read, once it has been for long enough. Of a shorter one only the
        end is shown."""
        if not self._shown and now - self._began >= SHOWN_AFTER_S:
            self._progress(plan, read=0)

    def _progress(self, plan: WindowPlan, state: str = "reading", **numbers: int) -> None:
        self._shown = True
        about = {"v": 1, "state": state, "window": plan.window_id, "entries": plan.record_limit}
        self.on_progress({**about, **numbers})

    def _compare(self, window_id: str, plan_hash: str, taken: str) -> None:
        """Log once whether the plan of an earlier try is used, when that is known.

        `taken` is the end of the line if it is.
        """
        if self.earlier is None:
            return
        (number, planned, planned_hash), self.earlier = self.earlier, None
        if plan_hash == planned_hash:
            self.log.info(
                "try %s takes over window %s, which an earlier try planned: %s",
                number,
                planned,
                taken,
            )
        else:
            self.log.info(
                "window %s, which an earlier try planned, is not taken over: try %s has window %s "
                "with another plan",
                planned,
                number,
                window_id,
            )

    def done(self, result: WindowResult) -> None:
        """Log the result of the run."""
        if result.window_id is not None and result.hash is not None:
            self._compare(result.window_id, result.hash, "it is in the sink, not written again")
        if result.window_id is None:
            self.log.info(
                "%s -> %s: nothing to read for group %s", result.topic, self.place, result.group
            )
            return
        self.log.info(
            "%s -> %s: %s records, %s bytes in %.1f s%s%s",
            result.topic,
            result.sink_ref or self.place,
            _number(result.total),
            _number(result.bytes),
            self.clock() - self._began,
            "; it was written before" if result.replayed else "",
            "; there is more for the next window" if result.has_more else "",
        )


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")

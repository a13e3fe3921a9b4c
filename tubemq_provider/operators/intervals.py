"""Interval of time that a run covers, where the task's arguments name none.

The first of these counts: ``tubemq_window`` in the run's conf or params, a data interval of more
than zero width, a partition date. Arguments of the task take precedence over all of them and are
not handled here.

A user who may trigger a run may not be allowed to edit its Dag, so an interval chosen by a trigger
is checked: against the grid of the Dag's own timetable, and against the length that the Dag's
author allows. Reads a context, and stores the interval of a partition in the task's state; nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tubemq_client import errors
from tubemq_provider.ingest.job import Interval
from tubemq_provider.operators.partitions import is_tick, partition_end, ticks_of
from tubemq_provider.windows.canonical import in_utc, parse_instant, rfc3339

__all__ = ["KEPT", "WINDOW_KEY", "Interval", "no_interval", "refuse_interval", "run_interval"]

WINDOW_KEY = "tubemq_window"
"""Name in a run's conf or params: ``{"start": "<RFC 3339>", "end": "<RFC 3339>"}``."""
KEPT: Final = "interval"
"""Key of the task's state under which the interval of a partition is kept for later tries."""
_BY_USERS: Final = {"manual", "asset_materialization"}
"""Run types that a user starts, with a data interval or partition of the user's choice.

An operator of another Dag can set a logical date at most.
"""


@dataclass(frozen=True, slots=True)
class IntervalRule:
    """Check of intervals that a trigger chooses.

    They follow the ticks of `timetable`, or multiples of `granularity` if it has none, and are no
    longer than `longest`, which the Dag's author allows.
    """

    timetable: object
    granularity: timedelta | None
    longest: timedelta | None

    def asked(self, interval: tuple[datetime, datetime]) -> Interval:
        """Return an interval that a run requests by name.

        Raises `errors.ConfigError` unless the author allows its length and it begins and ends where
        intervals of the Dag do.
        """
        if self.longest is None:
            raise errors.ConfigError(
                "the run requests an interval, and the task does not allow that: the "
                "Dag's author allows it with max_run_window, the greatest length of such an "
                "interval",
                subject=WINDOW_KEY,
            )
        self._refuse(interval, WINDOW_KEY, of_grid=True)
        return interval

    def triggered(self, interval: tuple[datetime, datetime]) -> Interval:
        """Return the data interval of a run that a user triggered, possibly with a chosen interval.

        One step of the task's grid, and the interval of a custom timetable, are always allowed.
        """
        if self._is_step(interval):
            return interval
        if self.longest is None:
            raise errors.ConfigError(
                f"the run was triggered with the data interval {_text(interval)}, which is none of "
                f"the Dag's own; trigger it with a logical date only, or let the task allow others "
                f"with max_run_window",
                subject="data interval",
            )
        grid = ticks_of(self.timetable) is not None or self.granularity is not None
        self._refuse(interval, "data interval", of_grid=grid)
        return interval

    def _is_step(self, interval: tuple[datetime, datetime]) -> bool:
        """Return True if the timetable gives this interval, or `granularity` if it has no
        intervals."""
        start, end = interval
        if (step := ticks_of(self.timetable)) is not None:
            return is_tick(self.timetable, start) and step(start) == end
        if self.granularity is not None:
            return end - start == self.granularity and not (start - _MIDNIGHT) % self.granularity
        length = getattr(self.timetable, "delta", None)
        if length is not None:
            return bool(start + length == end)
        # Airflow's other timetables give manual runs no width; a custom timetable decides itself.
        own = self.timetable is None or type(self.timetable).__module__.startswith("airflow.")
        return not own and self.longest is None

    def expect_begin(self, date: datetime) -> None:
        """Check the begin of a partition that a user named.

        Raises `errors.ConfigError` unless partitions of `granularity`, counted from midnight UTC,
        begin there. Timetables check their own.
        """
        if ticks_of(self.timetable) is None and self.granularity is not None:
            self._expect_multiple(date, "partition date")

    def _refuse(self, interval: tuple[datetime, datetime], subject: str, *, of_grid: bool) -> None:
        problems = []
        longest = self.longest
        if longest is not None and interval[1] - interval[0] > longest:
            problems.append(
                f"{_text(interval)} is longer than max_run_window allows, which is {longest}"
            )
        if of_grid and ticks_of(self.timetable) is not None:
            problems += [
                f"{name} {rfc3339(at)} is not where an interval of the Dag's timetable begins"
                for name, at in zip(("start", "end"), interval, strict=True)
                if not is_tick(self.timetable, at)
            ]
        elif of_grid and self.granularity is not None:
            for at in interval:
                self._expect_multiple(at, subject)
        elif of_grid:
            problems.append(
                "the Dag's timetable has no grid that the interval could lie on: give the task a "
                "granularity"
            )
        if problems:
            raise errors.ConfigError(problems, subject=subject)

    def _expect_multiple(self, at: datetime, subject: str) -> None:
        step = self.granularity
        if step and (at - _MIDNIGHT) % step:
            raise errors.ConfigError(
                f"{rfc3339(at)} is no multiple of granularity {step} from midnight UTC",
                subject=subject,
            )


_MIDNIGHT: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _text(interval: tuple[datetime, datetime]) -> str:
    return f"{rfc3339(interval[0])} to {rfc3339(interval[1])}"


def run_interval(
    context: Mapping[str, Any],
    granularity: timedelta | None,
    *,
    longest: timedelta | None = None,
    log: Any = None,
) -> Interval:
    """Return the run's interval in UTC, or a pair of None.

    `longest` is the greatest length of an interval that a trigger may choose; None if the Dag's
    author allows none. The interval of a partition is stored in the task's state, because the
    timetable that defines its end may be edited between two tries; `log` gets a warning of that.

    Raises `errors.ConfigError` for an interval that the run may not choose, or a partition whose
    end is unknown.
    """
    chosen = IntervalRule(getattr(context.get("dag"), "timetable", None), granularity, longest)
    window = _window_of(context)
    if window is not None:
        return chosen.asked(_instants(window))
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and start < end:
        data_interval = in_utc(start), in_utc(end)
        return chosen.triggered(data_interval) if _run_type(context) in _BY_USERS else data_interval
    partition_date = context.get("partition_date")
    if partition_date is not None:
        date = in_utc(partition_date)
        if _run_type(context) in _BY_USERS:
            chosen.expect_begin(date)
        return _partition(context, date, granularity, log)
    return None, None


def _partition(
    context: Mapping[str, Any], date: datetime, granularity: timedelta | None, log: Any
) -> Interval:
    """Return the interval that the first try of this task used for the partition.

    For the first try it is what the timetable and `granularity` define, and is stored for later
    tries.
    """
    state: Any = context.get("task_state_store")
    stored = None if state is None else state.get(KEPT)
    if isinstance(stored, Mapping) and stored.get("start") == rfc3339(date):
        start, end = _instants({"start": stored["start"], "end": stored.get("end")}, KEPT)
        try:
            after = partition_end(context, date, granularity)
        except errors.ConfigError:
            after = None
        if log is not None and (after is None or in_utc(after) != end):
            log.warning(
                "the timetable or granularity was edited since this run began: it keeps its "
                "interval, %s to %s. For another one give start and end, or delete the key %r of "
                "the task's state",
                rfc3339(start),
                rfc3339(end),
                KEPT,
            )
        return start, end
    next_begin = partition_end(context, date, granularity)
    if next_begin is None:
        return None, None
    end = in_utc(next_begin)
    if state is not None:
        state.set(KEPT, {"v": 1, "start": rfc3339(date), "end": rfc3339(end)})
    return date, end


def no_interval() -> errors.ConfigError:
    """Return the error that explains how a run gets an interval."""
    return errors.ConfigError(
        [
            "the run has no interval: pass start and end",
            f'or set max_run_window, and give conf {{"{WINDOW_KEY}": {{"start": …, "end": …}}}}',
            "or schedule it with CronDataIntervalTimetable: a plain cron string gives zero width",
            "or trigger it with a logical date",
            "or schedule it with CronPartitionTimetable, which says where partitions end",
            "or schedule it by other partitions and pass granularity",
        ],
        subject="time window",
    )


def refuse_interval(context: Mapping[str, Any], *, planned: Callable[[], bool]) -> None:
    """Refuse a cursor run that asks for an interval: it would get whatever comes next.

    `planned` returns True if this very run has planned a window before, which it then repeats.
    Raises `errors.ConfigError` with the alternatives.
    """
    explicit = "use mode='time' with starting_offsets and ending_offsets for given offsets"
    if _window_of(context) is not None:
        raise errors.ConfigError(
            f"the run asks for an interval, and mode='cursor' takes what comes next; use "
            f"mode='time' with a resolver, or {explicit}",
            subject=WINDOW_KEY,
        )
    if _run_type(context) == "backfill" and not planned():
        raise errors.ConfigError(
            f"a cursor has no past intervals: each backfilled run would take what comes next. What "
            f"it has stored is not to be backfilled; older records, or another copy with another "
            f"group and another sink, are windows of mode='time', or {explicit}; runs that are "
            f"there already can be repeated with --reprocess-behavior",
            subject="backfill",
        )


def _run_type(context: Mapping[str, Any]) -> str:
    run_type = getattr(context.get("dag_run"), "run_type", None)
    return str(getattr(run_type, "value", run_type))


def _window_of(context: Mapping[str, Any]) -> Any | None:
    run = context.get("dag_run")
    for candidate in (getattr(run, "conf", None), context.get("params")):
        window = candidate.get(WINDOW_KEY) if isinstance(candidate, Mapping) else None
        if window:
            return window
    return None


def _instants(window: Any, subject: str = WINDOW_KEY) -> tuple[datetime, datetime]:
    if not isinstance(window, Mapping) or set(window) != {"start", "end"}:
        raise errors.ConfigError(
            f'expected {{"start": …, "end": …}}, not {window!r}', subject=subject
        )
    try:
        start, end = parse_instant(window["start"]), parse_instant(window["end"])
    except ValueError as exc:
        raise errors.ConfigError(str(exc), subject=subject) from exc
    if start >= end:
        raise errors.ConfigError(
            f"start {window['start']} is not before end {window['end']}", subject=subject
        )
    return start, end

"""The interval of time that a run stands for, where the task's arguments name none.

A run can say it in several ways; the first that does counts: ``tubemq_window`` in its conf or
params, a data interval of more than zero width, a partition date. Arguments of the task go before
all of them and are not looked at here.

A user who may trigger a run need not be one who may edit its Dag, so what a trigger chooses is
judged: by the grid of the Dag's own timetable, and by the length that the Dag's author allows.
Reads a context, and keeps the interval of a partition in the task's state; nothing else.
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
"""Runs that a user starts, who may name a data interval or a partition; an operator of another Dag
names a logical date at most."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Judges intervals that a trigger chooses: by the ticks of `timetable`, or multiples of
    `granularity` where it has none, and by the `longest` that the Dag's author allows."""

    timetable: object
    granularity: timedelta | None
    longest: timedelta | None

    def asked(self, found: tuple[datetime, datetime]) -> Interval:
        """An interval that a run asks for by name. Raises `errors.ConfigError` unless the author
        allows its length and it begins and ends where intervals of the Dag do."""
        if self.longest is None:
            raise errors.ConfigError(
                "the run asks for an interval of its own, and the task does not allow that: the "
                "Dag's author allows it with max_run_window, the greatest length of such an "
                "interval",
                subject=WINDOW_KEY,
            )
        self._refuse(found, WINDOW_KEY, of_grid=True)
        return found

    def triggered(self, found: tuple[datetime, datetime]) -> Interval:
        """The data interval of a run that a user has triggered, who may have chosen it. One step of
        the task's own grid, and what a timetable of another kind says, need nobody's leave."""
        if self._is_step(found):
            return found
        if self.longest is None:
            raise errors.ConfigError(
                f"the run was triggered with the data interval {_text(found)}, which is none of "
                f"the Dag's own; trigger it with a logical date only, or let the task allow others "
                f"with max_run_window",
                subject="data interval",
            )
        grid = ticks_of(self.timetable) is not None or self.granularity is not None
        self._refuse(found, "data interval", of_grid=grid)
        return found

    def _is_step(self, found: tuple[datetime, datetime]) -> bool:
        """Whether the timetable, or `granularity` where it has no intervals, gives this one."""
        start, end = found
        if (step := ticks_of(self.timetable)) is not None:
            return is_tick(self.timetable, start) and step(start) == end
        if self.granularity is not None:
            return end - start == self.granularity and not (start - _MIDNIGHT) % self.granularity
        length = getattr(self.timetable, "delta", None)
        if length is not None:
            return bool(start + length == end)
        # Airflow's other timetables give manual runs no width; what a user's own does is its own.
        own = self.timetable is None or type(self.timetable).__module__.startswith("airflow.")
        return not own and self.longest is None

    def expect_begin(self, date: datetime) -> None:
        """Raise `errors.ConfigError` unless a partition that a user has named begins where
        partitions of `granularity` do, counted from midnight UTC. Timetables judge theirs."""
        if ticks_of(self.timetable) is None and self.granularity is not None:
            self._expect_multiple(date, "partition date")

    def _refuse(self, found: tuple[datetime, datetime], subject: str, *, of_grid: bool) -> None:
        problems = []
        longest = self.longest
        if longest is not None and found[1] - found[0] > longest:
            problems.append(
                f"{_text(found)} is longer than max_run_window allows, which is {longest}"
            )
        if of_grid and ticks_of(self.timetable) is not None:
            problems += [
                f"{name} {rfc3339(at)} is not where an interval of the Dag's timetable begins"
                for name, at in zip(("start", "end"), found, strict=True)
                if not is_tick(self.timetable, at)
            ]
        elif of_grid and self.granularity is not None:
            for at in found:
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


def _text(found: tuple[datetime, datetime]) -> str:
    return f"{rfc3339(found[0])} to {rfc3339(found[1])}"


def run_interval(
    context: Mapping[str, Any],
    granularity: timedelta | None,
    *,
    longest: timedelta | None = None,
    log: Any = None,
) -> Interval:
    """The run's interval in UTC, or a pair of None.

    `longest` is the greatest length of an interval that a trigger may choose; None where
    the Dag's author allows none. The interval of a partition is kept in the task's state, as the
    timetable that says where it ends may be edited between two tries; `log` is told of that.

    Raises `errors.ConfigError` for an interval that the run may not choose, or a partition whose
    end cannot be told.
    """
    chosen = Chosen(getattr(context.get("dag"), "timetable", None), granularity, longest)
    window = _window_of(context)
    if window is not None:
        return chosen.asked(_instants(window))
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and start < end:
        found = in_utc(start), in_utc(end)
        return chosen.triggered(found) if _run_type(context) in _BY_USERS else found
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
    """The interval that the first try of this task took for the partition, else what the timetable
    and `granularity` say now, which is kept for later tries."""
    state: Any = context.get("task_state_store")
    kept = None if state is None else state.get(KEPT)
    if isinstance(kept, Mapping) and kept.get("start") == rfc3339(date):
        start, end = _instants({"start": kept["start"], "end": kept.get("end")}, KEPT)
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
    found = partition_end(context, date, granularity)
    if found is None:
        return None, None
    end = in_utc(found)
    if state is not None:
        state.set(KEPT, {"v": 1, "start": rfc3339(date), "end": rfc3339(end)})
    return date, end


def no_interval() -> errors.ConfigError:
    """The error that explains how a run gets an interval."""
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
    """Refuse, for a cursor task, a run that asks for a window of its own: it would get whatever
    comes next. `planned` says whether this very run had a window before, which it then repeats.

    Raises `errors.ConfigError` that says what to do instead.
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
    for given in (getattr(run, "conf", None), context.get("params")):
        window = given.get(WINDOW_KEY) if isinstance(given, Mapping) else None
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

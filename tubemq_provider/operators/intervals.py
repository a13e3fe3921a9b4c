"""Which interval of time a run stands for, where the task is not told one.

A run can say it in several ways; the first that does counts: ``tubemq_window`` in its conf or
params, a data interval of more than zero width, a partition date. Arguments of the task go before
all of them and are not looked at here. Reads a context, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from tubemq_client import errors
from tubemq_provider.ingest.job import Interval
from tubemq_provider.operators.partitions import partition_end
from tubemq_provider.windows.canonical import in_utc, parse_instant

__all__ = ["WINDOW_KEY", "Interval", "no_interval", "refuse_interval", "run_interval"]

WINDOW_KEY = "tubemq_window"
"""Name in a run's conf or params: ``{"start": "<RFC 3339>", "end": "<RFC 3339>"}``."""


def run_interval(context: Mapping[str, Any], granularity: timedelta | None) -> Interval:
    """The run's interval in UTC, or a pair of None. Raises `errors.ConfigError` for a wrong
    ``tubemq_window``, or a partition whose end cannot be told."""
    asked = _asked(context)
    if asked is not None:
        return asked
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and start < end:
        return in_utc(start), in_utc(end)
    partition_date = context.get("partition_date")
    if partition_date is not None:
        partition_date = in_utc(partition_date)
        end = partition_end(context, partition_date, granularity)
        return (partition_date, in_utc(end)) if end is not None else (None, None)
    return None, None


def no_interval() -> errors.ConfigError:
    """The error that explains how a run gets an interval."""
    return errors.ConfigError(
        [
            "the run has no interval: pass start and end",
            f'or trigger it with {{"{WINDOW_KEY}": {{"start": …, "end": …}}}} as conf',
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
    run_type = getattr(context.get("dag_run"), "run_type", None)
    if str(getattr(run_type, "value", run_type)) == "backfill" and not planned():
        raise errors.ConfigError(
            f"a cursor has no past intervals: each backfilled run would take what comes next. What "
            f"it has stored is not to be backfilled; older records, or another copy with another "
            f"group and another sink, are windows of mode='time', or {explicit}; runs that are "
            f"there already can be repeated with --reprocess-behavior",
            subject="backfill",
        )


def _asked(context: Mapping[str, Any]) -> Interval | None:
    window = _window_of(context)
    return _instants(window) if window is not None else None


def _window_of(context: Mapping[str, Any]) -> Any | None:
    run = context.get("dag_run")
    for given in (getattr(run, "conf", None), context.get("params")):
        window = given.get(WINDOW_KEY) if isinstance(given, Mapping) else None
        if window:
            return window
    return None


def _instants(window: Any) -> Interval:
    if not isinstance(window, Mapping) or set(window) != {"start", "end"}:
        raise errors.ConfigError(
            f'expected {{"start": …, "end": …}}, not {window!r}', subject=WINDOW_KEY
        )
    try:
        start, end = parse_instant(window["start"]), parse_instant(window["end"])
    except ValueError as exc:
        raise errors.ConfigError(str(exc), subject=WINDOW_KEY) from exc
    if start >= end:
        raise errors.ConfigError(
            f"start {window['start']} is not before end {window['end']}", subject=WINDOW_KEY
        )
    return start, end

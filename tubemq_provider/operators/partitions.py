"""End of a partitioned run's window: the date of the next partition.

Days have 23 to 25 hours where clocks change, and months have no fixed length, so an end is never
computed from a calendar period. For a Dag with Airflow's `CronPartitionTimetable` it is where the
next partition begins, in the timetable's zone; for others a length that is the same everywhere is
needed.

Computes as Airflow's scheduler does, so that windows meet where its partitions do. Reads a
timetable, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Final

from tubemq_client.errors import ConfigError

__all__ = ["is_tick", "next_partition", "partition_end", "ticks_of"]

_DAY: Final = timedelta(days=1)
_BY_CRON: Final = {
    "CronPartitionTimetable",
    "CronDataIntervalTimetable",
    "CronTriggerTimetable",
}
_SHIFT: Final = timedelta(hours=2)
"""Upper bound of a clock change in any zone."""


def partition_end(
    context: Mapping[str, Any], date: datetime, granularity: timedelta | None
) -> datetime | None:
    """Return the end of the window that begins at the partition date `date`; None if undefined.

    Raises `ConfigError` if the timetable and `granularity` disagree, or if only a `granularity` of
    days defines it.
    """
    after = next_partition(getattr(context.get("dag"), "timetable", None), date)
    if after is None:
        return _fixed_end(date, granularity)
    if granularity is not None and not _agree(after - date, granularity):
        raise ConfigError(
            f"granularity {granularity} is not the length of the Dag's partitions: the one of "
            f"{date.isoformat()} ends at {after.isoformat()}, where the next begins. Leave it out, "
            f"as the timetable says where windows end, or give start and end",
            subject="granularity",
        )
    return after


def next_partition(timetable: object, date: datetime) -> datetime | None:
    """Return the partition date after `date` of a `CronPartitionTimetable`, else None.

    Raises `ConfigError` for a `date` at which no partition of it begins.
    """
    if type(timetable).__name__ != "CronPartitionTimetable":
        return None
    after = _after(timetable, date)
    if after is None:
        expression, zone = _cron_of(timetable)
        raise ConfigError(
            f"no partition begins at {date.isoformat()} by {expression!r} in {zone}; give start "
            f"and end",
            subject="partition date",
        )
    return after


def ticks_of(timetable: object) -> Callable[[datetime], datetime | None] | None:
    """Return the grid of a cron timetable as a function from a tick to the next, else None."""
    if type(timetable).__name__ not in _BY_CRON:
        return None
    return lambda tick: _after(timetable, tick)


def is_tick(timetable: object, at: datetime) -> bool:
    """Return True if an interval of a cron timetable begins at `at`."""
    try:
        return _after(timetable, at) is not None
    except (OverflowError, ValueError):  # outside the range of datetime
        return False


def _after(timetable: object, date: datetime) -> datetime | None:
    """Return the tick after `date` of the timetable's cron expression; None if `date` is none."""
    expression, zone = _cron_of(timetable)
    croniter: Any = import_module("croniter").croniter  # also a dependency of Airflow's timetables
    local = date.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
    cron = croniter(expression, local)
    scheduled: datetime = cron.get_next(datetime)
    before: datetime = croniter(expression, scheduled).get_prev(datetime)
    hourly = cron.expanded[1] == ["*"]  # runs in both hours when clocks go back
    if before != local if hourly else _in(zone, before) != date:
        return None
    return date + (scheduled - local) if hourly else _in(zone, scheduled)


def _in(zone: Any, local: datetime) -> datetime:
    """Return the instant of a local time; the later of two, like the scheduler."""
    aware: datetime = zone.convert(local.replace(fold=1))
    return aware.astimezone(UTC)


def _cron_of(timetable: Any) -> tuple[str, Any]:
    """Return expression and zone of a timetable, of the task SDK's class or the scheduler's."""
    pendulum: Any = import_module("pendulum")
    expression = getattr(timetable, "expression", None) or timetable._expression  # noqa: SLF001
    zone = getattr(timetable, "timezone", None) or timetable._timezone  # noqa: SLF001
    return expression, pendulum.timezone(zone) if isinstance(zone, str) else zone


def _agree(length: timedelta, granularity: timedelta) -> bool:
    slack = _SHIFT if granularity >= _DAY / 4 else timedelta(0)
    return abs(length - granularity) <= slack


def _fixed_end(date: datetime, granularity: timedelta | None) -> datetime | None:
    if granularity is None:
        return None
    if granularity >= _DAY:
        raise ConfigError(
            f"granularity {granularity} depends on the calendar, and the Dag's timetable does "
            f"not say when the next partition begins: days have 23 to 25 hours where clocks "
            f"change. Use a CronPartitionTimetable (and no granularity), or say both ends, e.g. "
            f'start="{{{{ partition_date }}}}" and '
            f'end="{{{{ partition_date + macros.timedelta(days=1) }}}}" for days of UTC',
            subject="granularity",
        )
    return date + granularity

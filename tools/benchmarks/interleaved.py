"""Interleaved measurement of several ways to do the same, for comparable ratios.

A shared machine, and a broker that gets warmer, drift by tens of percent within minutes. Ways
measured one after another would be compared on different conditions. Here each pass measures every
way once, the next pass starts with another one, and a ratio is taken within a pass: quote its
median, and its range as the noise. A first pass of every way is not counted.

Nothing here knows TubeMQ. Pass the ways by name to `interleave`, and its result to `print_table`.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Rate", "Spread", "interleave", "print_table", "shares", "timed"]


class Rate(NamedTuple):
    """Records, payload bytes and seconds of one pass, and the client's processor seconds (0 if
    unknown)."""

    records: int
    bytes: int
    seconds: float
    cpu_seconds: float = 0.0

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mib_per_s(self) -> float:
        return self.bytes / self.seconds / 2**20

    @property
    def cpu_us_per_record(self) -> float:
        """Microseconds of the client's processor time per record."""
        return 1e6 * self.cpu_seconds / self.records


class Spread(NamedTuple):
    """Median and range of some numbers."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        return cls(median(numbers), min(numbers), max(numbers))


def timed(run: Callable[[], int], size: int) -> Rate:
    """Return the rate of `run` in this process; it returns its number of records of `size`
    bytes."""
    started, cpu = time.perf_counter(), time.process_time()
    records = run()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Rate(records, records * size, seconds, cpu)


def interleave(
    ways: Mapping[str, Callable[[], Rate]], *, passes: int, seconds: float = 0.0
) -> dict[str, list[Rate]]:
    """Return the rates of all `ways` in each of `passes` passes, after a first uncounted one.

    With `seconds` a way is repeated within its turn until that time is reached, as one pass.
    """
    names = list(ways)
    rates_by_way: dict[str, list[Rate]] = {name: [] for name in names}
    for number in range(passes + 1):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            rate = _lasting(ways[name], seconds if number else 0.0)
            if number:
                rates_by_way[name].append(rate)
                _say(f"pass {number} of {passes}, {name}: {rate.records_per_s:,.0f} records/s")
    return rates_by_way


def _lasting(run: Callable[[], Rate], seconds: float) -> Rate:
    total = run()
    while total.seconds < seconds:
        more = run()
        total = Rate(
            total.records + more.records,
            total.bytes + more.bytes,
            total.seconds + more.seconds,
            total.cpu_seconds + more.cpu_seconds,
        )
    return total


def shares(rates_by_way: Mapping[str, Sequence[Rate]], name: str, of: str) -> Spread:
    """Return the ratio of the speeds of `name` and `of`, pass by pass."""
    pairs = zip(rates_by_way[name], rates_by_way[of], strict=True)
    return Spread.of([mine.records_per_s / theirs.records_per_s for mine, theirs in pairs])


def print_table(
    title: str, rates_by_way: Mapping[str, Sequence[Rate]], against: Sequence[str] = ()
) -> None:
    """Print a row per way. `against`: for each of these that was measured, a column with the median
    and the range of the ratios."""
    from rich.console import Console
    from rich.table import Table

    compared = [name for name in against if name in rates_by_way]
    table = Table(title=title)
    numbers = ("records/s, median", "best", "MiB/s", "client CPU µs/record")
    for column in ("path", *numbers, *(f"× {name}" for name in compared)):
        table.add_column(column, justify="left" if column == "path" else "right")
    for name, rates in rates_by_way.items():
        speed = Spread.of([rate.records_per_s for rate in rates])
        cpu = median(rate.cpu_us_per_record for rate in rates)
        table.add_row(
            name,
            f"{speed.median:,.0f}",
            f"{speed.high:,.0f}",
            f"{median(rate.mib_per_s for rate in rates):,.1f}",
            f"{cpu:.2f}" if cpu else "",
            *(
                "" if name == other else _shown(shares(rates_by_way, name, other))
                for other in compared
            ),
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _shown(share: Spread) -> str:
    return f"{share.median:.2f} ({share.low:.2f} to {share.high:.2f})"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")

"""Several ways to do the same, measured in turns: what makes their ratios worth quoting.

A machine that others use too, and a broker that gets warmer, drift by tens of percent within
minutes. Ways measured one after another hence compare with different machines. Here each pass
measures every way once, the next pass begins with another one, and a ratio is taken within a pass:
quote its median, and its range as what chance adds. A first pass of every way is not counted.

Nothing here knows TubeMQ. Give `interleave` the ways by name; hand its answer to `print_table`.
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
    """Records, payload bytes and seconds of one pass, and the processor seconds of the client
    that did it (0 when they are not known)."""

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
        """Microseconds of processor time the client took for a record."""
        return 1e6 * self.cpu_seconds / self.records


class Spread(NamedTuple):
    """The middle of some numbers, and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        return cls(median(numbers), min(numbers), max(numbers))


def timed(run: Callable[[], int], size: int) -> Rate:
    """The rate of `run`, which returns its number of records of `size` bytes, in this process."""
    started, cpu = time.perf_counter(), time.process_time()
    records = run()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Rate(records, records * size, seconds, cpu)


def interleave(
    ways: Mapping[str, Callable[[], Rate]], *, passes: int, seconds: float = 0.0
) -> dict[str, list[Rate]]:
    """The rates of all `ways` in each of `passes` passes, after a first one that does not count.

    With `seconds` a way is done again within its turn until that time is full, as one pass.
    """
    names = list(ways)
    found: dict[str, list[Rate]] = {name: [] for name in names}
    for number in range(passes + 1):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            rate = _lasting(ways[name], seconds if number else 0.0)
            if number:
                found[name].append(rate)
                _say(f"pass {number} of {passes}, {name}: {rate.records_per_s:,.0f} records/s")
    return found


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


def shares(found: Mapping[str, Sequence[Rate]], name: str, of: str) -> Spread:
    """How many times as fast as `of` the way `name` was, pass by pass."""
    pairs = zip(found[name], found[of], strict=True)
    return Spread.of([mine.records_per_s / theirs.records_per_s for mine, theirs in pairs])


def print_table(
    title: str, found: Mapping[str, Sequence[Rate]], against: Sequence[str] = ()
) -> None:
    """A row a way. `against`: for each of these that was measured, a column with the median of the
    shares and their range."""
    from rich.console import Console
    from rich.table import Table

    compared = [name for name in against if name in found]
    table = Table(title=title)
    numbers = ("records/s, median", "best", "MiB/s", "client CPU µs/record")
    for column in ("path", *numbers, *(f"× {name}" for name in compared)):
        table.add_column(column, justify="left" if column == "path" else "right")
    for name, rates in found.items():
        speed = Spread.of([rate.records_per_s for rate in rates])
        cpu = median(rate.cpu_us_per_record for rate in rates)
        table.add_row(
            name,
            f"{speed.median:,.0f}",
            f"{speed.high:,.0f}",
            f"{median(rate.mib_per_s for rate in rates):,.1f}",
            f"{cpu:.2f}" if cpu else "",
            *("" if name == other else _shown(shares(found, name, other)) for other in compared),
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _shown(share: Spread) -> str:
    return f"{share.median:.2f} ({share.low:.2f} to {share.high:.2f})"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")

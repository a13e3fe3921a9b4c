"""Compares the produced records with the lake, and shows the result as a table.

Three independent accounts of every window: the rows of the CSV, the records in Parquet, and
Airflow's offsets asset. A window is right if the first two are equal record by record and the third
names the ranges of the lake's own marker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from flights import records_between
from rich import box
from rich.table import Table

from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.protocols import Marker
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

__all__ = ["Window", "as_table", "compared", "lake_files"]

_TITLE = "records produced, and records in the lake"


@dataclass(frozen=True)
class Window:
    """One interval in all three accounts. `missing` and `extra` count records."""

    start: datetime
    window_id: str
    kind: str
    ranges: Mapping[str, tuple[int, int]]
    produced: int
    in_parquet: int
    missing: int
    extra: int
    offsets_stored: bool

    @property
    def equal(self) -> bool:
        """True if every produced record is in Parquet once, and no other."""
        return not (self.missing or self.extra)

    @property
    def right(self) -> bool:
        """True if equal, and Airflow has the window's offsets."""
        return self.equal and self.offsets_stored


def compared(
    lake: Path, flights: Path, instants: list[datetime], events: Iterable[Mapping[str, Any]]
) -> list[Window]:
    """Return the windows between consecutive `instants`; `events` are those of the offsets asset.

    A window in the lake that should not be there has an entry, too, with all its records extra.
    """
    stored = {event["window_id"]: event["ranges"] for event in _documents(events)}
    markers = {_start(marker): marker for marker in published_windows(lake)}
    windows = [
        _window(lake, start, markers.pop(start, None), records_between(flights, start, end), stored)
        for start, end in pairwise(instants)
    ]
    strangers = [_window(lake, at, marker, Counter(), stored) for at, marker in markers.items()]
    return windows + strangers


def as_table(windows: Iterable[Window]) -> Table:
    """Return a table: one row per window, its ranges by log (partitions may share one)."""
    table = Table(title=_TITLE, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("window\nfrom", no_wrap=True)
    table.add_column("offsets", no_wrap=True)
    for name in ("rows\nproduced", "rows in\nParquet"):
        table.add_column(name, justify="right", min_width=8)
    table.add_column("equal", min_width=5)
    table.add_column("offsets\nstored", min_width=7)
    for window in windows:
        difference = f"[red]no[/red]: {window.missing} missing, {window.extra} too many"
        table.add_row(
            f"{window.start:%Y-%m-%d}",
            "\n".join(_by_log(window)) or "not in the lake",
            str(window.produced),
            str(window.in_parquet),
            "[green]yes[/green]" if window.equal else difference,
            "[green]yes[/green]" if window.offsets_stored else "[red]no[/red]",
            end_section=True,
        )
    return table


def lake_files(lake: Path) -> dict[str, int]:
    """Return every data file and marker of the lake, with the time it was written (ns)."""
    names = [*lake.rglob("*.parquet"), *lake.rglob("_tubemq_window.json")]
    return {str(path.relative_to(lake)): path.stat().st_mtime_ns for path in names}


def _documents(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the commit events of ingest tasks; other events are skipped."""
    for event in events:
        document = event["extra"].get("tubemq")
        if document and "window_id" in document:
            yield document


def _window(
    lake: Path,
    start: datetime,
    marker: Marker | None,
    produced: Counter[bytes],
    stored: Mapping[str, Mapping[str, list[int]]],
) -> Window:
    window_id = marker.plan.window_id if marker else ""
    ranges = dict(marker.plan.ranges) if marker else {}
    written = _values(lake, window_id) if marker else Counter()
    return Window(
        start=start,
        window_id=window_id,
        kind=marker.plan.source if marker else FIRST_SOURCE,
        ranges=ranges,
        produced=produced.total(),
        in_parquet=written.total(),
        missing=(produced - written).total(),
        extra=(written - produced).total(),
        offsets_stored=bool(ranges)
        and stored.get(window_id) == {key: list(range_) for key, range_ in ranges.items()},
    )


def _values(lake: Path, window_id: str) -> Counter[bytes]:
    table = read_windows(lake, [window_id]).to_table(columns=["value"])
    return Counter(table.column("value").to_pylist())


def _start(marker: Marker) -> datetime:
    start, _ = marker.plan.time or ("1970-01-01T00:00:00Z", "")
    return datetime.fromisoformat(start)


def _by_log(window: Window) -> Iterator[str]:
    """Yield a line for each log: its broker, its partitions, their common range."""
    for keys in space_of(window.kind).logs(window.ranges).values():
        (broker, _, _), (start, end) = keys[0].rpartition(":"), window.ranges[keys[0]]
        yield f"{broker}:{','.join(key.rpartition(':')[2] for key in keys)}  {start}–{end}"

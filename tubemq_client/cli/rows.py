"""Rows to records: reading CSV, tab-separated values and JSON lines, and selecting them by time.

A row of CSV becomes one JSON object; a line of JSON is sent unchanged, since a parser would not
preserve its numbers. Times are ISO 8601; without a zone they are UTC. Rows out of time order are
refused, because boundaries would not be exact then. Sends nothing.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from tubemq_client import Record, errors
from tubemq_client.json_text import load_unique_json

__all__ = ["Overview", "Row", "RowSource", "Selection", "instant"]

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LONGEST_FIELD = 64 << 20
"""Characters; far more than a broker accepts in a record, so that it is refused there by name."""
_SHOWN = 200
"""Characters of a bad row that its error shows."""
_SIGNATURES = {
    "gzip": b"\x1f\x8b",
    "zip": b"PK\x03\x04",
    "a bzip2 archive": b"BZh91AY&",
    "an xz archive": b"\xfd7zXZ",
    "a zstandard archive": b"\x28\xb5\x2f\xfd",
    "a 7z archive": b"7z\xbc\xaf",
    "a Parquet file": b"PAR1\x15",
    "an Avro file": b"Obj\x01",
    "UTF-32 text": b"\xff\xfe\0\0",
    "UTF-16 text": b"\xff\xfe",
    "UTF-16 text of the other byte order": b"\xfe\xff",
}
_FOREIGN = "__MACOSX/"
_BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, NotImplementedError)
"""Errors of reading an archive that is damaged, or compressed in a way Python does not know."""


class Row(NamedTuple):
    """A record to send and the time it belongs to (None without a time field)."""

    record: Record
    time: datetime | None


class _Fields(NamedTuple):
    """A row by field name, numbered from 1, and the text that is sent for it."""

    number: int
    values: dict[str, Any]
    text: str


class Overview(NamedTuple):
    """Count of the selected rows, and the time of the first one (None: no row or no time)."""

    rows: int
    first_time: datetime | None


def instant(text: str) -> datetime:
    """Return an aware UTC time for ISO 8601 `text`. Raises `errors.ConfigError`."""
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except ValueError:
        raise errors.ConfigError(f"{text!r} is not an ISO 8601 time", subject="time") from None
    except OverflowError:
        raise errors.ConfigError(
            f"{text!r} is not of the years 1 to 9999 in UTC", subject="time"
        ) from None


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows to send: those of times in `[start, end)`, and at most `limit` of them."""

    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None

    @classmethod
    def parse(cls, start: str | None, end: str | None, limit: int | None) -> Selection:
        """Return the selection for texts as users type them. Raises `errors.ConfigError`."""
        instants: list[datetime | None] = []
        problems = []
        for option, text in (("--from", start), ("--to", end)):
            try:
                instants.append(None if text is None else instant(text))
            except errors.ConfigError as error:
                problems.append(f"{option}: {error.problems[0]}")
        if problems:
            raise errors.ConfigError(problems)
        first, last = instants
        if first is not None and last is not None and first > last:
            raise errors.ConfigError(f"--from {start} is after --to {end}")
        return cls(first, last, limit)

    def wants(self, at: datetime | None) -> bool:
        """Return True if a row of time `at` lies in `[start, end)`."""
        if at is None:
            return True
        too_early = self.start is not None and at < self.start
        return not (too_early or (self.end is not None and at >= self.end))


@dataclass(frozen=True, slots=True)
class RowSource:
    """Source of rows (`file` None is standard input) and the fields that make up a record."""

    file: Path | None
    stream_field: str | None = None
    time_field: str | None = None
    selection: Selection = Selection()

    def rows(self) -> Iterator[Row]:
        """Yield the selected rows, in their order. Raises `errors.ConfigError` naming the row."""
        with self._fields() as numbered:
            for fields, at in self._selected(numbered):
                yield self._row(fields, at)

    @property
    def can_be_read_twice(self) -> bool:
        """True if `rows` can start over: for a file, not for standard input."""
        return self.file is not None

    def overview(self) -> Overview:
        """Read and check all rows; return what was found.

        Raises `errors.ConfigError` as `rows` would.
        """
        first: datetime | None = None
        count = 0
        with self._fields() as numbered:
            for _, at in self._selected(numbered):
                first = first or at
                count += 1
        return Overview(count, first)

    def _selected(self, numbered: Iterable[_Fields]) -> Iterator[tuple[_Fields, datetime | None]]:
        return itertools.islice(self._in_order(numbered), self.selection.limit)

    def _in_order(self, numbered: Iterable[_Fields]) -> Iterator[tuple[_Fields, datetime | None]]:
        latest: datetime | None = None
        for fields in numbered:
            at = self._time(fields)
            if not self.selection.wants(at):
                continue
            if at is not None and latest is not None and at < latest:
                raise errors.ConfigError(
                    f"row {fields.number} is of {at.isoformat()}, before {latest.isoformat()}: "
                    f"sort the rows by {self.time_field!r}{_shown(fields.text)}",
                    subject="rows",
                )
            latest = at
            yield fields, at

    def _time(self, fields: _Fields) -> datetime | None:
        if self.time_field is None:
            return None
        text = str(_value(fields, self.time_field))
        try:
            return instant(text)
        except errors.ConfigError as error:
            raise errors.ConfigError(
                f"row {fields.number}: {error.problems[0]}{_shown(fields.text)}", subject="rows"
            ) from None

    def _row(self, fields: _Fields, at: datetime | None) -> Row:
        stream = str(_value(fields, self.stream_field)) if self.stream_field is not None else None
        try:
            body = fields.text.encode()
            (stream or "").encode()
        except UnicodeEncodeError:
            raise errors.ConfigError(
                f"row {fields.number} has characters that are no Unicode text{_shown(fields.text)}",
                subject="rows",
            ) from None
        return Row(Record(body, None, stream, at.strftime("%Y%m%d%H%M") if at else None), at)

    @contextmanager
    def _fields(self) -> Iterator[Iterator[_Fields]]:
        """Open the source and yield its rows as fields."""
        try:
            with _opened(self.file) as (name, lines):
                delimiter = _DELIMITERS.get(Path(name.lower()).suffix)
                yield _json_lines(lines) if delimiter is None else _csv(lines, delimiter)
        except (OSError, EOFError, UnicodeDecodeError, *_BROKEN_ARCHIVE) as error:
            where = self.file.name if self.file else "standard input"
            raise errors.ConfigError(f"{where}: {error}", subject="rows") from None


def _shown(text: str) -> str:
    """Return the beginning of a bad row's text, for the end of an error."""
    text = text.strip()
    cut = "…" if len(text) > _SHOWN else ""
    return f"; the row: {text[:_SHOWN]}{cut}"


def _value(fields: _Fields, name: str) -> Any:
    value = fields.values.get(name)
    if value is None or value == "":
        names = ", ".join(fields.values)
        problem = "an empty" if name in fields.values else "no"
        raise errors.ConfigError(
            f"row {fields.number} has {problem} field {name!r}; its fields are {names}"
            f"{_shown(fields.text)}",
            subject="rows",
        )
    return value


def _csv(lines: Iterable[str], delimiter: str) -> Iterator[_Fields]:
    """Yield rows under a header. Strict mode: Python's defaults would drop text behind a closing
    quote, and an unclosed quote would swallow all rows behind it."""
    csv.field_size_limit(_LONGEST_FIELD)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    number = 0
    try:
        header = next((row for row in rows if row), [])
        _check_header(header, delimiter)
        for fields in rows:
            if not fields:
                continue
            number += 1
            if len(fields) != len(header):
                raise errors.ConfigError(
                    f"row {number} has not as many fields as the header "
                    f"({len(fields)}, not {len(header)}){_shown(delimiter.join(fields))}",
                    subject="rows",
                )
            values = dict(zip(header, fields, strict=True))
            text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
            yield _Fields(number, values, text)
    except csv.Error as error:
        where = f"row {number + 1}" if header else "the header"
        problem = "a quote is not closed" if "end of data" in str(error) else str(error)
        raise errors.ConfigError(
            f"{where} (up to line {rows.line_num}): {problem}", subject="rows"
        ) from None


def _check_header(header: list[str], delimiter: str) -> None:
    """Check that column names are present and unique: rows become JSON objects."""
    problems = []
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        problems.append(f"the header names {', '.join(map(repr, twice))} twice; rename one")
    if "" in header:
        problems.append(f"column {header.index('') + 1} of the header has no name")
    if len(header) == 1 and (signs := [sign for sign in ",;\t|" if sign in header[0]]):
        problems.append(
            f"the header has one column, {header[0]!r}: columns are separated by {delimiter!r}, "
            f"not by {signs[0]!r}; name a file with commas .csv, one with tabs .tsv"
        )
    if problems:
        raise errors.ConfigError(problems, subject="rows")


def _json_lines(lines: Iterable[str]) -> Iterator[_Fields]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = load_unique_json(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise errors.ConfigError(
                f"row {number}: {error} (files named .csv or .tsv are read as such, "
                f"others as JSON lines){_shown(line)}",
                subject="rows",
            ) from None
        if not isinstance(fields, dict):
            raise errors.ConfigError(
                f"row {number} is not a JSON object{_shown(line)}", subject="rows"
            )
        yield _Fields(number, fields, line.strip())


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


@contextmanager
def _opened(file: Path | None) -> Iterator[tuple[str, IO[str]]]:
    """Open the file; yield the name that shows its format, and the text."""
    if file is None:
        if sys.stdin is None:
            raise errors.ConfigError("standard input is closed; name a file with --file")
        # JSON is UTF-8, regardless of the terminal's locale.
        text = io.TextIOWrapper(sys.stdin.buffer, "utf-8-sig", newline="")
        try:
            yield "-", text
        finally:
            text.detach()  # else the wrapper would close it
        return
    kind = _kind(file)
    if kind == "zip":
        with zipfile.ZipFile(file) as archive:
            name = _only_member(archive)
            with archive.open(name) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
                yield name, text
    elif kind == "gzip":
        name = file.stem if file.suffix.lower() == ".gz" else file.name
        with gzip.open(file, "rt", encoding="utf-8-sig", newline="") as text:
            yield name, text
    else:
        with file.open(encoding="utf-8-sig", newline="") as text:
            yield file.name, text


def _kind(file: Path) -> str:
    """Return the file's type by its first bytes: ``text``, ``gzip`` or ``zip``. Raises
    `errors.ConfigError` for other archives, and for files that hold no text."""
    with file.open("rb") as raw:
        first = raw.read(8)
    for kind, begin in _SIGNATURES.items():
        if first.startswith(begin):
            if kind in ("gzip", "zip"):
                return kind
            raise errors.ConfigError(
                f"{file.name}: is {kind}, which is not read; give CSV, tab-separated values or "
                "JSON lines in UTF-8, as they are, in gzip or in a zip",
                subject="rows",
            )
    if file.suffix.lower() == ".zip":
        return "zip"
    return "gzip" if file.suffix.lower() == ".gz" else "text"


def _only_member(archive: zipfile.ZipFile) -> str:
    names = [n for n in archive.namelist() if not n.endswith("/") and not n.startswith(_FOREIGN)]
    if len(names) != 1:
        raise zipfile.BadZipFile(f"it holds {len(names)} files; one is needed")
    if archive.getinfo(names[0]).flag_bits & 1:
        raise zipfile.BadZipFile("it is encrypted")
    return names[0]

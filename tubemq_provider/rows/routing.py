"""Records of one read for many tables: which route takes them, and the rows of each table.

Engines use it where they read: in their process, or in a task of Spark. A value of the record
decides about its route; what no route takes is left to the caller's policy. This module must not
know a sink, or where files are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.arrays import texts
from tubemq_provider.files.writer import rows_by_key
from tubemq_provider.rows.changes.envelopes import Notice, parse_body
from tubemq_provider.rows.changes.reduction import Reducer
from tubemq_provider.rows.decoding import BadRecord, BadRecords, RowDecoder, partition_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.windows.following import Following

__all__ = [
    "GROUP_BYTES",
    "NOWHERE",
    "ROW_GROUP_BYTES",
    "Division",
    "Patterns",
    "TableRows",
    "Unrouted",
    "combined",
    "escaped",
    "failure_of",
    "is_wild",
    "refuse_unrouted",
    "shown",
]

GROUP_BYTES: Final = 16 * 1024 * 1024
"""Bodies that are read before they are divided, so that a table gets few and large batches."""
ROW_GROUP_BYTES: Final = 4 * 1024 * 1024
"""Pending rows of one table; all tables of a window, or a task, have theirs in memory."""
NOWHERE: Final = "\0"
"""Value of change records that are of no table, such as heartbeats."""
_LONGEST_REASON: Final = 300
_SHOWN: Final = 60
_MOST_SHOWN: Final = 5
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_ESCAPED: Final = re.compile(r"_x([0-9a-f]{1,6})_")
_WILD: Final = frozenset("*?[")
_OF_SINKS: Final = ("tubemq_windows", "tubemq_boundaries")
"""Tables in which sinks keep their markers beside the target."""


def is_wild(pattern: str) -> bool:
    """Return True for a pattern that may match other values than its own text."""
    return not _WILD.isdisjoint(pattern)


def escaped(value: str) -> str:
    """Return a value as it stands in a path and in the name of a table."""
    return "".join(s if _PLAIN.fullmatch(s) else f"_x{ord(s):x}_" for s in value)


def _value_of(name: str) -> str:
    """Return the value that `escaped` has made a name of."""

    def sign(found: re.Match[str]) -> str:
        number = int(found[1], 16)
        return chr(number) if number <= 0x10FFFF else found[0]

    return _ESCAPED.sub(sign, name)


def shown(value: str | None) -> str:
    """Return a value for an error's text: bounded, with control characters escaped."""
    if value is None or len(value) <= _SHOWN:
        return repr(value)
    return f"{value[:_SHOWN]!r}… ({len(value)} characters)"


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns of the routes by `by`, in their order. `longest` is, for each, how long a value may
    be in the address of its table, escaped; None if it does not stand there."""

    by: str
    patterns: Sequence[str]
    longest: Sequence[int | None]

    def route_of(self, value: str) -> int | None:
        """Return the index of the route that takes a value: the one that names it, else the first
        that matches. A route in whose address the value cannot stand is passed over."""
        fits = (i for i in self._matching(value) if _misfit(value, self.longest[i]) is None)
        return next(fits, None)

    def refusal(self, value: str | None) -> str:
        """Return why no route takes a value."""
        first = None if value is None else next(self._matching(value), None)
        if value is None or first is None:
            return f"no route takes records with {self.by} {shown(value)}"
        return (
            f"{self.by} {shown(value)} cannot stand in an address of route "
            f"{self.patterns[first]!r}: {_misfit(value, self.longest[first])}"
        )

    def _matching(self, value: str) -> Iterator[int]:
        yield from (i for i, each in enumerate(self.patterns) if each == value)
        for index, each in enumerate(self.patterns):
            if each != value and fnmatchcase(value, each):
                yield index


def _misfit(value: str, longest: int | None) -> str | None:
    """Return why a value cannot stand in an address, or None."""
    if longest is None:
        return None
    name = escaped(value)
    if not value:
        return "it is empty"
    if _value_of(name) != value:
        return "it would give the place of another value"
    if len(name) > longest:
        return f"it has {len(name)} characters there, more than {max(longest, 0)}"
    if name.lower() in _OF_SINKS:
        return "sinks keep their markers in a table of this name"
    return None


def failure_of(error: Exception) -> str:
    """Return why a table does not take its window, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_REASON]


def combined(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the records of several batches as one batch."""
    import pyarrow as pa

    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


@dataclass(frozen=True, slots=True)
class Division:
    """Division of records by the column `by`, or by the table or database (``_table``,
    ``_database``) that change records in `format` name."""

    by: str
    format: str | None = None

    def parts(self, records: pa.RecordBatch) -> list[tuple[str | None, pa.RecordBatch]]:
        """Return the records by their value, in the order of reading within each."""
        import pyarrow.compute as pc

        if self.format is None:
            values = records.column(self.by)
        else:
            values = texts([self._table_of(body) for body in records.column("value").to_pylist()])
        encoded = values.dictionary_encode(null_encoding="encode")
        distinct = encoded.dictionary.to_pylist()
        if self.format is None:  # else a record with this value would be taken for a heartbeat
            distinct = [None if value == NOWHERE else value for value in distinct]
        if len(distinct) == 1:
            return [(distinct[0], records)]
        order = pc.sort_indices(encoded.indices)  # stable
        counts = {
            item["values"]: item["counts"] for item in encoded.indices.value_counts().to_pylist()
        }
        parts, start = [], 0
        for code, value in enumerate(distinct):
            # A copy: a pending slice would keep all records in memory.
            parts.append((value, records.take(order.slice(start, counts[code]))))
            start += counts[code]
        return parts

    def _table_of(self, body: bytes | None) -> str | None:
        """Return the table, or database, that a change record names; None if it does not decode."""
        try:
            parsed = parse_body(self.format or "", body or b"")
        except ValueError:
            return None
        if isinstance(parsed, Notice):
            if parsed.table is None:  # DDL is of some table, and nothing may pass it over
                return None if parsed.kind in ("ddl", "truncate") else NOWHERE
            database, _, table = parsed.table.partition(".")
            return database if self.by == "_database" else table or database
        change = parsed[0]
        return change.database if self.by == "_database" else change.table


@dataclass(slots=True)
class Unrouted:
    """Policy for records that no route takes (``fail``, ``quarantine`` or ``ignore``), and their
    counts by partition; `keep` quarantines one."""

    policy: str
    columns: ColumnSet
    keep: Callable[[BadRecord], None]
    counts: Counter[str] = field(default_factory=Counter)
    nowhere: int = 0
    ignored: int = 0
    _refused: Counter[str] = field(default_factory=Counter)

    def add(self, records: pa.RecordBatch, value: str | None, why: str, *, wanted: bool) -> None:
        """Take records, and `why` no table does; those that are not `wanted` are of tables that are
        not read for."""
        self.counts.update(dict(rows_by_key(records)))
        if value == NOWHERE:
            self.nowhere += records.num_rows
        elif self.policy == "ignore" or not wanted:
            self.ignored += records.num_rows
        elif self.policy == "fail":
            self._refused[why] += records.num_rows
        else:
            self._set_aside(records, why)

    def check(self) -> None:
        """Raise `ConfigError` under ``fail`` if there were records that no table takes."""
        refuse_unrouted(self._refused)

    def _set_aside(self, records: pa.RecordBatch, why: str) -> None:
        offset, number = self.columns.place
        names = ("partition", offset, number, "value")
        cells = zip(*(records.column(name).to_pylist() for name in names), strict=True)
        for at, (key, first, message, body) in enumerate(cells):
            place = partition_of(str(key))
            self.keep(BadRecord(place, int(first), at, int(message), body or b"", why))

    @property
    def set_aside(self) -> int:
        """Number of quarantined records."""
        return self.counts.total() - self.nowhere - self.ignored

    @property
    def notices(self) -> dict[str, int]:
        """Numbers of records that are of no table, and of ignored ones, by kind."""
        numbers = {"heartbeat": self.nowhere, "unrouted": self.ignored}
        return {kind: count for kind, count in numbers.items() if count}


def refuse_unrouted(refused: Mapping[str, int]) -> None:
    """Raise `ConfigError` if values have no table: the reasons, with numbers of records."""
    if not refused:
        return
    known = list(refused.items())
    problems = [
        f"{why} ({number} so far): add a route that names the value and its place, or '*' with "
        "one table, or set unrouted='quarantine'"
        for why, number in known[:_MOST_SHOWN]
    ]
    if more := known[_MOST_SHOWN:]:
        problems.append(f"{len(more)} other values, with {sum(n for _, n in more)} records")
    raise ConfigError(problems, subject="routes")


class TableRows:
    """Rows of one table, decoded and counted; a table that follows changes gets the last change of
    each key. `keys` are the partitions. An engine derives from it, with `_put` and `_guarded`. What
    a failed table gets is decoded and counted too, so the quarantine has all of its bad records."""

    def __init__(
        self,
        decoder: RowDecoder | None,
        following: Following | None,
        columns: ColumnSet,
        keys: Iterable[str],
    ) -> None:
        self._decoder = decoder
        self.schema = columns.arrow_schema(columns.names) if decoder is None else decoder.schema
        self._reducer = None
        if following is not None:
            self._reducer = Reducer(self.schema, following)
            self.schema = self._reducer.schema
        self.read = dict.fromkeys(keys, 0)
        self.rows = dict(self.read)
        self.bytes = 0
        self._output: Any = None

    def add(self, records: pa.RecordBatch, bad_records: BadRecords) -> None:
        """Take the next records."""
        for key, count in rows_by_key(records):
            self.read[key] = self.read.get(key, 0) + count
        self.bytes += int(records.column("value").nbytes)
        rows = records
        if self._decoder is not None:
            rows = self._decoder.rows(records.select(self._decoder.read_schema.names), bad_records)
        if (reducer := self._reducer) is not None:
            self._guarded(lambda: reducer.add(rows))
        else:
            self._write(rows)

    def finish(self) -> None:
        """Write the last changes of the keys, if the table follows changes, and close the files."""
        if self._reducer is not None:
            self._guarded(self._write_changes)
        if self._output is not None:
            self._guarded(lambda: self._output.__exit__(None, None, None))

    def _write_changes(self) -> None:
        assert self._reducer is not None
        for _, batches in self._reducer.by_partition(self.read):
            for batch in batches:
                self._write(batch)

    def _write(self, rows: pa.RecordBatch) -> None:
        for key, count in rows_by_key(rows):
            self.rows[key] = self.rows.get(key, 0) + count
        self._guarded(lambda: self._put(rows))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do something that may fail because of the table, unless the table has failed."""
        raise NotImplementedError

    def _give_up(self) -> None:
        """Abandon the files of a table that has failed."""
        output, self._output = self._output, None
        if output is not None:
            with suppress(Exception):
                output.__exit__(Exception, None, None)

    def _put(self, rows: pa.RecordBatch) -> None:
        """Write rows into the table's files."""
        raise NotImplementedError

    @property
    def notices(self) -> Mapping[str, int]:
        """Records without a row, by kind."""
        return {} if self._decoder is None else dict(self._decoder.notices)

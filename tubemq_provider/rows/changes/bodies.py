"""Decoder of change records: the columns of rows, and what happened to them.

A body may hold several changes (Canal), one, or none: DDL, heartbeats, truncated tables and
tombstones are counted by kind. A body of which one row does not decode is bad as a whole. This
module must not decide what a table does with a change.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.bulk import BadBody, Decoded
from tubemq_provider.rows.changes.envelopes import Change, Notice, parse_body, parse_document
from tubemq_provider.rows.changes.framed import FramedDocuments
from tubemq_provider.rows.changes.values import Reading, Unavailable, converter_of
from tubemq_provider.rows.spec import SUBJECT
from tubemq_provider.windows.errors import TableAltered

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tubemq_provider.rows.changes.values import Convert
    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["BEFORE", "CHANGE_COLUMNS", "OP", "ChangeBodies"]

OP: Final = "_op"
BEFORE: Final = "_before"
CHANGE_COLUMNS: Final = (
    OP,
    "_database",
    "_table",
    "_source_position",
    "_source_time",
    "_transaction_id",
)
"""Columns of every change, after those of the row."""
_UNKNOWN: Final = object()
"""Cell whose value the row does not have."""


class _Row(NamedTuple):
    place: int
    cells: list[Any]
    before: dict[str, Any] | None
    change: Change


class ChangeBodies:
    """Decoder of change records with the rows' `schema`. Raises `ConfigError` if a column has the
    name of one of a change."""

    def __init__(self, schema: pa.Schema, spec: DecodeSpec) -> None:
        import pyarrow as pa

        names = (*CHANGE_COLUMNS, BEFORE)
        if clashes := [name for name in schema.names if name.lower() in names]:
            raise ConfigError(
                f"schema: column {clashes[0]!r} has the name of one of changes "
                f"({', '.join(names)}); rename it",
                subject=SUBJECT,
            )
        text, instant = pa.string(), pa.timestamp("us", tz="UTC")
        types = (text, text, text, text, instant, text)
        self._rows = schema
        self._has_before = spec.before
        self.schema = pa.schema(
            [
                *schema,
                *(pa.field(name, type_) for name, type_ in zip(CHANGE_COLUMNS, types, strict=True)),
                *([pa.field(BEFORE, pa.struct(list(schema)))] if spec.before else []),
            ]
        )
        self._format = spec.format
        self._framed = FramedDocuments(spec) if spec.schema_registry is not None else None
        self._tables = frozenset(spec.tables)
        self._refuses_ddl = spec.on_ddl == "fail"
        self._refuses_unknown = spec.unknown_fields == "fail"
        reading = Reading(
            spec.times,
            spec.decimals,
            "latin1" if spec.format == "canal" else "base64",
            spec.nanoseconds,
        )
        self._convert: dict[str, Convert] = {
            item.name: converter_of(item.type, reading) for item in schema
        }
        self._columns = [
            (name, f"{name}_isMissing", convert) for name, convert in self._convert.items()
        ]

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`. Raises `TableAltered` for DDL and truncated tables, unless they are
        ignored."""
        rows: list[_Row] = []
        bad: list[BadBody] = []
        empty: list[int] = []
        notices: Counter[str] = Counter()
        for place, body in enumerate(records.column("value").to_pylist()):
            try:
                parsed = self._parsed(body or b"")
                if isinstance(parsed, Notice):
                    self._notice(parsed, notices)
                    empty.append(place)
                    continue
                ours = [change for change in parsed if self._is_ours(change)]
                if not ours:
                    notices["other_table"] += 1
                    empty.append(place)
                    continue
                rows += [self._row(place, change) for change in ours]
            except ConfigError:
                raise
            except ValueError as error:
                bad.append(BadBody(place, str(error).splitlines()[0]))
        return Decoded(self._batch(rows), [row.place for row in rows], bad, empty, notices)

    def _parsed(self, body: bytes) -> list[Change] | Notice:
        read = body if self._framed is None else self._framed.read(body)
        if isinstance(read, bytes):
            return parse_body(self._format, read)
        return parse_document(self._format, read)

    def _notice(self, notice: Notice, notices: Counter[str]) -> None:
        if notice.kind in ("ddl", "truncate"):
            is_ours = not self._tables or notice.table is None or notice.table in self._tables
            if is_ours and self._refuses_ddl:
                text = f": {notice.text[:500]}" if notice.text else ""
                raise TableAltered(
                    f"table {notice.table or '(unnamed)'} was "
                    f"{'truncated' if notice.kind == 'truncate' else 'altered'}{text}. Change the "
                    "schema (and the table) to what the source has now, and set on_ddl='ignore' in "
                    "'decode' for the window that has this record"
                )
        notices[notice.kind] += 1

    def _is_ours(self, change: Change) -> bool:
        if not self._tables:
            return True
        full = f"{change.database}.{change.table}" if change.database else change.table
        return full in self._tables

    def _row(self, place: int, change: Change) -> _Row:
        row = change.row
        if not any(name in row for name in self._convert):
            raise ValueError(
                f"its row ({', '.join(list(row)[:8])}) has none of the schema's columns; if the "
                "topic has several tables, name this one's in 'tables'"
            )
        if self._refuses_unknown and (others := [n for n in row if n not in self._convert]):
            raise ValueError(f"field {others[0]!r} is not in the schema")
        cells = []
        older = (change.before or {}) if change.op == "u" else {}
        for name, missing, convert in self._columns:
            unknown = missing in row or (name not in row and name in older)
            cell = _UNKNOWN if unknown else self._plain_cell(name, convert, change)
            cells.append(self._cell(name, change) if cell is _UNKNOWN else cell)
        before = None
        if self._has_before and change.before is not None and change.op in ("u", "d"):
            before = {name: self._before_cell(name, change) for name in self._convert}
        return _Row(place, cells, before, change)

    def _plain_cell(self, name: str, convert: Convert, change: Change) -> Any:
        """Return the value that the row has, `_UNKNOWN` in place of a placeholder."""
        try:
            return convert(change.row.get(name), change.kinds.get(name) or {})
        except Unavailable:
            return _UNKNOWN
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error

    def _cell(self, name: str, change: Change) -> Any:
        """Return the value of a column; one that the record lacks because it did not change is
        taken from the row before."""
        kind = change.kinds.get(name) or {}
        images: list[Mapping[str, Any]] = [change.row]
        if change.op == "u" and change.before is not None:
            lacks = name not in change.row and name in change.before
            images = [change.before] if lacks else [change.row, change.before]
        for image in images:
            if image.get(f"{name}_isMissing") is True:
                continue
            try:
                return self._convert[name](image.get(name), kind)
            except Unavailable:
                continue
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from error
        if change.op == "d":
            return None
        raise ValueError(
            f"column {name!r}: the record does not have the value, which did not change; let the "
            "source log whole rows (PostgreSQL: REPLICA IDENTITY FULL, Oracle: supplemental "
            "logging of all columns)"
        )

    def _before_cell(self, name: str, change: Change) -> Any:
        try:
            return self._convert[name](
                (change.before or {}).get(name), change.kinds.get(name) or {}
            )
        except Unavailable:
            return None
        except ValueError as error:
            raise ValueError(f"column {name!r} before the change: {error}") from error

    def _batch(self, rows: list[_Row]) -> pa.RecordBatch:
        import pyarrow as pa

        columns: list[list[Any]] = [
            [row.cells[at] for row in rows] for at in range(len(self._rows))
        ]
        changes = [row.change for row in rows]
        columns += [
            [change.op for change in changes],
            [change.database for change in changes],
            [change.table for change in changes],
            [change.position for change in changes],
            [change.time for change in changes],
            [change.transaction for change in changes],
        ]
        if self._has_before:
            columns.append([row.before for row in rows])
        arrays = [
            pa.array(cells, item.type) for cells, item in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

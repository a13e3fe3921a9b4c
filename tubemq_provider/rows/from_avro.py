"""Avro data without a container, one datum per body, read strictly into columns (extra ``avro``).

A body is read with the writer's schema: `spec.schema`, or with `spec.schemas` the one whose id is
in its frame. A body in Avro's single-object encoding names its schema by a fingerprint, which is
compared. Bodies without a frame do not identify their writer; a body of another schema is bad, or
cannot be distinguished, as usual with Avro. This module must not decide about bad bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.arrays import int64s, no_rows
from tubemq_provider.rows.avro_schema import fingerprint_of, record_column
from tubemq_provider.rows.bulk import BadBody, Decoded, merged, moved
from tubemq_provider.rows.compiled import compiled_reader
from tubemq_provider.rows.frames import Frames
from tubemq_provider.rows.registry import registry_of
from tubemq_provider.rows.spec import FRAMED_AVRO, SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.avro_columns import RecordColumn
    from tubemq_provider.rows.avro_schema import FieldResolution, ReaderFields
    from tubemq_provider.rows.compiled import CompiledReader
    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["AvroBodies", "reason_of"]

_SINGLE_OBJECT: Final = b"\xc3\x01"
_SINGLE_OBJECT_SIZE: Final = 10
"""Size of the marker above and a fingerprint of eight bytes."""


class AvroBodies:
    """Decoder of bodies that hold one datum of the record schema `spec.schema` after
    `spec.skip_bytes`, or of one of `spec.schemas`, whose fields are resolved to the columns of
    `spec.schema` by name."""

    def __init__(self, spec: DecodeSpec) -> None:
        if spec.skip_bytes == Frames.SIZE and not (spec.schemas or spec.schema_registry):
            raise ConfigError(FRAMED_AVRO, subject=SUBJECT)
        self._columns, fields = _columns(spec, spec.schema or "")
        self.schema = _schema_of(self._columns)
        self._frames = Frames(spec.skip_bytes)
        self._mark = _single_object_mark(spec)
        self._spec, self._fields = spec, fields
        self._compiled = _compiled(self._columns, spec.skip_bytes, self._mark)
        self._writers: dict[int, _Writer] = {}
        problems: list[str] = []
        for id_, text in spec.schemas.items():
            try:
                columns, writer = _columns(spec, text)
                mapping = _Mapping(self.schema, fields, _schema_of(columns), writer)
                self._writers[int(id_)] = _Writer(columns, mapping)
            except ConfigError as error:
                problems += [f"schemas: {id_}: {problem}" for problem in error.problems]
        if problems:
            raise ConfigError(problems, subject=SUBJECT)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        bodies = records.column("value")
        if self._writers or self._spec.schema_registry is not None:
            return self._read_by_id(bodies)
        if self._compiled is None:
            return self._read_own(bodies)
        return self._compiled.decode(bodies, self._read_own)

    def _read_own(self, bodies: pa.BinaryArray) -> Decoded:
        return _read(bodies.to_pylist(), self._columns, self._start)

    def _start(self, body: bytes) -> int:
        if self._mark and body.startswith(_SINGLE_OBJECT) and not body.startswith(self._mark):
            other, own = body[2:10].hex(), self._mark[2:].hex()
            raise ValueError(f"its schema has the fingerprint {other}, 'schema' {own}")
        return self._frames.start(body)

    def _read_by_id(self, bodies: pa.BinaryArray) -> Decoded:
        """Read the bodies of each schema id together, and restore the order of the records."""
        by_id: dict[int, list[int]] = {}
        bad: list[BadBody] = []
        for place, body in enumerate(bodies.to_pylist()):
            try:
                id_ = Frames.id_of(body)
                if id_ not in self._writers and self._spec.schema_registry is not None:
                    self._look_up(id_, self._spec.schema_registry)
                if id_ not in self._writers:
                    ids = ", ".join(map(str, sorted(self._writers)))
                    raise ValueError(  # noqa: TRY301
                        f"schema id {id_} is none of 'schemas' ({ids})"
                    )
                by_id.setdefault(id_, []).append(place)
            except ConfigError:
                raise
            except ValueError as error:
                bad.append(BadBody(place, str(error)))
        nothing = no_rows(self.schema)
        parts = [Decoded(nothing, [], bad)]
        for id_, places in by_id.items():
            decoded = self._writers[id_].decode(bodies.take(int64s(places)))
            parts.append(moved(decoded, places))
        return merged(parts, self.schema)

    def _look_up(self, id_: int, registry: str) -> None:
        """Take the schema of an id from the registry. Raises `ValueError` for an unknown one, and
        `ConfigError` for one that does not resolve to the columns."""
        schema = registry_of(registry).schema(id_)
        if schema.kind != "AVRO":
            raise ValueError(f"its schema is {schema.kind}, not AVRO")
        try:
            columns, writer = _columns(self._spec, schema.text)
            mapping = _Mapping(self.schema, self._fields, _schema_of(columns), writer)
        except ConfigError as error:
            raise ConfigError(
                [f"schema_registry: schema {id_}: {problem}" for problem in error.problems],
                subject=SUBJECT,
            ) from error
        self._writers[id_] = _Writer(columns, mapping)


class _Writer:
    """Reader of the bodies of one writer's schema, into the reader's columns."""

    def __init__(self, columns: RecordColumn, mapping: _Mapping) -> None:
        self._columns = columns
        self._mapping = mapping
        self._compiled = _compiled(columns, Frames.SIZE)

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        if self._compiled is None:
            decoded = self._read(bodies)
        else:
            decoded = self._compiled.decode(bodies, self._read)
        return self._mapping.resolved(decoded)

    def _read(self, bodies: pa.BinaryArray) -> Decoded:
        return _read(bodies.to_pylist(), self._columns, lambda _: Frames.SIZE)


def _compiled(columns: RecordColumn, skip: int, mark: bytes = b"") -> CompiledReader | None:
    table = columns.table and columns.table[1]
    return compiled_reader("avro", table, _schema_of(columns), skip=skip, mark=mark)


def _read(bodies: list[bytes], columns: RecordColumn, start: Callable[[bytes], int]) -> Decoded:
    """Read each body from the position that `start` returns."""
    origin: list[int] = []
    bad: list[BadBody] = []
    read = columns.read
    for place, body in enumerate(bodies):
        try:
            end = read(body, start(body))
            if end != len(body):
                raise ValueError(end_problem(body, end))  # noqa: TRY301 - one handler has them all
            origin.append(place)
        except (ValueError, IndexError, struct.error, RecursionError) as error:
            columns.truncate(len(origin))
            bad.append(BadBody(place, reason_of(error)))
    cells = columns.array()
    return Decoded(pa_batch(cells, _schema_of(columns)), origin, bad)


def end_problem(body: bytes, end: int) -> str:
    """Return what is wrong with a body whose datum ends at `end`, not where the body does."""
    rest = len(body) - end
    return f"{abs(rest)} bytes are {'left' if rest > 0 else 'missing'}"


def reason_of(error: Exception) -> str:
    """Return why a body was not read, from what its reader raised."""
    if isinstance(error, (IndexError, struct.error)):
        return "bytes are missing"
    if isinstance(error, RecursionError):
        return "it nests too deep"
    return str(error).splitlines()[0]


def _columns(spec: DecodeSpec, schema: str) -> tuple[RecordColumn, ReaderFields]:
    return record_column(
        schema,
        unsupported_fields=spec.unsupported_fields,
        nanoseconds=spec.nanoseconds,
        time_of_day=spec.time_of_day,
    )


def _single_object_mark(spec: DecodeSpec) -> bytes:
    """Return the header of Avro's single-object encoding for `spec.schema`, if bytes of its size
    are skipped."""
    if spec.skip_bytes != _SINGLE_OBJECT_SIZE:
        return b""
    return _SINGLE_OBJECT + fingerprint_of(spec.schema or "")


def _schema_of(columns: RecordColumn) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(list(columns.type))


def pa_batch(cells: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    """Turn the members of a struct column into columns."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(cells.flatten(), schema=schema)


class _Mapping:
    """Schema resolution from the columns of a writer's schema to those of the reader's, by name or
    alias. A column that the writer does not have is filled with the reader's default. Numbers are
    widened where Avro allows it; other differences of type raise `ConfigError`. Nulls, and symbols
    of enums, that the reader's field does not have make a body bad."""

    def __init__(
        self, schema: pa.Schema, fields: ReaderFields, writer: pa.Schema, written: ReaderFields
    ) -> None:
        self._schema = schema
        self._resolutions: dict[str, FieldResolution] = {}
        self._defaults: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        problems = []
        for item in schema:
            names = [item.name, *fields.aliases(item.name)]
            source = next((name for name in names if name in writer.names), None)
            if source is not None:
                self._sources[item.name] = source
                if not _is_wider(writer.field(source).type, item.type):
                    problems.append(
                        f"field {source!r} is {writer.field(source).type}, and {item.type} in "
                        "'schema'"
                    )
                    continue
                resolution = fields.resolved(item.name, written, source)
                if resolution.problem:
                    problems.append(f"field {source!r}: {resolution.problem}")
                self._resolutions[item.name] = resolution
                continue
            try:
                self._defaults[item.name] = fields.default(item.name)
            except KeyError:
                problems.append(f"has no field {item.name!r}, which has no default in 'schema'")
            except ValueError:
                problems.append(
                    f"has no field {item.name!r}, whose default in 'schema' is no {item.type}"
                )
        if problems:
            raise ConfigError(problems, subject=SUBJECT)

    def resolved(self, decoded: Decoded) -> Decoded:
        """Return the rows of a writer's bodies with the reader's columns; bad are bodies with a
        value that the reader's field does not have."""
        import pyarrow.compute as pc

        rows, bad = decoded.rows, dict[int, str]()
        for name, resolution in self._resolutions.items():
            column = rows.column(self._sources[name])
            if not resolution.null:
                for place in _places(column.is_null()):
                    bad.setdefault(place, f"field {name!r} is null, and in 'schema' it is not")
            for symbol, default in resolution.symbols.items():
                if default is None:
                    for place in _places(pc.equal(column, symbol)):
                        bad.setdefault(
                            place, f"field {name!r}: {symbol!r} is no symbol in 'schema'"
                        )
        if bad:
            kept = [place for place in range(rows.num_rows) if place not in bad]
            rows = rows.take(int64s(kept))
            problems = [BadBody(decoded.origin[place], bad[place]) for place in sorted(bad)]
            decoded = replace(
                decoded,
                origin=[decoded.origin[place] for place in kept],
                bad=sorted([*decoded.bad, *problems], key=lambda each: each.index),
            )
        return replace(decoded, rows=self.rows(rows))

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the reader's columns. A long becomes the nearest double, as in
        Avro."""
        import pyarrow as pa

        columns = [
            pa.repeat(self._defaults[item.name], rows.num_rows)
            if item.name in self._defaults
            else self._column(rows, item.name).cast(item.type, safe=False)
            for item in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        """Return the writer's column, with defaults for symbols that the reader does not have."""
        import pyarrow.compute as pc

        column = rows.column(self._sources[name])
        for symbol, default in self._resolutions[name].symbols.items():
            if default is not None:
                column = pc.if_else(pc.equal(column, symbol), default, column)
        return column


def _places(mask: pa.Array) -> list[int]:
    """Return the indexes at which the mask is true."""
    return [place for place, is_true in enumerate(mask.to_pylist()) if is_true]


def _is_wider(before: pa.DataType, after: pa.DataType) -> bool:
    """Return True if the types are equal, or Avro promotes `before` to `after`."""
    import pyarrow as pa

    if before.equals(after):
        return True
    numbers = [pa.int32(), pa.int64(), pa.float32(), pa.float64()]
    if before not in numbers or after not in numbers:
        return False
    exact = before == pa.int32() or after in (pa.int64(), pa.float64())
    return (
        exact
        and numbers.index(before) < numbers.index(after)
        and not (before == pa.int32() and after == pa.float32())
    )

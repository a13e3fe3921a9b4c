"""The seam that engines call: record batches in, typed rows out, every record accounted for.

`RowDecoder` keeps the columns that identify a record beside the decoded ones, hands over what does
not decode with its reason, and refuses a decoder that loses records. What becomes of bad ones is
the policy of `Rejects`. This module must not read or write anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_provider.files.columns import ColumnSet
from tubemq_provider.rows.bulk import Bad, BodyDecoder, Decoded
from tubemq_provider.rows.ddl import ddl_of, parse_ddl
from tubemq_provider.rows.spec import SUBJECT, DecodeSpec
from tubemq_provider.windows.errors import CountMismatch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadRecord", "Rejects", "RowDecoder"]


@dataclass(frozen=True, slots=True)
class _Place:
    key: str


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record, or a record of a pack, that does not decode; `position` is its place in the batch
    as it was read."""

    partition: _Place
    batch_offset: int
    position: int
    message_id: int
    data: bytes
    reason: str


class Rejects:
    """What is done with bad records: ``fail``, ``drop`` or ``quarantine`` (calls `keep`)"""

    def __init__(self, policy: str, keep: Callable[[BadRecord], None] | None = None) -> None:
        self.count = 0
        self._policy = policy
        self._keep = keep

    def __call__(self, bad: BadRecord) -> None:
        self.count += 1
        if self._policy == "fail":
            raise CorruptRecord(
                f"record {bad.position} of the batch at offset {bad.batch_offset} of partition "
                f"{bad.partition.key} (message id {bad.message_id}) does not decode: {bad.reason}; "
                f"set corrupt_records to 'drop' or 'quarantine' (Spark: corruptRecords=drop) to go "
                f"on without it"
            )
        if self._policy == "quarantine" and self._keep is not None:
            self._keep(bad)


class RowDecoder:
    """Turns batches of records into batches of rows with `schema`: the columns of records that the
    spec keeps, then the decoded ones.

    `records` are the columns of the source; `read_schema` is what batches must have of them. Raises
    `ConfigError` for schemas that do not work, unknown columns, and names that clash.
    """

    def __init__(self, spec: DecodeSpec, records: ColumnSet) -> None:
        import pyarrow as pa

        self._body = _body_decoder(spec)
        self._kept = _kept(spec, records)
        decoded = [item.with_name(spec.prefix + item.name) for item in self._body.schema]
        _check_names(self._kept, [item.name for item in decoded])
        self.schema = pa.schema([*records.arrow_schema(self._kept), *decoded])
        self._place = records.place
        needed = {*self._kept, "partition", *self._place, "value"}
        self.read_schema = records.arrow_schema(n for n in records.names if n in needed)

    @property
    def ddl(self) -> str:
        """`schema` as Spark SQL writes it."""
        return ddl_of(self.schema)

    def rows(self, records: pa.RecordBatch, rejects: Rejects) -> pa.RecordBatch:
        """The rows of `records`, which have `read_schema`; bad ones go to `rejects`.

        Raises `CountMismatch` if a record is neither a row nor bad.
        """
        import pyarrow as pa

        decoded = self._body.decode(records)
        _account(records.num_rows, decoded)
        for bad in decoded.bad:
            rejects(_named(records, self._place, bad))
        kept = records.select(list(self._kept))
        if len(decoded.origin) != records.num_rows or decoded.bad or decoded.empty:
            kept = kept.take(pa.array(decoded.origin, pa.int64()))
        return pa.RecordBatch.from_arrays(
            [*kept.columns, *decoded.rows.columns], schema=self.schema
        )


def _kept(spec: DecodeSpec, records: ColumnSet) -> tuple[str, ...]:
    if spec.columns is None:
        return tuple(name for name in records.names if name != "value")
    unknown = [name for name in spec.columns if name not in records.names]
    if unknown:
        raise ConfigError(
            f"columns: {unknown[0]!r} is none of {', '.join(records.names)}", subject=SUBJECT
        )
    return spec.columns


def _check_names(kept: Sequence[str], decoded: Sequence[str]) -> None:
    """Tables tell names apart without their case."""
    problems = [
        f"columns: {name!r} is named twice" for name in sorted(set(kept)) if kept.count(name) > 1
    ]
    known: dict[str, str] = {}
    for name in decoded:
        if first := known.get(name.lower()):
            problems.append(
                f"schema: {first!r} and {name!r} are both decoded, and one name to a table; rename "
                "one, or decode with a function"
            )
        known[name.lower()] = name
    for name in kept:
        if other := known.get(name.lower()):
            how = "" if other == name else f", as {other!r}"
            problems.append(
                f"columns: {name!r} is decoded too{how}; leave it out of 'columns', or give "
                "decoded ones a 'prefix'"
            )
    if problems:
        raise ConfigError(problems, subject=SUBJECT)


def _account(count: int, decoded: Decoded) -> None:
    """Every record is a row, or several, or bad, or known to be empty."""
    if decoded.rows.num_rows != len(decoded.origin):
        raise CountMismatch(
            f"a decoder made {decoded.rows.num_rows} rows and says where {len(decoded.origin)} "
            "come from"
        )
    found = {*decoded.origin, *(bad.index for bad in decoded.bad), *decoded.empty}
    if found != set(range(count)):
        raise CountMismatch(
            f"of {count} records a decoder made rows, or named as bad, only "
            f"{len(found & set(range(count)))}"
        )


def _named(records: pa.RecordBatch, place: tuple[str, str], bad: Bad) -> BadRecord:
    def cell(name: str) -> object:
        return records.column(name)[bad.index].as_py()

    offset, number = place
    body = cell("value") if bad.data is None else bad.data
    return BadRecord(
        _Place(str(cell("partition"))),
        int(str(cell(offset))),
        0 if offset == number else bad.index,
        int(str(cell(number))),
        body if isinstance(body, bytes) else b"",
        bad.reason,
    )


def _body_decoder(spec: DecodeSpec) -> BodyDecoder:
    if spec.format == "tdmsg":
        from tubemq_provider.rows.from_tdmsg import PackedBodies

        return PackedBodies(None if spec.then is None else _body_decoder(spec.then))
    if spec.format == "avro":
        from tubemq_provider.rows.from_avro import AvroBodies

        return AvroBodies(spec)
    if spec.format == "protobuf":
        from tubemq_provider.rows.from_protobuf import ProtobufBodies

        return ProtobufBodies(spec)
    if spec.schema is None:
        raise ConfigError(
            f"schema_file: {spec.schema_file} is not there yet; it is made when a window is read",
            subject=SUBJECT,
        )
    return _with_ddl(spec, parse_ddl(spec.schema))


def _with_ddl(spec: DecodeSpec, schema: pa.Schema) -> BodyDecoder:
    if spec.format == "json":
        from tubemq_provider.rows.from_json import JsonBodies

        return JsonBodies(schema, spec.unknown_fields, spec.nanoseconds)
    if spec.format == "csv":
        from tubemq_provider.rows.from_csv import CsvBodies

        return CsvBodies(schema, spec)
    from tubemq_provider.rows.from_function import FunctionBodies

    return FunctionBodies(schema, spec)

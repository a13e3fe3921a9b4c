"""Interface for engines: record batches in, typed rows out, every record accounted for.

`RowDecoder` combines the columns that identify a record with the decoded ones, reports records that
do not decode with the reason, and refuses a decoder that loses records. `BadRecords` applies the
policy for corrupt records. This module must not read or write anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_client.model import CorruptRecords
from tubemq_client.terminal import visible
from tubemq_provider.files.arrays import int64s
from tubemq_provider.files.columns import ColumnSet
from tubemq_provider.rows.bulk import BadBody, BodyDecoder, Decoded
from tubemq_provider.rows.ddl import ddl_of, parse_ddl
from tubemq_provider.rows.spec import CHANGES, NEEDS_PARTITION, SUBJECT, DecodeSpec
from tubemq_provider.windows.errors import CountMismatch

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.windows.following import Following

__all__ = ["BadRecord", "BadRecords", "FetchedBatch", "RowDecoder", "window_decoder"]

_SHOWN_BYTES: Final = 200
"""Bytes of a bad record that its error shows."""

_DECODED_BYTES: Final = 2 << 20
"""Bytes of bodies that are decoded together: each call costs up to a millisecond, as much as 100
records."""


class FetchedBatch(Protocol):
    """Interface of a batch as it was read; the clients' class is `MessageBatch`."""

    @property
    def nbytes(self) -> int:
        """Bytes of all bodies."""

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the records with exactly `schema`."""


_Batch = TypeVar("_Batch", bound=FetchedBatch)


@dataclass(frozen=True, slots=True)
class _PartitionKey:
    key: str


def partition_of(key: str) -> _PartitionKey:
    """Return the partition of a bad record."""
    return _PartitionKey(key)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Record, or record of a pack, that does not decode; `position` is its index in the batch as it
    was read."""

    partition: _PartitionKey
    batch_offset: int
    position: int
    message_id: int
    data: bytes
    reason: str


class BadRecords:
    """Policy for records that do not decode; under ``quarantine`` it calls `keep`."""

    def __init__(
        self, policy: CorruptRecords, keep: Callable[[BadRecord], None] | None = None
    ) -> None:
        self.count = 0
        self._policy = policy
        self._keep = keep

    def __call__(self, bad: BadRecord, bad_of: tuple[int, int] = (1, 1)) -> None:
        """Apply the policy to a record. `bad_of` are the bad ones, and all, of the records that are
        decoded together; for the error's text."""
        self.count += 1
        if self._policy == CorruptRecords.FAIL:
            raise CorruptRecord(
                f"record {bad.position} of the batch at offset {bad.batch_offset} of partition "
                f"{bad.partition.key} (message id {bad.message_id}) does not decode: {bad.reason}; "
                f"the record: {_shown(bad.data)}; {bad_of[0]} of the {bad_of[1]} records decoded "
                f"with it are bad; to continue without them: policies=IngestPolicies("
                f"corrupt_records='quarantine'), or 'drop' (Spark: corruptRecords=drop)"
            )
        if self._policy == CorruptRecords.QUARANTINE and self._keep is not None:
            self._keep(bad)


def _shown(body: bytes) -> str:
    """Return the first bytes of a body in one line, for an error's text."""
    text = visible(body[:_SHOWN_BYTES].decode("utf-8", "backslashreplace"))
    return f"{text or '(empty)'}{'…' if len(body) > _SHOWN_BYTES else ''}"


class RowDecoder:
    """Decoder from batches of records to batches of rows with `schema`: the columns of records that
    the spec keeps, then the decoded ones.

    `records` are the columns of the source; `read_schema` is the part of them that batches must
    have. `notices` counts records without a row by kind, such as heartbeats. A body without a value
    in a column of `key`, by which a table follows its rows, is bad. Raises `ConfigError` for
    invalid schemas, unknown columns, and names that clash.
    """

    def __init__(self, spec: DecodeSpec, records: ColumnSet, *, key: Sequence[str] = ()) -> None:
        import pyarrow as pa

        self.notices: Counter[str] = Counter()
        self._body = _body_decoder(spec)
        self._one_by_one = "function" in (spec.format, spec.then and spec.then.format)
        self._record_columns = _record_columns(spec, records)
        decoded = [item.with_name(spec.prefix + item.name) for item in self._body.schema]
        _check_names(self._record_columns, [item.name for item in decoded])
        self.schema = pa.schema([*records.arrow_schema(self._record_columns), *decoded])
        self._key = [name for name in key if name in self._body.schema.names]
        self._packed = spec.format == "tdmsg"
        self._place = records.place
        needed = {*self._record_columns, "partition", *self._place, "value"}
        self.read_schema = records.arrow_schema(n for n in records.names if n in needed)

    @property
    def ddl(self) -> str:
        """`schema` as Spark SQL's DDL."""
        return ddl_of(self.schema)

    def groups(self, batches: Iterable[_Batch]) -> Iterator[list[_Batch]]:
        """Group `batches` that `rows_of` decodes together, since small ones cost as much as large
        ones. A user's function gets each batch as it was read."""
        group: list[_Batch] = []
        size = 0
        for batch in batches:
            group.append(batch)
            size += batch.nbytes
            if self._one_by_one or size >= _DECODED_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group

    def rows_of(
        self, group: Sequence[FetchedBatch], bad_records: BadRecords
    ) -> tuple[pa.RecordBatch, int]:
        """Decode the batches of a group; return the rows, and the number of records."""
        import pyarrow as pa

        parts = [batch.to_arrow(self.read_schema) for batch in group]
        starts = list(accumulate((part.num_rows for part in parts), initial=0))
        if len(parts) == 1:
            return self.rows(parts[0], bad_records), starts[-1]
        joined = pa.Table.from_batches(parts, self.read_schema).combine_chunks().to_batches()
        records = joined[0] if joined else parts[0]
        return self.rows(records, bad_records, starts), starts[-1]

    def rows(
        self, records: pa.RecordBatch, bad_records: BadRecords, starts: Sequence[int] = (0,)
    ) -> pa.RecordBatch:
        """Decode `records`, which have `read_schema`; corrupt ones go to `bad_records`. `starts`
        are the indexes of the first record of each batch as it was read.

        Raises `CountMismatch` if a record is neither a row nor corrupt.
        """
        import pyarrow as pa

        decoded = self._body.decode(records)
        _check_accounted(records.num_rows, decoded)
        decoded = _with_keys(decoded, self._key, packed=self._packed)
        self.notices.update(decoded.notices)
        for bad in decoded.bad:
            start = starts[bisect_right(starts, bad.index) - 1]
            record = _bad_record(records, self._place, bad, bad.index - start)
            bad_records(record, (len(decoded.bad), records.num_rows))
        record_columns = records.select(list(self._record_columns))
        if len(decoded.origin) != records.num_rows or decoded.bad or decoded.empty:
            record_columns = record_columns.take(int64s(decoded.origin))
        return pa.RecordBatch.from_arrays(
            [*record_columns.columns, *decoded.rows.columns], schema=self.schema
        )


def window_decoder(
    spec: DecodeSpec,
    records: ColumnSet,
    following: Following | None = None,
    *,
    subject: str,
    where: str = "",
) -> RowDecoder:
    """Return the decoder of a window's rows, which must keep their partition. Raises `ConfigError`
    that begins with `where`."""
    decoder = RowDecoder(spec, records, key=() if following is None else following.key)
    if "partition" not in decoder.schema.names:
        raise ConfigError(f"{where}{NEEDS_PARTITION}", subject=subject)
    return decoder


def _record_columns(spec: DecodeSpec, records: ColumnSet) -> tuple[str, ...]:
    if spec.columns is None:
        return tuple(name for name in records.names if name != "value")
    unknown = [name for name in spec.columns if name not in records.names]
    if unknown:
        raise ConfigError(
            f"columns: {unknown[0]!r} is none of {', '.join(records.names)}", subject=SUBJECT
        )
    return spec.columns


def _check_names(record_columns: Sequence[str], decoded: Sequence[str]) -> None:
    """Refuse names that clash; tables compare names without case."""
    problems = [
        f"columns: {name!r} is named twice"
        for name in sorted(set(record_columns))
        if record_columns.count(name) > 1
    ]
    by_lower_name: dict[str, str] = {}
    for name in decoded:
        if first := by_lower_name.get(name.lower()):
            problems.append(
                f"schema: {first!r} and {name!r} are both decoded, and one name to a table; rename "
                "one, or decode with a function"
            )
        by_lower_name[name.lower()] = name
    for name in record_columns:
        if other := by_lower_name.get(name.lower()):
            how = "" if other == name else f", as {other!r}"
            problems.append(
                f"columns: {name!r} is decoded too{how}; leave it out of 'columns', or give "
                "decoded ones a 'prefix'"
            )
    if problems:
        raise ConfigError(problems, subject=SUBJECT)


def _with_keys(decoded: Decoded, key: Sequence[str], *, packed: bool) -> Decoded:
    """Take out the bodies of which a row has no value in a column of `key`, as bad ones; of packed
    bodies only these rows."""
    import pyarrow as pa

    origin = decoded.origin
    lacking: dict[int, str] = {}
    without: set[int] = set()
    for name in key:
        column = decoded.rows.column(name)
        if column.null_count:
            at = [i for i, is_null in enumerate(column.is_null().to_pylist()) if is_null]
            without.update(at)
            for i in at:
                lacking.setdefault(origin[i], f"no value in {name!r}, which is of the key")
    if not lacking:
        return decoded
    kept = [
        i
        for i, place in enumerate(origin)
        if (i not in without if packed else place not in lacking)
    ]
    return replace(
        decoded,
        rows=decoded.rows.take(pa.array(kept, pa.int64())),
        origin=[origin[i] for i in kept],
        bad=[*decoded.bad, *(BadBody(place, reason) for place, reason in lacking.items())],
    )


def _check_accounted(count: int, decoded: Decoded) -> None:
    """Check that every record is a row, or several, or bad, or reported as empty."""
    if decoded.rows.num_rows != len(decoded.origin):
        raise CountMismatch(
            f"a decoder made {decoded.rows.num_rows} rows and says where {len(decoded.origin)} "
            "come from"
        )
    if decoded.origin == range(count) and not decoded.bad and not decoded.empty:
        return
    accounted = {*decoded.origin, *(bad.index for bad in decoded.bad), *decoded.empty}
    if accounted != set(range(count)):
        raise CountMismatch(
            f"of {count} records a decoder made rows, or named as bad, only "
            f"{len(accounted & set(range(count)))}"
        )


def _bad_record(
    records: pa.RecordBatch, place: tuple[str, str], bad: BadBody, position: int
) -> BadRecord:
    def cell(name: str) -> object:
        return records.column(name)[bad.index].as_py()

    offset, number = place
    body = cell("value") if bad.data is None else bad.data
    return BadRecord(
        _PartitionKey(str(cell("partition"))),
        int(str(cell(offset))),
        0 if offset == number else position,
        int(str(cell(number))),
        body if isinstance(body, bytes) else b"",
        bad.reason,
    )


def _body_decoder(spec: DecodeSpec) -> BodyDecoder:
    if spec.schema_registry is not None and spec.format in ("json", "protobuf"):
        from tubemq_provider.rows.registry import FramedBodies

        is_protobuf = spec.format == "protobuf"
        kind = "PROTOBUF" if is_protobuf else "JSON"
        return FramedBodies(_plain_decoder(spec), spec.schema_registry, kind, keep=is_protobuf)
    return _plain_decoder(spec)


def _plain_decoder(spec: DecodeSpec) -> BodyDecoder:
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
    if spec.format in CHANGES:
        from tubemq_provider.rows.changes.bodies import ChangeBodies

        return ChangeBodies(schema, spec)
    from tubemq_provider.rows.from_function import FunctionBodies

    return FunctionBodies(schema, spec)

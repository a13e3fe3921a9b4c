"""Records split into flat lists, and Arrow arrays filled from those lists.

This is the reference for the compiled decoder (`_wire.native`), whose results must be equal bit for
bit. Each field read of a protobuf message makes an object, so fields that only some callers need
(message ids) are read on demand, and an attribute prefix equal to the one before is not parsed
again. If all records are intact, they are checked one field at a time; otherwise one loop checks
each, and the caller decides if a corrupt record fails the batch or is passed to `on_corrupt`.

pyarrow is an argument: only the code that makes Arrow arrays imports it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import accumulate, islice, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from tubemq_client._core.attributes import AttributeCache, AttributeColumns
from tubemq_client._wire.crc import crc32
from tubemq_client.model import INDEX_ENTRY_BYTES, message_minute

__all__ = [
    "COLUMNS",
    "ColumnPosition",
    "Columns",
    "is_sound",
    "native_schema",
    "native_types",
    "split_records",
]

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "batch_offset",
    "message_id",
    "msg_time",
    "stream_id",
    "attributes",
    "value",
)
"""Names of the columns of a batch, in their customary order."""

_CHECKSUM_MASK: Final = 0x7FFFFFFF
_LENGTH = struct.Struct(">i")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_MOST_BYTES: Final = (1 << 31) - 1
"""Bytes that 32-bit offsets can address."""

_PIECE: Final = 32
"""Records that are split together, so that intermediate lists stay in the processor's caches."""

_FEW, _FEW_BYTES = 8, 4096
"""Upper bounds of distinct attribute texts, and of their bytes, whose arrays are kept for the next
batch."""


_Integers: TypeAlias = "array[int]"  # in `Columns` `array` is the name of a method


class ColumnPosition(NamedTuple):
    """Origin of records. `exact`: record *i* of the reply is at `start + 28 * i`."""

    topic: str
    partition: str
    start: int
    exact: bool


@dataclass
class Columns:
    """Bodies and attribute bytes of records, with their positions in the reply (`indexes`.

    None: all).
    """

    messages: Sequence[Any]
    bodies: list[bytes]
    attributes: list[bytes | None]
    indexes: list[int] | None = None
    cache: AttributeCache = field(default_factory=AttributeCache)

    def keep(self, rows: list[int]) -> None:
        """Keep only these rows, which are sorted."""
        if len(rows) == len(self.bodies):
            return
        self.bodies = [self.bodies[i] for i in rows]
        self.attributes = [self.attributes[i] for i in rows]
        positions = self.indexes
        self.indexes = rows if positions is None else [positions[i] for i in rows]

    def message_ids(self) -> list[int]:
        """Return the broker's number of each record."""
        if self.indexes is None:
            return [record.messageId for record in islice(self.messages, len(self.bodies))]
        return [self.messages[index].messageId for index in self.indexes]

    def offsets(self, place: ColumnPosition) -> Sequence[Any]:
        """Return the offset of each record, or None for all where offsets are unknown."""
        if not place.exact:
            return [None] * len(self.bodies)
        if self.indexes is None:
            end = place.start + INDEX_ENTRY_BYTES * len(self.bodies)
            return range(place.start, end, INDEX_ENTRY_BYTES)
        return [place.start + INDEX_ENTRY_BYTES * i for i in self.indexes]

    def array(self, name: str, type_: Any, place: ColumnPosition, pa: Any) -> Any:
        """Return the column `name` as an Arrow array of `type_`."""
        count = len(self.bodies)
        if name == "value":
            return _binary(self.bodies, type_, pa)
        if name == "message_id":
            return _integers(self.message_ids(), type_, pa)
        if name == "offset":
            offsets = self.offsets(place)
            return _integers(offsets, type_, pa) if place.exact else pa.nulls(count, type_)
        constants = {
            "topic": place.topic,
            "partition": place.partition,
            "batch_offset": place.start,
        }
        if name in constants:
            return pa.repeat(pa.scalar(constants[name], type_), count)
        return self._from_texts(name, type_, pa)

    def _from_texts(self, name: str, type_: Any, pa: Any) -> Any:
        """Return a column built from the distinct attribute texts and spread over the records."""
        if not self.bodies:
            return pa.array([], type_)  # Arrow repeats no map zero times
        distinct, codes = self._coded
        values = self._made(name, type_, pa)
        if len(distinct) == len(self.bodies):  # then they are in the order of the records
            return values
        return values.take(_of_buffer(pa.int32(), codes, pa))

    def _made(self, name: str, type_: Any, pa: Any) -> Any:
        """Return the values of the distinct texts for one column.

        A few texts are usually those of the batch before, so the last such array is kept.
        """
        distinct = self._coded[0]
        few = tuple(distinct) if len(distinct) <= _FEW and type_ == native_types()[name] else None
        last = self.cache.made.get(name)
        if few is not None and last is not None and last[0] == few:
            return last[1]
        values = _MAKE[name](self._texts, type_, pa)
        if few is not None and sum(map(len, filter(None, few))) <= _FEW_BYTES:
            self.cache.made[name] = few, values
        return values

    @cached_property
    def _coded(self) -> tuple[list[bytes | None], _Integers]:
        """Distinct attribute texts in order, and for each record the index of its text."""
        if not any(self.attributes):
            return [None], array("i", bytes(4 * len(self.attributes)))
        distinct = list(dict.fromkeys(self.attributes))
        code_of = {raw: code for code, raw in enumerate(distinct)}
        return distinct, array("i", map(code_of.__getitem__, self.attributes))

    @cached_property
    def _texts(self) -> AttributeColumns:
        """Parsed distinct texts, read once for all columns made from them."""
        columns = AttributeColumns()
        columns.fill(self._coded[0], self.cache)
        return columns


def is_sound(record: Any) -> bool:
    """Return whether a record's data match the checksum that is stored with it."""
    return crc32(record.payLoadData) & _CHECKSUM_MASK == int(record.checkSum)


def split_records(
    messages: Sequence[Any], count: int, on_corrupt: Callable[[int, Any, bytes], None]
) -> Columns:
    """Return the first `count` of `messages` as columns.

    `on_corrupt` is called for each corrupt record (position, record, data bytes), and may raise.
    """
    records = list(islice(messages, count))
    return _all_sound(records) or _sorted_out(records, on_corrupt)


def _sorted_out(records: Sequence[Any], on_corrupt: Callable[[int, Any, bytes], None]) -> Columns:
    """Split records one by one, as some are corrupt."""
    columns = Columns(records, [], [])
    add_body, add_attributes = columns.bodies.append, columns.attributes.append
    indexes: list[int] | None = None
    prefix, raw = b"", None  # of the last record that had one; the next is usually equal
    for index, record in enumerate(records):
        data = record.payLoadData
        start = -1
        if crc32(data) & _CHECKSUM_MASK == record.checkSum:
            if not record.flag & 1:
                add_body(data)
                add_attributes(None)
                if indexes is not None:
                    indexes.append(index)
                continue
            if prefix and data.startswith(prefix):
                start = len(prefix)
            elif (start := _attributes_end(data)) >= 0:
                prefix, raw = data[:start], data[4:start] or None
        if start < 0:
            on_corrupt(index, record, data)
            if indexes is None:
                indexes = columns.indexes = list(range(index))
            continue
        add_body(data[start:])
        add_attributes(raw)
        if indexes is not None:
            indexes.append(index)
    return columns


def _all_sound(records: Sequence[Any]) -> Columns | None:
    """Split records that are all intact, the usual case; None if one is corrupt."""
    columns = Columns(records, [], [])
    for at in range(0, len(records), _PIECE):
        if not _add_sound(columns, records[at : at + _PIECE]):
            return None
    return columns


def _add_sound(columns: Columns, records: Sequence[Any]) -> bool:
    """Add records, unless one is corrupt.

    Python is faster with one field of many records than with all fields of one.
    """
    payloads = [record.payLoadData for record in records]
    sums = [checksum & _CHECKSUM_MASK for checksum in map(crc32, payloads)]
    if sums != [record.checkSum for record in records]:
        return False
    flags = [record.flag & 1 for record in records]
    if not any(flags):
        columns.bodies += payloads
        columns.attributes += [None] * len(payloads)
        return True
    add_body, add_attributes = columns.bodies.append, columns.attributes.append
    prefix, raw = b"", None  # of the last record that had one; the next is usually equal
    for data, flag in zip(payloads, flags, strict=True):
        if not flag:
            add_body(data)
            add_attributes(None)
            continue
        body = data.removeprefix(prefix)
        if body is data:  # another prefix, or the first
            start = _attributes_end(data)
            if start < 0:
                return False
            prefix, raw, body = data[:start], data[4:start] or None, data[start:]
        add_body(body)
        add_attributes(raw)
    return True


def _attributes_end(data: bytes) -> int:
    """Return the start of the body after an attribute prefix; -1 if there is no valid prefix.

    `_wire.payload.split_payload` has the rule and its words.
    """
    if len(data) < _LENGTH.size:
        return -1
    (size,) = _LENGTH.unpack_from(data)
    end: int = _LENGTH.size + size
    return end if _LENGTH.size <= end <= len(data) else -1


def _binary(values: Sequence[bytes], type_: Any, pa: Any) -> Any:
    """Return byte strings as an array of `type_`, concatenated in one step for the natural type."""
    ends = list(accumulate(map(len, values), initial=0))
    if type_ != pa.binary() or ends[-1] > _MOST_BYTES:
        return pa.array(values, type_)
    buffers = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(type_, len(values), buffers)


def _integers(values: Sequence[int], type_: Any, pa: Any) -> Any:
    """Return integers as an array of `type_`, without checking each for the natural type."""
    if type_ != pa.int64():
        return pa.array(values, type_)
    return _of_buffer(type_, array("q", values), pa)


def _of_buffer(type_: Any, numbers: _Integers, pa: Any) -> Any:
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


@lru_cache(maxsize=1)
def native_types() -> dict[str, Any]:
    """Return the natural Arrow types of the columns; the compiled decoder makes only these."""
    import pyarrow as pa

    return {
        "topic": pa.string(),
        "partition": pa.string(),
        "offset": pa.int64(),
        "batch_offset": pa.int64(),
        "message_id": pa.int64(),
        "msg_time": pa.timestamp("us", tz="UTC"),
        "stream_id": pa.string(),
        "attributes": pa.map_(pa.string(), pa.string()),
        "value": pa.binary(),
    }


@lru_cache(maxsize=1)
def native_schema() -> Any:
    """Return the schema of all columns with their natural types."""
    import pyarrow as pa

    return pa.schema(list(native_types().items()))


def _msg_times(texts: AttributeColumns, type_: Any, pa: Any) -> Any:
    if type_ != native_types()["msg_time"]:
        return pa.array([message_minute(text) for text in texts.msg_times], type_)
    micros: dict[str | None, int | None] = {}
    for text in texts.msg_times:
        if text not in micros:
            micros[text] = _micros(text)
    return pa.array([micros[text] for text in texts.msg_times], pa.int64()).cast(type_)


def _micros(text: str | None) -> int | None:
    minute = message_minute(text)
    return None if minute is None else (minute - _EPOCH) // _MICROSECOND


def _stream_ids(texts: AttributeColumns, type_: Any, pa: Any) -> Any:
    return pa.array(texts.stream_ids, type_)


def _maps(texts: AttributeColumns, type_: Any, pa: Any) -> Any:
    if type_ == native_types()["attributes"]:
        ends = pa.array(texts.ends, pa.int32())
        keys, values = pa.array(texts.keys, pa.string()), pa.array(texts.values, pa.string())
        return pa.MapArray.from_arrays(ends, keys, values)
    pairs, ends = list(zip(texts.keys, texts.values, strict=True)), texts.ends
    rows = [pairs[start:end] for start, end in pairwise(ends)]
    return pa.array(rows, type_)


_MAKE: dict[str, Callable[[AttributeColumns, Any, Any], Any]] = {
    "msg_time": _msg_times,
    "stream_id": _stream_ids,
    "attributes": _maps,
}

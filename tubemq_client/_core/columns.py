"""Records taken apart into flat lists, and Arrow arrays filled from those.

This is the reference for the compiled decoder (`_wire.native`), which must give the same in every
bit. Each field read of a protobuf message makes an object, so what only some callers want (message
ids) is read when they ask for it, and an attribute prefix equal to the one before is not even
looked into. Records that are all sound are checked a field at a time; where one is not, one loop
goes through them, and whether that fails the batch or is set aside is the caller's to say.

pyarrow comes as an argument: only what makes Arrow imports it.
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
    "Columns",
    "Place",
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
"""Column names a batch can fill, in their customary order."""

_CHECKSUM_MASK: Final = 0x7FFFFFFF
_LENGTH = struct.Struct(">i")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_MOST_BYTES: Final = (1 << 31) - 1
"""What 32-bit offsets reach."""

_PIECE: Final = 32
"""Records taken apart together: what was made of them is then still in the processor's caches when
it is looked at again."""

_FEW, _FEW_BYTES = 8, 4096
"""So many distinct attribute texts, and bytes of them, are kept as arrays for the next batch."""


_Integers: TypeAlias = "array[int]"  # in `Columns` that is the name of a method


class Place(NamedTuple):
    """Where records come from. `exact`: record *i* of the reply sits at `start + 28 * i`."""

    topic: str
    partition: str
    start: int
    exact: bool


@dataclass
class Columns:
    """Bodies and attribute bytes of records, `indexes` their positions in the reply (None: all)."""

    messages: Sequence[Any]
    bodies: list[bytes]
    attributes: list[bytes | None]
    indexes: list[int] | None = None
    cache: AttributeCache = field(default_factory=AttributeCache)

    def keep(self, rows: list[int]) -> None:
        """Leave out all but these rows, given in their order."""
        if len(rows) == len(self.bodies):
            return
        self.bodies = [self.bodies[i] for i in rows]
        self.attributes = [self.attributes[i] for i in rows]
        positions = self.indexes
        self.indexes = rows if positions is None else [positions[i] for i in rows]

    def message_ids(self) -> list[int]:
        """The broker's number of each record."""
        if self.indexes is None:
            return [record.messageId for record in islice(self.messages, len(self.bodies))]
        return [self.messages[index].messageId for index in self.indexes]

    def offsets(self, place: Place) -> Sequence[Any]:
        """Where each record sits, or None for all where that is unknown."""
        if not place.exact:
            return [None] * len(self.bodies)
        if self.indexes is None:
            end = place.start + INDEX_ENTRY_BYTES * len(self.bodies)
            return range(place.start, end, INDEX_ENTRY_BYTES)
        return [place.start + INDEX_ENTRY_BYTES * i for i in self.indexes]

    def array(self, name: str, type_: Any, place: Place, pa: Any) -> Any:
        """The column `name` as an Arrow array of `type_`."""
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
        """Columns that come from the attribute texts: built of distinct ones, then spread."""
        if not self.bodies:
            return pa.array([], type_)  # Arrow repeats no map zero times
        distinct, codes = self._coded
        values = self._made(name, type_, pa)
        if len(distinct) == len(self.bodies):  # then they are in the order of the records
            return values
        return values.take(_of_buffer(pa.int32(), codes, pa))

    def _made(self, name: str, type_: Any, pa: Any) -> Any:
        """What the distinct texts say of one column. Few of them are mostly those of the batch
        before, so the last such array is kept."""
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
        """Distinct attribute texts in order, and for each record which of them it has."""
        if not any(self.attributes):
            return [None], array("i", bytes(4 * len(self.attributes)))
        distinct = list(dict.fromkeys(self.attributes))
        code_of = {raw: code for code, raw in enumerate(distinct)}
        return distinct, array("i", map(code_of.__getitem__, self.attributes))

    @cached_property
    def _texts(self) -> AttributeColumns:
        """What the distinct texts say, read once for all columns made from them."""
        found = AttributeColumns()
        found.fill(self._coded[0], self.cache)
        return found


def is_sound(record: Any) -> bool:
    """Whether a record's data fit the checksum it was stored with."""
    return crc32(record.payLoadData) & _CHECKSUM_MASK == int(record.checkSum)


def split_records(
    messages: Sequence[Any], count: int, aside: Callable[[int, Any, bytes], None]
) -> Columns:
    """The first `count` of `messages`. Those that are not sound go `aside` (position, record, data
    bytes), which may raise."""
    records = list(islice(messages, count))
    return _all_sound(records) or _sorted_out(records, aside)


def _sorted_out(records: Sequence[Any], aside: Callable[[int, Any, bytes], None]) -> Columns:
    """Records of which some are not sound, one after the other."""
    columns = Columns(records, [], [])
    add_body, add_attributes = columns.bodies.append, columns.attributes.append
    indexes: list[int] | None = None
    prefix, raw = b"", None  # of the last record that had one; the next is mostly alike
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
            aside(index, record, data)
            if indexes is None:
                indexes = columns.indexes = list(range(index))
            continue
        add_body(data[start:])
        add_attributes(raw)
        if indexes is not None:
            indexes.append(index)
    return columns


def _all_sound(records: Sequence[Any]) -> Columns | None:
    """The same where all of them are sound, as mostly; None if one is not."""
    columns = Columns(records, [], [])
    for at in range(0, len(records), _PIECE):
        if not _add_sound(columns, records[at : at + _PIECE]):
            return None
    return columns


def _add_sound(columns: Columns, records: Sequence[Any]) -> bool:
    """Add some records, unless one is not sound. Python takes less time for one field of many
    records than for all fields of one."""
    datas = [record.payLoadData for record in records]
    sums = [found & _CHECKSUM_MASK for found in map(crc32, datas)]
    if sums != [record.checkSum for record in records]:
        return False
    flags = [record.flag & 1 for record in records]
    if not any(flags):
        columns.bodies += datas
        columns.attributes += [None] * len(datas)
        return True
    add_body, add_attributes = columns.bodies.append, columns.attributes.append
    prefix, raw = b"", None  # of the last record that had one; the next is mostly alike
    for data, flag in zip(datas, flags, strict=True):
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
    """Where the body begins behind an attribute prefix; -1 where there cannot be one
    (`_wire.payload.split_payload` has the rule and its words)."""
    if len(data) < _LENGTH.size:
        return -1
    (size,) = _LENGTH.unpack_from(data)
    end: int = _LENGTH.size + size
    return end if _LENGTH.size <= end <= len(data) else -1


def _binary(values: Sequence[bytes], type_: Any, pa: Any) -> Any:
    """Byte strings as an array of `type_`: put end to end in one step if it is the natural one."""
    ends = list(accumulate(map(len, values), initial=0))
    if type_ != pa.binary() or ends[-1] > _MOST_BYTES:
        return pa.array(values, type_)
    buffers = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(type_, len(values), buffers)


def _integers(values: Sequence[int], type_: Any, pa: Any) -> Any:
    """Integers as an array of `type_`, without looking at each if it is the natural one."""
    if type_ != pa.int64():
        return pa.array(values, type_)
    return _of_buffer(type_, array("q", values), pa)


def _of_buffer(type_: Any, numbers: _Integers, pa: Any) -> Any:
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


@lru_cache(maxsize=1)
def native_types() -> dict[str, Any]:
    """Arrow types the columns have by nature; the compiled decoder makes these and no others."""
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
    """The schema of all columns with these types."""
    import pyarrow as pa

    return pa.schema(list(native_types().items()))


def _msg_times(texts: AttributeColumns, type_: Any, pa: Any) -> Any:
    if type_ != native_types()["msg_time"]:
        return pa.array([message_minute(text) for text in texts.msg_times], type_)
    known: dict[str | None, int | None] = {}
    for text in texts.msg_times:
        if text not in known:
            known[text] = _micros(text)
    return pa.array([known[text] for text in texts.msg_times], pa.int64()).cast(type_)


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

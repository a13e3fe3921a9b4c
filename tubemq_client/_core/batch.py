"""A fetched batch: a lazy view of one broker reply that becomes messages or Arrow columns.

This is the hot path. Decoding is one loop over the reply that checks every checksum, strips the
attribute prefix and keeps flat lists; from those, Arrow arrays are filled without an object per
record. Attribute strings repeat heavily, so each distinct one is parsed once per reader and a
prefix equal to the one before is not even looked into. Each field read of a protobuf message makes
an object: what only some callers want (message ids) is read when they ask for it.
pyarrow is imported only when Arrow is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import errors
from tubemq_client._wire.crc import crc32
from tubemq_client._wire.payload import (
    ParsedAttributes,
    parse_attributes,
    split_payload,
)
from tubemq_client.model import INDEX_ENTRY_BYTES, Message, message_minute

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from tubemq_client.model import Partition

__all__ = [
    "COLUMNS",
    "AttributeCache",
    "CorruptEntry",
    "DecodePolicies",
    "DecodePolicy",
    "MessageBatch",
    "RawBatch",
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

_CHECKSUM_MASK = 0x7FFFFFFF
_NO_ATTRIBUTES = ParsedAttributes({}, None, None)
_CACHED_TEXT = 512
"""Longest attribute text, in bytes, that is kept parsed: longer ones hardly repeat."""

_CACHE_BYTES = 8 << 20
_ENTRY_BYTES, _ITEM_BYTES = 600, 150
"""About what a parsed text takes up besides its characters, and each of its items."""


class RawBatch(NamedTuple):
    """A reply's records before decoding: protobuf messages and the offset the batch starts at."""

    start: int
    messages: Sequence[Any]


class CorruptEntry(NamedTuple):
    """A record that failed its checksum or whose attribute prefix is malformed."""

    partition: Partition
    batch_offset: int
    position: int
    message_id: int
    data: bytes


class AttributeCache:
    """Parsed attribute strings by their bytes, of about 8 MiB at most; then it is emptied.

    Producers choose how many texts there are and how long: what is kept is counted in bytes of
    memory, and long texts are parsed whenever they are asked for.
    """

    def __init__(self) -> None:
        self._parsed: dict[bytes, ParsedAttributes] = {}
        self._bytes = 0

    def __getitem__(self, raw: bytes | None) -> ParsedAttributes:
        if raw is None:
            return _NO_ATTRIBUTES
        parsed = self._parsed.get(raw)
        return self._parse(raw) if parsed is None else parsed

    def _parse(self, raw: bytes) -> ParsedAttributes:
        parsed = parse_attributes(raw)
        if len(raw) <= _CACHED_TEXT:
            self._bytes += _ENTRY_BYTES + 3 * len(raw) + _ITEM_BYTES * len(parsed.attributes)
            if self._bytes > _CACHE_BYTES:
                self._parsed.clear()
                self._bytes = 0
            else:
                self._parsed[raw] = parsed
        return parsed


@dataclass(slots=True)
class DecodePolicy:
    """What to do with corrupt records, and which stream ids were asked for.

    Brokers filter by a 32-bit hash, so records of other stream ids can slip through; they are
    dropped here. `corrupt_records` is "fail", "drop" (count) or "quarantine" (call back).
    """

    corrupt_records: str = "fail"
    quarantine: Callable[[CorruptEntry], None] | None = None
    filters: frozenset[str] = frozenset()
    cache: AttributeCache = field(default_factory=AttributeCache)
    corrupt: int = 0

    def reject(self, entry: CorruptEntry) -> None:
        self.corrupt += 1
        if self.corrupt_records == "fail":
            raise errors.CorruptRecord(
                f"record {entry.position} of the batch at offset {entry.batch_offset} of partition "
                f"{entry.partition} (message id {entry.message_id}) fails its checksum; set "
                f"corrupt_records to 'drop' or 'quarantine' (Spark: corruptRecords=drop) to go on "
                f"without it"
            )
        if self.corrupt_records == "quarantine" and self.quarantine is not None:
            self.quarantine(entry)


class DecodePolicies(dict[str, DecodePolicy]):
    """By topic, made when first asked for: `topics` has the stream ids wanted of each."""

    def __init__(self, topics: Mapping[str, Collection[str]], corrupt_records: str) -> None:
        super().__init__()
        self._topics = topics
        self._corrupt_records = corrupt_records

    def __missing__(self, topic: str) -> DecodePolicy:
        filters = frozenset(self._topics[topic])
        policy = self[topic] = DecodePolicy(self._corrupt_records, None, filters)
        return policy


@dataclass(slots=True)
class _Columns:
    bodies: list[bytes] = field(default_factory=list)
    attributes: list[bytes | None] = field(default_factory=list)
    indexes: list[int] | None = None
    """Positions in the reply, only when some record was dropped."""
    distinct: list[bytes | None] | None = None
    codes: list[int] | None = None
    """Distinct attribute strings, and for each record which one it has; see `code`."""

    def code(self) -> list[bytes | None]:
        """Find the distinct attribute strings once, for all columns made from them."""
        if self.distinct is None:
            known: dict[bytes | None, int] = {}
            if any(self.attributes):
                self.codes = [known.setdefault(raw, len(known)) for raw in self.attributes]
            self.distinct = list(known) or [None]
        return self.distinct


class MessageBatch:
    """Records `[start, end)` of one partition, as one broker reply held them.

    `start` is the batch's first index offset and `end` the position after it (records of other
    partitions may lie between); None while that is unknown. `exact` says that record *i* sits at
    `start + 28 * i`, which holds only for unfiltered reads of a store with one written partition.
    Decoded on first use; checksum failures follow the reader's `corrupt_records` policy then.
    """

    __slots__ = ("_columns", "_count", "_messages", "_policy", "end", "exact", "partition", "start")

    def __init__(
        self,
        partition: Partition,
        raw: RawBatch,
        *,
        end: int | None,
        count: int,
        exact: bool,
        policy: DecodePolicy,
    ) -> None:
        self.partition = partition
        self.start = raw.start
        self.end = end
        self.exact = exact
        self._messages = raw.messages
        self._count = count
        self._policy = policy
        self._columns: _Columns | None = None

    def __len__(self) -> int:
        return len(self.decode().bodies)

    def __repr__(self) -> str:
        return f"<MessageBatch {self.partition}[{self.start},{self.end}) of {self._count} records>"

    @property
    def nbytes(self) -> int:
        """Bytes of all record bodies."""
        return sum(map(len, self.decode().bodies))

    def decode(self) -> _Columns:
        """Check and split every record once; later calls answer from memory."""
        if self._columns is None:
            self._columns = self._decode()
        return self._columns

    def messages(self) -> Iterator[Message]:
        """The records as `Message` tuples, in offset order."""
        columns = self.decode()
        cache = self._policy.cache
        offsets = self._offsets(columns)
        last, parsed = None, _NO_ATTRIBUTES
        for body, raw, message_id, offset in zip(
            columns.bodies, columns.attributes, self._message_ids(columns), offsets, strict=True
        ):
            if raw is not last:  # records with equal prefixes share the bytes object
                last, parsed = raw, cache[raw]
            yield Message(
                body, dict(parsed.attributes), parsed.stream_id, parsed.msg_time, message_id, offset
            )

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """A record batch with exactly `schema`: any of `COLUMNS`, in any order.

        Raises `errors.ConfigError` for a column a batch does not have.
        """
        import pyarrow

        unknown = [name for name in schema.names if name not in COLUMNS]
        if unknown:
            raise errors.ConfigError(
                [f"unknown column {name!r}; known: {', '.join(COLUMNS)}" for name in unknown],
                subject="columns",
            )
        columns = self.decode()
        arrays = [self._array(item.name, item.type, columns, pyarrow) for item in schema]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    def _decode(self) -> _Columns:
        bodies = self._plain()
        plain = len(bodies)
        columns = _Columns(bodies, [None] * plain)
        add_body, add_attributes = bodies.append, columns.attributes.append
        prefix, raw = b"", None  # of the last record that had one; the next is mostly alike
        for index, record in enumerate(self._messages[plain : self._count], plain):
            data = record.payLoadData
            sound = crc32(data) & _CHECKSUM_MASK == record.checkSum
            if sound and not record.flag & 1:
                add_body(data)
                add_attributes(None)
            elif sound and prefix and data.startswith(prefix):
                add_body(data[len(prefix) :])
                add_attributes(raw)
            elif sound and (found := _split(data, record.flag)):
                raw, body = found
                prefix = data[: len(data) - len(body)]
                add_body(body)
                add_attributes(raw)
            else:
                self._reject(columns, index, record, data)
                continue
            if columns.indexes is not None:
                columns.indexes.append(index)
        if self._policy.filters:
            self._drop_hash_collisions(columns)
        return columns

    def _plain(self) -> list[bytes]:
        """The bodies before the first record that has attributes or is not sound: mostly all."""
        bodies: list[bytes] = []
        add_body = bodies.append
        for record in islice(self._messages, self._count):
            data = record.payLoadData
            if crc32(data) & _CHECKSUM_MASK != record.checkSum or record.flag & 1:
                break
            add_body(data)
        return bodies

    def _reject(self, columns: _Columns, index: int, record: Any, data: bytes) -> None:
        self._policy.reject(CorruptEntry(self.partition, self.start, index, record.messageId, data))
        if columns.indexes is None:
            columns.indexes = list(range(index))

    def _drop_hash_collisions(self, columns: _Columns) -> None:
        cache, wanted = self._policy.cache, self._policy.filters
        keep = [i for i, raw in enumerate(columns.attributes) if cache[raw].stream_id in wanted]
        if len(keep) == len(columns.attributes):
            return
        columns.bodies = [columns.bodies[i] for i in keep]
        columns.attributes = [columns.attributes[i] for i in keep]
        positions = columns.indexes
        columns.indexes = keep if positions is None else [positions[i] for i in keep]

    def _message_ids(self, columns: _Columns) -> list[int]:
        if columns.indexes is None:
            return [record.messageId for record in islice(self._messages, self._count)]
        return [self._messages[index].messageId for index in columns.indexes]

    def _offsets(self, columns: _Columns) -> list[int] | list[None]:
        if not self.exact:
            return [None] * len(columns.bodies)
        indexes = range(len(columns.bodies)) if columns.indexes is None else columns.indexes
        return [self.start + INDEX_ENTRY_BYTES * i for i in indexes]

    def _array(self, name: str, type_: Any, columns: _Columns, pa: Any) -> Any:
        count = len(columns.bodies)
        if name == "value":
            return pa.array(columns.bodies, type_)
        if name == "message_id":
            return pa.array(self._message_ids(columns), type_)
        if name == "offset":
            return pa.array(self._offsets(columns), type_) if self.exact else pa.nulls(count, type_)
        constants = {
            "topic": self.partition.topic,
            "partition": self.partition.key,
            "batch_offset": self.start,
        }
        if name in constants:
            return pa.repeat(pa.scalar(constants[name], type_), count)
        return self._attribute_array(name, type_, columns, pa)

    def _attribute_array(self, name: str, type_: Any, columns: _Columns, pa: Any) -> Any:
        """Columns that come from the attribute string: build one value per distinct string."""
        distinct = columns.code()
        extract = _EXTRACT[name]
        cache = self._policy.cache
        values = pa.array([extract(cache[raw]) for raw in distinct], type_)
        if len(distinct) == 1:
            return pa.repeat(values[0], len(columns.bodies))
        return values.take(pa.array(columns.codes, pa.int32()))


def _split(data: bytes, flag: int) -> tuple[bytes | None, bytes] | None:
    """As `split_payload`, but None when the prefix is malformed."""
    try:
        return split_payload(data, flag)
    except ValueError:
        return None


_EXTRACT: dict[str, Callable[[ParsedAttributes], Any]] = {
    "msg_time": lambda parsed: message_minute(parsed.msg_time),
    "stream_id": lambda parsed: parsed.stream_id,
    "attributes": lambda parsed: list(parsed.attributes.items()),
}

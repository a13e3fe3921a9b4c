"""Fetched batch: a lazy view of one broker reply that becomes messages or Arrow columns.

`DecodePolicy` decides what happens to corrupt records. Records are split by `columns` or by the
compiled decoder (`_wire.native`), which leaves unusual batches to `columns`. pyarrow is
imported only for Arrow columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import errors
from tubemq_client._core.attributes import NO_ATTRIBUTES, AttributeCache
from tubemq_client._core.columns import (
    COLUMNS,
    ColumnPosition,
    Columns,
    is_sound,
    native_schema,
    native_types,
    split_records,
)
from tubemq_client._wire import native
from tubemq_client.model import INDEX_ENTRY_BYTES, Anchor, CorruptRecords, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from tubemq_client._native import Decoded
    from tubemq_client.model import Partition

__all__ = [
    "COLUMNS",
    "CorruptEntry",
    "DecodePolicies",
    "DecodePolicy",
    "MessageBatch",
    "RawBatch",
]


class RawBatch(NamedTuple):
    """Records of a reply before decoding: protobuf messages and the batch's first offset."""

    start: int
    messages: Sequence[Any]


class CorruptEntry(NamedTuple):
    """Record that failed its checksum or whose attribute prefix is malformed."""

    partition: Partition
    batch_offset: int
    position: int
    message_id: int
    data: bytes


@dataclass(slots=True)
class _Plan:
    """Plan for a schema: its columns of natural type, and whether these alone equal the schema.

    `is_made` is None until a batch was converted.
    """

    schema: pa.Schema
    names: list[str]
    is_made: bool | None = None


def _plan(schema: pa.Schema) -> _Plan:
    """Return the plan of a schema.

    Raise `errors.ConfigError` for a column a batch does not have.
    """
    unknown = [name for name in schema.names if name not in COLUMNS]
    if unknown:
        raise errors.ConfigError(
            [f"unknown column {name!r}; known: {', '.join(COLUMNS)}" for name in unknown],
            subject="columns",
        )
    types = native_types()
    return _Plan(schema, [item.name for item in schema if item.type == types[item.name]])


@dataclass(slots=True)
class DecodePolicy:
    """Treatment of corrupt records, and the requested stream ids.

    Brokers filter by a 32-bit hash, so records of other stream ids can slip through; they are
    dropped here. Under `CorruptRecords.QUARANTINE`, `quarantine` is called.
    """

    corrupt_records: CorruptRecords = CorruptRecords.FAIL
    quarantine: Callable[[CorruptEntry], None] | None = None
    filters: frozenset[str] = frozenset()
    cache: AttributeCache = field(default_factory=AttributeCache)
    corrupt: int = 0
    plan: _Plan | None = None
    """Plan of the last schema, usually that of the next batch too."""

    def reject(self, entry: CorruptEntry) -> None:
        self.corrupt += 1
        if self.corrupt_records == CorruptRecords.QUARANTINE and self.quarantine is not None:
            self.quarantine(entry)
        elif self.corrupt_records != CorruptRecords.DROP:
            raise errors.CorruptRecord(
                f"record {entry.position} of the batch at offset {entry.batch_offset} of partition "
                f"{entry.partition} (message id {entry.message_id}) fails its checksum; set "
                f"corrupt_records to 'drop' or 'quarantine' (Spark: corruptRecords=drop) to "
                f"continue without it"
            )


class DecodePolicies(dict[str, DecodePolicy]):
    """Policies by topic, created on first access; `topics` has the stream ids of each."""

    def __init__(
        self, topics: Mapping[str, Collection[str]], corrupt_records: CorruptRecords
    ) -> None:
        super().__init__()
        self._topics = topics
        self._corrupt_records = corrupt_records

    def __missing__(self, topic: str) -> DecodePolicy:
        filters = frozenset(self._topics[topic])
        policy = self[topic] = DecodePolicy(self._corrupt_records, None, filters)
        return policy


class MessageBatch:
    """Records `[start, end)` of one partition, as one broker reply had them.

    `start` is the batch's first index offset and `end` the position after it (records of other
    partitions may lie between); None while that is unknown. `exact`: record *i* is at
    `start + 28 * i`, which holds only for unfiltered reads of a store with one written partition.
    Decoded on first use; checksum failures then follow the reader's `corrupt_records` policy.
    """

    __slots__ = (
        "_columns",
        "_count",
        "_messages",
        "_nbytes",
        "_policy",
        "_quick",
        "end",
        "exact",
        "partition",
        "start",
    )

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
        self._columns: Columns | None = None
        self._quick: Decoded | None = None
        self._nbytes: int | None = None

    def __len__(self) -> int:
        self.decode()
        return len(self._lists.bodies if self._quick is None else self._quick)

    def __repr__(self) -> str:
        return f"<MessageBatch {self.partition}[{self.start},{self.end}) of {self._count} records>"

    @property
    def nbytes(self) -> int:
        """Bytes of all record bodies; summed once, as that costs as much as their checksums."""
        if self._nbytes is None:
            self.decode()
            quick = self._quick
            self._nbytes = sum(map(len, self._lists.bodies)) if quick is None else quick.nbytes
        return self._nbytes

    def first(self) -> Anchor | None:
        """Return the first intact record as stored by the broker, filtered or not."""
        return self._anchor(range(self._count))

    def last(self) -> Anchor | None:
        """Return the last intact record as stored by the broker."""
        return self._anchor(reversed(range(self._count)))

    def _anchor(self, order: Iterable[int]) -> Anchor | None:
        """Return the first intact record in `order`.

        Its offset is exact in an `exact` batch, else `start`. A corrupt record may differ the next
        time it is sent.
        """
        for index in order:
            record = self._messages[index]
            if is_sound(record):
                offset = self.start + INDEX_ENTRY_BYTES * index if self.exact else self.start
                return Anchor(offset, record.messageId, record.checkSum)
        return None

    def has(self, anchor: Anchor) -> bool:
        """Return whether the batch has the anchor's record."""
        position = native.find(self._messages, anchor.message_id, anchor.checksum)
        return position is not None and position < self._count

    def decode(self) -> None:
        """Check and split every record once; later accesses answer from memory."""
        if self._columns is None and self._quick is None:
            policy = self._policy
            self._quick = native.decode(self._messages, self._count, policy.filters)
            if self._quick is None:
                self._columns = self._decode()

    def messages(self) -> Iterator[Message]:
        """Yield the records as `Message` tuples, in offset order."""
        self.decode()
        columns, cache = self._lists, self._policy.cache
        ids = columns.message_ids() if self._quick is None else self._quick.message_ids()
        offsets = columns.offsets(self._place)
        last, parsed = None, NO_ATTRIBUTES
        for body, raw, message_id, offset in zip(
            columns.bodies, columns.attributes, ids, offsets, strict=True
        ):
            if raw is not last:  # records with equal prefixes share the bytes object
                last, parsed = raw, cache[raw]
            yield Message(
                body, dict(parsed.attributes), parsed.stream_id, parsed.msg_time, message_id, offset
            )

    def to_arrow(self, schema: pa.Schema | None = None) -> pa.RecordBatch:
        """Return a record batch with exactly `schema`: any of `COLUMNS`, in any order; None: all.

        Raises `errors.ConfigError` for a column a batch does not have.
        """
        import pyarrow

        if schema is None:
            schema = native_schema()
        plan = self._policy.plan
        if plan is None or plan.schema is not schema:
            plan = self._policy.plan = _plan(schema)
        self.decode()
        native_batch = self._made_quickly(plan.names, pyarrow)
        if native_batch is not None:
            if plan.is_made is None:
                plan.is_made = native_batch.schema.equals(schema, check_metadata=True)
            if plan.is_made:
                return native_batch
        native_columns = (
            {}
            if native_batch is None
            else dict(zip(native_batch.schema.names, native_batch.columns, strict=True))
        )
        place = self._place
        arrays = [
            native_columns[item.name]
            if item.name in native_columns
            else self._lists.array(item.name, item.type, place, pyarrow)
            for item in schema
        ]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    def _made_quickly(self, names: list[str], pyarrow: Any) -> pa.RecordBatch | None:
        """Return the columns of natural type, which the compiled decoder makes; None without it."""
        if self._quick is None or not names:
            return None
        columns = self._quick.arrow(names, *self._place)
        return None if columns is None else pyarrow.record_batch(columns)

    @property
    def _place(self) -> ColumnPosition:
        return ColumnPosition(self.partition.topic, self.partition.key, self.start, self.exact)

    @property
    def _lists(self) -> Columns:
        """The records as lists, made from the compiled decoder's result if there is one."""
        quick = self._quick
        if self._columns is None and quick is not None:
            self._columns = Columns(
                self._messages,
                quick.bodies(),
                quick.attributes(),
                quick.positions,
                self._policy.cache,
            )
        if self._columns is None:
            raise AssertionError("not decoded")
        return self._columns

    def _decode(self) -> Columns:
        policy = self._policy

        def reject(index: int, record: Any, data: bytes) -> None:
            policy.reject(CorruptEntry(self.partition, self.start, index, record.messageId, data))

        columns = split_records(self._messages, self._count, reject)
        columns.cache = policy.cache
        if policy.filters:
            cache, stream_ids = policy.cache, policy.filters
            raws = enumerate(columns.attributes)
            columns.keep([row for row, raw in raws if cache[raw].stream_id in stream_ids])
        return columns

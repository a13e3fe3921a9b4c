"""Delivered batch: records of one queue as columns, converted to messages or Arrow arrays.

The hot path keeps flat lists; property texts are read only if a column or a filter asks for them.
Corrupt and filtered records are removed before a batch is delivered. pyarrow is imported only when
Arrow is asked for.

Source: `docs/rocketmq-protocol/records.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketmq_client import errors
from rocketmq_client._core.pulling import message_of
from rocketmq_client._wire.compression import MAX_BODY_BYTES
from rocketmq_client._wire.properties import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    find_property,
)
from rocketmq_client._wire.records import plain_messages
from tubemq_client.model import CorruptRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from rocketmq_client._wire.records import RecordColumns
    from rocketmq_client.model import Message, Queue

__all__ = ["COLUMNS", "CorruptEntry", "DecodePolicy", "RecordBatch"]

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "store_time",
    "born_time",
    "message_id",
    "tags",
    "keys",
    "reconsume_times",
    "flag",
    "properties",
    "value",
)
"""Names of the columns that a batch can fill, in the default order."""

_OWN_COLUMNS = frozenset({TAGS, KEYS, UNIQ_KEY})


class CorruptEntry(NamedTuple):
    """Record with a wrong checksum or a body that cannot be unpacked. `data` is as stored."""

    queue: Queue
    offset: int
    message_id: str | None
    data: bytes

    @property
    def partition(self) -> Queue:
        """The queue, under the name that both sources share."""
        return self.queue


@dataclass(slots=True)
class DecodePolicy:
    """Handling of corrupt records ("fail", "drop" or "quarantine": call back), and the requested
    tags (none: all). A record that is left out consumes its offset. Raises `errors.ConfigError`."""

    corrupt_records: str = CorruptRecords.FAIL
    quarantine: Callable[[CorruptEntry], None] | None = None
    tags: frozenset[bytes] = frozenset()
    corrupt: int = 0

    def __post_init__(self) -> None:
        if self.corrupt_records not in tuple(CorruptRecords):
            words = " or ".join(repr(word.value) for word in CorruptRecords)
            raise errors.ConfigError(f"corrupt_records: {self.corrupt_records!r} is not {words}")
        if self.corrupt_records == CorruptRecords.QUARANTINE and self.quarantine is None:
            raise errors.ConfigError("corrupt_records: 'quarantine' needs a callback, quarantine=…")

    def apply(self, queue: Queue, columns: RecordColumns) -> None:
        """Remove corrupt records and those without a requested tag. Raises
        `errors.CorruptRecord`."""
        if columns.corrupt:
            for index in columns.corrupt:
                self._reject(queue, columns, index)
            damaged = set(columns.corrupt)
            columns.keep([i for i in range(len(columns)) if i not in damaged])
        if self.tags:
            tags, name = self.tags, TAGS.encode()
            keep = [
                index
                for index, raw in enumerate(columns.properties)
                if find_property(raw, name) in tags
            ]
            if len(keep) != len(columns):
                columns.keep(keep)

    def _reject(self, queue: Queue, columns: RecordColumns, index: int) -> None:
        self.corrupt += 1
        offset = columns.offsets[index]
        unique = find_property(columns.properties[index], UNIQ_KEY.encode())
        name = unique.decode("utf-8", "replace") if unique else None
        if self.corrupt_records == CorruptRecords.FAIL:
            raise errors.CorruptRecord(
                f"the record at offset {offset} of {queue} (message id {name}) fails its checksum "
                f"or cannot be unpacked to at most {MAX_BODY_BYTES} bytes; set corrupt_records to "
                "'drop' or 'quarantine' (Spark: corruptRecords=drop) to continue without it"
            )
        if self.quarantine is not None and self.corrupt_records == CorruptRecords.QUARANTINE:
            self.quarantine(CorruptEntry(queue, offset, name, columns.bodies[index]))


@dataclass(slots=True, repr=False)
class RecordBatch:
    """Records of `[start, end)` of one queue, in offset order. Fewer than `end - start` only if
    some were filtered, corrupt, or removed by retention (under `gap_policy` "skip")."""

    queue: Queue
    start: int
    end: int
    columns: RecordColumns

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        return f"<RecordBatch {self.queue}[{self.start},{self.end}) of {len(self)} records>"

    @property
    def partition(self) -> Queue:
        """The queue, under the name that both sources share."""
        return self.queue

    @property
    def nbytes(self) -> int:
        """Bytes of all record bodies, unpacked."""
        return sum(map(len, self.columns.bodies))

    def messages(self) -> Iterator[Message]:
        """Yield the records as `Message` tuples, in offset order."""
        for index, body in enumerate(self.columns.bodies):
            plain, _ = plain_messages(self.queue, *self.columns.place(index), 1)
            yield plain[0] if plain else message_of(self.queue, self.columns.stored(index), body)

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return a record batch with exactly `schema`: any of `COLUMNS`, in any order.

        Raises `errors.ConfigError` for a column that a batch does not have.
        """
        import pyarrow

        unknown = [name for name in schema.names if name not in COLUMNS]
        if unknown:
            raise errors.ConfigError(
                [f"unknown column {name!r}; known: {', '.join(COLUMNS)}" for name in unknown],
                subject="columns",
            )
        arrays = [self._array(item.name, item.type, pyarrow) for item in schema]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, name: str, type_: Any, pa: Any) -> Any:
        columns = self.columns
        if name in _CONSTANTS:
            return pa.repeat(pa.scalar(_CONSTANTS[name](self.queue), type_), len(self))
        if name in _LISTS:
            return pa.array(_LISTS[name](columns), type_)
        if name in _TIMES:
            return _times(_TIMES[name](columns), type_, pa)
        if name in _SINGLE:
            texts = (find_property(raw, _SINGLE[name]) for raw in columns.properties)
            return pa.array([raw and raw.decode("utf-8", "replace") for raw in texts], type_)
        return pa.array([self._rest(raw) for raw in columns.properties], type_)

    @staticmethod
    def _rest(raw: bytes) -> list[tuple[str, str]]:
        return [item for item in decode_properties(raw).items() if item[0] not in _OWN_COLUMNS]


_CONSTANTS: dict[str, Callable[[Queue], str]] = {
    "topic": lambda queue: queue.topic,
    "partition": lambda queue: queue.key,
}
_LISTS: dict[str, Callable[[RecordColumns], Any]] = {
    "offset": lambda columns: columns.offsets,
    "reconsume_times": lambda columns: columns.reconsume_times,
    "flag": lambda columns: columns.flags,
    "value": lambda columns: columns.bodies,
}
_TIMES: dict[str, Callable[[RecordColumns], list[int]]] = {
    "store_time": lambda columns: columns.store_ms,
    "born_time": lambda columns: columns.born_ms,
}
_SINGLE: dict[str, bytes] = {
    "message_id": UNIQ_KEY.encode(),
    "tags": TAGS.encode(),
    "keys": KEYS.encode(),
}


_MOST_MS: dict[str, int] = {"us": (2**63 - 1) // 1_000, "ns": (2**63 - 1) // 1_000_000}
"""Largest distance from 1970 that a unit can hold, ms."""


def _times(values: list[int], type_: Any, pa: Any) -> Any:
    """Convert milliseconds to timestamps of any unit. A time that the unit cannot hold is null: a
    producer's clock may have any value."""
    most = _MOST_MS.get(getattr(type_, "unit", "ms"), 2**63 - 1)
    times: list[int | None] = [*values]
    if max(values, default=0) > most or min(values, default=0) < -most:
        times = [value if -most <= value <= most else None for value in values]
    return pa.array(times, pa.timestamp("ms", "UTC")).cast(type_, safe=False)

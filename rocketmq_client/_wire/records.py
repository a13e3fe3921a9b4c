"""Stored records: the bytes of a pull's body, as the broker's commit log has them.

Upstream's `MessageDecoder.java`, `CommitLog.java`; the layout is in
`docs/rocketmq-protocol/records.md`. `scan` is the hot path of ordinary topics: one pass over an
answer that checks sizes, magic, queue and checksums and leaves flat lists. `plain_messages` is that
of members of groups. `parse_record` reads one record whole, of any kind.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_client import errors
from rocketmq_client._wire.compression import COMPRESSED, decompress
from rocketmq_client.message import Message, host_bytes, offset_id
from tubemq_client._wire.crc import crc32

if TYPE_CHECKING:
    from rocketmq_client.model import Address, Queue

__all__ = [
    "INNER_BATCH",
    "MAGIC",
    "MAGIC_LONG_TOPIC",
    "MAX_UNPACKED_BYTES",
    "RecordColumns",
    "StoredRecord",
    "body_crc",
    "encode_record",
    "offset_id",
    "parse_record",
    "parse_records",
    "plain_messages",
    "position_in",
    "scan",
]

MAGIC: Final = 0xDAA320A7
MAGIC_LONG_TOPIC: Final = 0xDAA320AB
"""Magic of records with two bytes for the topic length (5.x, long names)."""

MAX_UNPACKED_BYTES: Final = 8 * 1024 * 1024
"""Limit of unpacked bytes per answer; the rest is requested again. Ordinary answers (256 KiB at
most from a broker with default options) stay below."""

BORN_IPV6: Final = 0x10
STORED_IPV6: Final = 0x20
INNER_BATCH: Final = 0x80
_UNUSUAL: Final = BORN_IPV6 | STORED_IPV6 | INNER_BATCH
_NOT_PLAIN: Final = _UNUSUAL | COMPRESSED

# size, magic, crc, queue id, flag, queue offset, physical offset, sysFlag, born at, (born host),
# stored at, (store host), reconsume times, (prepared transaction), body length
_FAST = struct.Struct(">iIIiiqqiq8xq8xi8xi")
# the same with hosts and prepared transaction
_WHOLE = struct.Struct(">iIIiiqqiq8sq8siqi")
_HEAD = struct.Struct(">iIIiiqqiq")
_TAIL = struct.Struct(">iqi")
_STORED_AT = struct.Struct(">q")
_PORT = struct.Struct(">i")
_CRC_MASK: Final = 0x7FFFFFFF


def body_crc(body: bytes) -> int:
    """Return the checksum of a stored body: CRC-32 without its top bit."""
    return crc32(body) & _CRC_MASK


class StoredRecord(NamedTuple):
    """Record as stored in the log; `body` is still packed if `sys_flag` says it is. `size` is its
    bytes in the log (0 for a record that has not been written yet)."""

    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_ms: int
    born_host: Address
    store_ms: int
    store_host: Address
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes
    crc: int
    size: int = 0

    @property
    def is_sound(self) -> bool:
        """True if the body has the checksum that the broker wrote."""
        return body_crc(self.body) == self.crc


@dataclass(slots=True)
class RecordColumns:
    """Records of one queue as parallel lists. `bodies` are unpacked; `corrupt` has the indexes of
    records whose checksum is wrong or whose body cannot be unpacked (those are as stored)."""

    offsets: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    properties: list[bytes] = field(default_factory=list)
    store_ms: list[int] = field(default_factory=list)
    born_ms: list[int] = field(default_factory=list)
    reconsume_times: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    """(index of its first record, answer body); `positions` are positions in these."""
    corrupt: list[int] = field(default_factory=list)
    unpacked_bytes: int = 0
    """Bytes that `scan` has unpacked for these records."""
    cut: bool = False
    """True if `scan` left out records of the answer, because of its limit or of the unpacked
    bytes."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def held_bytes(self) -> int:
        """Bytes of the answers that hold the records, referenced as long as they are."""
        return sum(len(data) for _, data in self.chunks)

    def extend(self, other: RecordColumns) -> None:
        """Append the records of another answer."""
        count = len(self.offsets)
        for name in _LISTS:
            getattr(self, name).extend(getattr(other, name))
        self.chunks += [(first + count, data) for first, data in other.chunks]
        self.corrupt += [index + count for index in other.corrupt]

    def keep(self, indexes: list[int]) -> None:
        """Keep only these records, indexes in ascending order; `corrupt` must have been handled
        before."""
        for name in _LISTS:
            column = getattr(self, name)
            setattr(self, name, [column[index] for index in indexes])
        starts = [first for first, _ in self.chunks]
        chunks: list[tuple[int, bytes]] = []
        at = 0
        for new, old in enumerate(indexes):
            while at + 1 < len(starts) and starts[at + 1] <= old:
                at += 1
            if not chunks or chunks[-1][1] is not self.chunks[at][1]:
                chunks.append((new, self.chunks[at][1]))
        self.chunks, self.corrupt = chunks, []

    def stored(self, index: int) -> StoredRecord:
        """Return one record whole, parsed again from its answer."""
        return parse_record(*self.place(index))[0]

    def place(self, index: int) -> tuple[bytes, int]:
        """Return the answer that has a record, and the record's position in it."""
        data = next(data for first, data in reversed(self.chunks) if first <= index)
        return data, self.positions[index]


_LISTS = (
    *("offsets", "bodies", "properties", "store_ms", "born_ms"),
    *("reconsume_times", "flags", "positions"),
)


def scan(data: bytes, topic: str, queue_id: int, limit: int | None = None) -> RecordColumns:
    """Return the records of an answer, at most `limit`, and none after `MAX_UNPACKED_BYTES` of
    unpacked bodies: a few bytes must not fill the memory.

    Raises `errors.ProtocolViolation` when sizes do not add up, and for records of another queue or
    of a kind that stands for several offsets (an inner batch).
    """
    columns = RecordColumns(chunks=[(0, data)])
    name = topic.encode()
    short = bytes((len(name),)) + name if len(name) < 256 else b""
    pos, end, left = 0, len(data), -1 if limit is None else limit
    try:
        while pos < end and left != 0 and columns.unpacked_bytes < MAX_UNPACKED_BYTES:
            pos = _scan_one(data, pos, columns, short, queue_id, topic)
            left -= 1
    except struct.error as error:
        raise errors.ProtocolViolation(f"a record is cut short: {error}") from error
    columns.cut = pos < end
    return columns


def _scan_one(
    data: bytes, pos: int, columns: RecordColumns, short: bytes, queue_id: int, topic: str
) -> int:
    size, magic, crc, queue, flag, offset, _, sys_flag, born, stored, again, length = (
        _FAST.unpack_from(data, pos)
    )
    start = pos + 88
    stop = start + length
    usual = magic == MAGIC and not sys_flag & _UNUSUAL and length >= 0
    if not (usual and queue == queue_id and data.startswith(short, stop)):
        record, end = parse_record(data, pos)
        _refuse_strangers(record, topic, queue_id)
        _append(columns, record, pos)
        return end
    body = data[start:stop]
    stop += len(short)
    properties = data[stop + 2 : stop + 2 + int.from_bytes(data[stop : stop + 2], "big")]
    if stop + 2 + len(properties) != pos + size or pos + size > len(data):
        raise errors.ProtocolViolation(f"a record of {size} bytes at {pos} does not add up")
    if crc32(body) & _CRC_MASK != crc:
        columns.corrupt.append(len(columns.offsets))
    elif sys_flag & COMPRESSED:
        body = _unpacked(body, sys_flag, columns)
    columns.offsets.append(offset)
    columns.bodies.append(body)
    columns.properties.append(properties)
    columns.store_ms.append(stored)
    columns.born_ms.append(born)
    columns.reconsume_times.append(again)
    columns.flags.append(flag)
    columns.positions.append(pos)
    following: int = pos + size
    return following


def _append(columns: RecordColumns, record: StoredRecord, pos: int) -> None:
    body = record.body
    if not record.is_sound:
        columns.corrupt.append(len(columns.offsets))
    else:
        body = _unpacked(body, record.sys_flag, columns)
    columns.offsets.append(record.queue_offset)
    columns.bodies.append(body)
    columns.properties.append(record.properties)
    columns.store_ms.append(record.store_ms)
    columns.born_ms.append(record.born_ms)
    columns.reconsume_times.append(record.reconsume_times)
    columns.flags.append(record.flag)
    columns.positions.append(pos)


def _unpacked(body: bytes, sys_flag: int, columns: RecordColumns) -> bytes:
    try:
        unpacked = decompress(body, sys_flag)
    except ValueError:
        columns.corrupt.append(len(columns.offsets))
        return body
    columns.unpacked_bytes += len(unpacked) if unpacked is not body else 0
    return unpacked


def _refuse_strangers(record: StoredRecord, topic: str, queue_id: int) -> None:
    where = f"queue {queue_id} of topic {topic!r}"
    if record.sys_flag & INNER_BATCH:
        raise errors.ProtocolViolation(
            f"{where} holds inner batches (queue.type=BatchCQ): one record for several offsets"
        )
    if record.topic != topic or record.queue_id != queue_id:
        raise errors.ProtocolViolation(
            f"{where}: the broker sent a record of queue {record.queue_id} of topic "
            f"{record.topic!r}; light queues (%LMQ%) do that"
        )


def parse_records(data: bytes) -> list[StoredRecord]:
    """Return all records of an answer, of any kind. Raises `errors.ProtocolViolation`."""
    records: list[StoredRecord] = []
    pos = 0
    while pos < len(data):
        record, pos = parse_record(data, pos)
        records.append(record)
    return records


def position_in(data: bytes) -> int:
    """Return the log position of the record at the start of these bytes, whole or not; -1 if they
    are too few."""
    return _HEAD.unpack_from(data)[6] if len(data) >= _HEAD.size else -1


def plain_messages(queue: Queue, data: bytes, pos: int, limit: int) -> tuple[list[Message], int]:
    """Return the messages from `pos` on, up to `limit`, and the position behind them. They end
    before the first record that only `parse_record` can judge: a damaged, packed or inner batch
    one, or one whose hosts have IPv6 addresses."""
    messages: list[Message] = []
    unpack, size_left, append = _WHOLE.unpack_from, len(data) - _WHOLE.size, messages.append
    new, whole = tuple.__new__, len(data)
    for _ in range(limit):
        if pos > size_left:
            break
        (
            size,
            magic,
            crc,
            _,
            flag,
            offset,
            physical,
            sys_flag,
            born_ms,
            born_host,
            store_ms,
            store_host,
            again,
            prepared,
            length,
        ) = unpack(data, pos)
        stop = pos + 88 + length
        if magic != MAGIC or sys_flag & _NOT_PLAIN or length < 0 or stop >= whole:
            break
        topic_end = stop + 1 + data[stop]
        start, end = topic_end + 2, pos + size
        if not start <= end <= whole:
            break
        if start + (data[topic_end] << 8 | data[topic_end + 1]) != end:
            break
        body = data[pos + 88 : stop]
        if crc32(body) & _CRC_MASK != crc:
            break
        values = (
            *(queue, offset, body, data[start:end], store_ms, born_ms, _address(store_host)),
            *(_address(born_host), again, flag, sys_flag, physical, prepared),
        )
        append(new(Message, values))
        pos = end
    return messages, pos


def parse_record(data: bytes, pos: int) -> tuple[StoredRecord, int]:
    """Return the record at `pos` and the position of the next. Raises
    `errors.ProtocolViolation`."""
    try:
        return _parse(data, pos)
    except (struct.error, IndexError) as error:
        raise errors.ProtocolViolation(f"a record is cut short: {error}") from error


def _parse(data: bytes, pos: int) -> tuple[StoredRecord, int]:
    size, magic, crc, queue, flag, offset, physical, sys_flag, born = _HEAD.unpack_from(data, pos)
    if magic not in {MAGIC, MAGIC_LONG_TOPIC}:
        raise errors.ProtocolViolation(f"a record at {pos} has the magic {magic:08x}")
    at = pos + _HEAD.size
    born_host, at = _host(data, at, wide=bool(sys_flag & BORN_IPV6))
    (stored,) = _STORED_AT.unpack_from(data, at)
    store_host, at = _host(data, at + 8, wide=bool(sys_flag & STORED_IPV6))
    again, prepared, length = _TAIL.unpack_from(data, at)
    body, at = _span(data, at + _TAIL.size, length)
    width = 2 if magic == MAGIC_LONG_TOPIC else 1
    topic, at = _span(data, at + width, int.from_bytes(data[at : at + width], "big"))
    properties, at = _span(data, at + 2, int.from_bytes(data[at : at + 2], "big"))
    if at != pos + size:
        raise errors.ProtocolViolation(f"a record of {size} bytes at {pos} has {at - pos}")
    record = StoredRecord(
        *(queue, flag, offset, physical, sys_flag, born, born_host, stored, store_host),
        *(again, prepared, body, topic.decode("utf-8", "replace"), properties, crc, size),
    )
    return record, at


def _span(data: bytes, start: int, length: int) -> tuple[bytes, int]:
    if length < 0 or start + length > len(data):
        raise errors.ProtocolViolation(f"a record announces {length} bytes beyond its answer")
    return data[start : start + length], start + length


def _host(data: bytes, at: int, *, wide: bool) -> tuple[Address, int]:
    raw, at = _span(data, at, 20 if wide else 8)
    return _address(raw), at


@lru_cache(maxsize=1024)
def _address(raw: bytes) -> Address:
    """Return the host of an address and a port of 4 bytes."""
    (port,) = _PORT.unpack_from(raw, len(raw) - 4)
    return str(ip_address(raw[:-4])), port


def encode_record(record: StoredRecord) -> bytes:
    """Return the bytes of a record; host flags and size are derived, the checksum is the
    record's."""
    born, store = (host_bytes(host) for host in (record.born_host, record.store_host))
    sys_flag = record.sys_flag & ~(BORN_IPV6 | STORED_IPV6)
    sys_flag |= (BORN_IPV6 if len(born) > 8 else 0) | (STORED_IPV6 if len(store) > 8 else 0)
    topic = record.topic.encode()
    magic, width = (MAGIC, 1) if len(topic) < 128 else (MAGIC_LONG_TOPIC, 2)
    parts = (
        born,
        _STORED_AT.pack(record.store_ms),
        store,
        _TAIL.pack(record.reconsume_times, record.prepared_offset, len(record.body)),
        record.body,
        len(topic).to_bytes(width, "big"),
        topic,
        len(record.properties).to_bytes(2, "big"),
        record.properties,
    )
    size = _HEAD.size + sum(map(len, parts))
    head = _HEAD.pack(
        *(size, magic, record.crc, record.queue_id, record.flag, record.queue_offset),
        *(record.physical_offset, sys_flag, record.born_ms),
    )
    return b"".join((head, *parts))

"""Results of parsing: a message, its records, and its groups of records with equal attributes.

A message keeps the bytes it was parsed from and its decompressed payloads; records are sliced while
iterating, so their number costs no memory. The whole message was checked before, so iterating
cannot fail.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from tubemq_client.tdmsg._attributes import decode_text, parse_attributes
from tubemq_client.tdmsg._walk import Bounds, Span, item_bounds, record_bounds

__all__ = [
    "DEFAULT_MAX_BYTES",
    "Block",
    "Layout",
    "TDMsg",
    "TDMsgGroup",
    "TDMsgPacket",
    "TDMsgRecord",
]

DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
"""Default limit in bytes of a message, and of its payloads when decompressed."""

_CACHED_BYTES: Final = 4 << 20
"""Approximate bytes of cached mappings, kept in case the next record has the same attributes."""
_ENTRY_BYTES, _PAIR_BYTES = 600, 200
"""Approximate bytes of a mapping besides its characters, and of each of its pairs."""


class TDMsgRecord(NamedTuple):
    """One record. `attributes` is read-only and shared between records with equal ones.

    `raw_attributes` are the bytes that the attributes were parsed from: those of the block and of
    the record itself, joined by ``&``. They lack the pairs that a version 4 header adds.
    """

    attributes: Mapping[str, str]
    body: bytes
    raw_attributes: bytes

    @property
    def attribute_text(self) -> str:
        """`raw_attributes` as text; bytes that are no UTF-8 appear as U+FFFD."""
        return decode_text(self.raw_attributes)

    @property
    def group_id(self) -> str | None:
        """InLong's business group, under its new or its old name; None if not stated."""
        return _first(self.attributes, ("groupId", "bid"))

    @property
    def stream_id(self) -> str | None:
        """InLong's data stream, under its new or an old name; None if not stated."""
        return _first(self.attributes, ("streamId", "tid", "iname", "id"))


def _first(attributes: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((attributes[name] for name in names if name in attributes), None)


class TDMsgGroup(NamedTuple):
    """The bodies of all records with equal attributes, in the order of the wire; may be empty."""

    attributes: Mapping[str, str]
    raw_attributes: bytes
    bodies: list[bytes]

    @property
    def attribute_text(self) -> str:
        """Text as in `TDMsgRecord`; in version 4 that of the group's first record."""
        return decode_text(self.raw_attributes)


class TDMsgPacket(NamedTuple):
    """Header of the sender's packet that a version 4 message wraps; all numbers are unsigned.

    `declared_count` is the sender's claim. `unique_id` is the sender's own number of the packet.
    `data_time_s` are seconds since the epoch.
    """

    message_type: int
    group_number: int
    stream_number: int
    extension: int
    data_time_s: int
    declared_count: int
    unique_id: int

    @property
    def compressed(self) -> bool:
        """True if the body is compressed with snappy."""
        return bool(self.message_type & 0x20)

    @property
    def encrypted(self) -> bool:
        """True if the body is encrypted; such a body cannot be read here."""
        return bool(self.message_type & 0x40)

    @property
    def own_attributes(self) -> bool:
        """True if every record carries its own attributes."""
        return bool(self.extension & 0x01)

    @property
    def numeric_ids(self) -> bool:
        """True if group and stream are the two numbers, not attributes."""
        return not self.extension & 0x04

    @property
    def lines_joined(self) -> bool:
        """True if the sender joined all its records into one body, a line each."""
        return bool(self.extension & 0x20)


class Layout(Enum):
    """Layout of records in a payload."""

    ITEMS = auto()
    RUNS = auto()
    RECORDS = auto()
    ENCRYPTED = auto()


class Block(NamedTuple):
    """A payload with the attributes that are common to its records.

    `added` are the pairs that a version 4 header adds, None in the other versions.
    """

    attributes: bytes
    layout: Layout
    span: Span
    added: Mapping[str, str] | None = None

    def bounds(self) -> Iterator[Bounds]:
        """Yield the bounds of the records. Raises `errors.UnreadableTDMsg` for a wrong length."""
        if self.layout is Layout.ITEMS:
            return item_bounds(self.span)
        if self.layout is Layout.ENCRYPTED:
            end = self.span.end
            return iter((Bounds(self.span.start, end, end, end),))
        return record_bounds(self.span, framed=self.layout is Layout.RUNS)

    def joined(self, own: bytes) -> bytes:
        """Return all attribute bytes of a record, in an order in which the last of equal keys
        counts."""
        if self.added is not None:
            # The published Java class lets the common attributes of a packet win.
            return b"&".join(part for part in (own, self.attributes) if part)
        # A separator precedes the record's attributes even if the block has none, as in Java.
        return b"&".join((self.attributes, own)) if own else self.attributes

    def mapping(self, raw: bytes) -> Mapping[str, str]:
        return MappingProxyType(parse_attributes(decode_text(raw)) | dict(self.added or {}))

    def records(self) -> Iterator[TDMsgRecord]:
        data = self.span.data
        cache: dict[bytes, tuple[Mapping[str, str], bytes]] = {}
        cached_bytes = 0
        for body_start, body_end, own_start, own_end in self.bounds():
            own = data[own_start:own_end]
            if own not in cache:
                raw = self.joined(own)
                mapping = self.mapping(raw)
                # Counted in bytes, because each of them contains the common attributes.
                cost = _ENTRY_BYTES + 3 * len(raw) + _PAIR_BYTES * len(mapping)
                if cached_bytes + cost > _CACHED_BYTES:
                    cache.clear()
                    cached_bytes = 0
                cache[own] = (mapping, raw)
                cached_bytes += cost
            attributes, raw = cache[own]
            yield TDMsgRecord(attributes, data[body_start:body_end], raw)


def _group(
    groups: dict[Hashable, TDMsgGroup], block: Block, raw: bytes, attributes: Mapping[str, str]
) -> TDMsgGroup:
    key: Hashable = raw if block.added is None else frozenset(attributes.items())
    if key not in groups:
        groups[key] = TDMsgGroup(attributes, raw, [])
    return groups[key]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TDMsg:
    """A packed body that was found to be well-formed; iterate for its records in wire order.

    `len()` is the number of records actually present. `declared_count` is the header's claim (None
    in versions 0 and 1), which is not reliable and decides nothing. `create_time_ms` is the time
    the proxy packed the message, in version 4 the sender's data time in whole seconds, in version 0
    None. `packet` is the header of a version 4 message, None for others.
    """

    version: int
    create_time_ms: int | None
    declared_count: int | None
    packet: TDMsgPacket | None
    _blocks: tuple[Block, ...]
    _count: int

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        """Return True also for a message without records."""
        return True

    def __iter__(self) -> Iterator[TDMsgRecord]:
        for block in self._blocks:
            yield from block.records()

    def groups(self) -> list[TDMsgGroup]:
        """Return the bodies by attributes, in order of first use; takes memory for every record.

        Equal means equal bytes; in version 4, where the order of pairs is irrelevant, equal pairs.
        Attributes of a block without records have an empty list.
        """
        groups: dict[Hashable, TDMsgGroup] = {}
        for block in self._blocks:
            if block.layout is Layout.ITEMS:
                _group(groups, block, block.attributes, block.mapping(block.attributes))
            for attributes, body, raw in block.records():
                _group(groups, block, raw, attributes).bodies.append(body)
        return list(groups.values())

    def __repr__(self) -> str:
        return f"<TDMsg version {self.version}: {self._count} records, created {self._created()}>"

    def _created(self) -> str:
        return "?" if self.create_time_ms is None else f"{self.create_time_ms} ms"

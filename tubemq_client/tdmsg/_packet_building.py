"""Builds version 4: the packet of a sender, between the magics of the message.

Readers split its attributes into pairs; those of the packet override a record's, and those of the
header override both. A pair that would be lost that way is refused when it is added. Numbers stay
in the range in which the published Java class, which reads them as signed, sees the same values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from tubemq_client.tdmsg._attributes import encode_plain, format_attributes
from tubemq_client.tdmsg._building import check_options, sized, smaller
from tubemq_client.tdmsg._packet import HEADER, INNER_MAGIC, MULTI_BODY, added_attributes
from tubemq_client.tdmsg._values import DEFAULT_MAX_BYTES, TDMsgPacket

__all__ = ["TDMsgPacketBuilder"]

_MAGIC: Final = b"\x0f\x04"
_UINT16 = struct.Struct(">H")
_SIGNED_16: Final = 0x7FFF
_SIGNED_32: Final = 0x7FFF_FFFF
_UNSIGNED_32: Final = 0xFFFF_FFFF
_SNAPPY_BIT: Final = 0x20
_OWN_ATTRIBUTES: Final = 0x01
_TEXT_IDS: Final = 0x04


class TDMsgPacketBuilder:
    """Collects records into one version 4 message with common `attributes`.

    `data_time_s` are seconds since the epoch, `numeric_ids` the numbers of group and stream (None:
    `attributes` names them as ``groupId`` and ``streamId``), `unique_id` the sender's number of
    this packet. Either all records have their own attributes or none; the first one decides.
    `compress` (needs pyarrow) uses snappy if that is smaller. `max_bytes` bounds the message before
    compression. Not thread-safe.
    """

    def __init__(
        self,
        *,
        data_time_s: int,
        attributes: Mapping[str, str] | None = None,
        numeric_ids: tuple[int, int] | None = None,
        unique_id: int = 0,
        compress: bool = True,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        group, stream = numeric_ids or (0, 0)
        extension = _TEXT_IDS if numeric_ids is None else 0
        self._header = TDMsgPacket(MULTI_BODY, group, stream, extension, data_time_s, 0, unique_id)
        self._common = dict(attributes or {})
        self._attributes = b""
        self._compress = compress
        self._max_bytes = max_bytes
        self.reset()
        problems = _header_problems(self._header)
        reserved = self._common.keys() & added_attributes(self._header).keys()
        problems += [f"attribute {key!r} comes from the header" for key in sorted(reserved)]
        try:
            self._attributes = encode_plain(format_attributes(self._common))
        except ValueError as error:
            problems.append(str(error))
        if len(self._attributes) > _SIGNED_16:
            problems.append(f"attributes of {len(self._attributes)} bytes exceed {_SIGNED_16}")
        check_options(problems, compress=compress, max_bytes=max_bytes, least=self.size_bytes)

    def reset(self) -> None:
        """Drop all records; the options and the common attributes stay."""
        self._body = bytearray()
        self._count = 0
        self._own: bool | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Exact bytes of the message without compression; with it, an upper bound."""
        fixed = 2 * len(_MAGIC) + HEADER.size + _UINT16.size + len(INNER_MAGIC)
        return fixed + len(self._attributes) + len(self._body)

    def fits(self, body: bytes, attributes: Mapping[str, str] | None = None) -> bool:
        """Return True if `add` would find room. Raises `ValueError` for a record it would
        refuse."""
        return self._no_room(self._record(body, attributes)) is None

    def add(self, body: bytes, attributes: Mapping[str, str] | None = None) -> None:
        """Add a record, with its own `attributes` if the others have some.

        Raises `ValueError`, and adds nothing, if the record does not fit or could not be read back.
        """
        record = self._record(body, attributes)
        problem = self._no_room(record)
        if problem:
            raise ValueError(problem)
        self._body += record
        self._count += 1
        self._own = attributes is not None

    def _record(self, body: bytes, attributes: Mapping[str, str] | None) -> bytes:
        if self._own not in {None, attributes is not None}:
            raise ValueError("either every record of a packet has its own attributes or none")
        if attributes is None:
            return sized(body)
        if not body or not attributes:
            raise ValueError("a record with own attributes must have some, and a body")
        reserved = attributes.keys() & (self._common | dict(added_attributes(self._header))).keys()
        if reserved:
            raise ValueError(f"the packet's own {', '.join(sorted(reserved))} would win")
        return sized(body) + sized(encode_plain(format_attributes(attributes)))

    def _no_room(self, record: bytes) -> str | None:
        if self._count == _SIGNED_16:
            return f"a packet holds at most {_SIGNED_16} records"
        if self.size_bytes + len(record) > self._max_bytes:
            return (
                f"message of {self.size_bytes} bytes has no room for {len(record)} more: "
                f"{self._max_bytes} are allowed"
            )
        return None

    def build(self) -> bytes:
        """Return the message. The builder keeps its records; see `reset`."""
        plain = bytes(self._body)
        block = smaller(plain, compress=self._compress)
        body = plain if block is None else block
        header = self._header._replace(
            message_type=MULTI_BODY | (0 if block is None else _SNAPPY_BIT),
            extension=self._header.extension | (_OWN_ATTRIBUTES if self._own else 0),
            declared_count=self._count,
        )
        attributes = _UINT16.pack(len(self._attributes)) + self._attributes
        total = HEADER.size - 4 + len(body) + len(attributes) + len(INNER_MAGIC)
        packet = HEADER.pack(total, *header, len(body))
        return b"".join((_MAGIC, packet, body, attributes, INNER_MAGIC, _MAGIC))


def _header_problems(header: TDMsgPacket) -> list[str]:
    return [
        f"{name} {value} is not between 0 and {highest}"
        for name, value, highest in (
            ("data_time_s", header.data_time_s, _SIGNED_32),
            ("group number", header.group_number, _SIGNED_16),
            ("stream number", header.stream_number, _SIGNED_16),
            ("unique_id", header.unique_id, _UNSIGNED_32),
        )
        if not 0 <= value <= highest
    ]

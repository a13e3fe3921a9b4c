"""Hand-written send request (RPC 13), the hot path of a producer.

All but the record is the same for every record of a partition, so it is serialised once
(`SendTemplate`) and a request is the concatenation of a few parts. Protobuf would parse the bytes
to the same message; the order of fields differs, which the format allows.

Source: `docs/protocol/wire.md#record-bytes-payload`.
"""

from __future__ import annotations

from typing import Any, Final

from tubemq_client import _pb
from tubemq_client._wire.payload import checksum

__all__ = ["NO_CHECKSUM", "SendTemplate"]

NO_CHECKSUM: Final = -1
"""Checksum of a request whose data the broker must not check."""

_TAG_DATA: Final = b"\x22"  # field 4, bytes
_FLAGS: Final = (b"\x28\x00\x30", b"\x28\x01\x30")  # field 5, varint 0 or 1, and the tag of field 6
_MINUS_ONE: Final = b"\xff" * 9 + b"\x01"
_TAG_STREAM_ID: Final = b"\x42"  # field 8, text
_TAG_MSG_TIME: Final = b"\x4a"  # field 9, text


class SendTemplate:
    """Template of requests of one producer for one partition; `auth` authenticates the producer."""

    __slots__ = ("_head", "_tail", "_verify")

    def __init__(
        self,
        client_id: str,
        topic: str,
        partition_id: int,
        sent_address: int,
        auth: Any,
        *,
        verify: bool,
    ) -> None:
        head = _pb.SendMessageRequestP2B(
            clientId=client_id, topicName=topic, partitionId=partition_id, sentAddr=sent_address
        )
        tail = _pb.SendMessageRequestP2B(authInfo=auth)
        self._head: bytes = head.SerializePartialToString() + _TAG_DATA
        self._tail: bytes = tail.SerializePartialToString()
        self._verify = verify

    def request(
        self, data: bytes, flag: int, stream_id: str | None = None, msg_time: str | None = None
    ) -> bytes:
        """Return the request that carries `data` (`payload.encode_payload`).

        With `verify` the broker refuses data that does not match the checksum in the request.
        """
        parts = [
            self._head,
            _varint(len(data)),
            data,
            _FLAGS[flag],
            _varint(checksum(data)) if self._verify else _MINUS_ONE,
        ]
        if stream_id is not None:
            parts += _text(_TAG_STREAM_ID, stream_id)
        if msg_time is not None:
            parts += _text(_TAG_MSG_TIME, msg_time)
        parts.append(self._tail)
        return b"".join(parts)


def _text(tag: bytes, text: str) -> tuple[bytes, bytes, bytes]:
    raw = text.encode()
    return tag, _varint(len(raw)), raw


def _varint(value: int) -> bytes:
    if value >> 28 and not value >> 35:  # most checksums
        low, high = value & 0xFFFFFFF, value >> 28
        return bytes(
            (
                low & 0x7F | 0x80,
                low >> 7 & 0x7F | 0x80,
                low >> 14 & 0x7F | 0x80,
                low >> 21 | 0x80,
                high,
            )
        )
    if value < 1 << 14:  # most lengths
        return bytes((value & 0x7F | 0x80, value >> 7)) if value >> 7 else bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

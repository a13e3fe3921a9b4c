"""Reply to a fetch, kept unparsed until a caller reads it.

Parsing a reply of half a megabyte takes time in which the broker could already be working on the
next. The first bytes of a reply suffice to request that: every known broker writes `success` and
`errCode` first, so a fetch that delivered begins with the same five bytes. Another beginning is
merely not recognised early.

`FetchReply` takes the place of a message class in `methods.Method`. Drivers that already have
messages (in memory, in tests) may answer with these instead, hence the two functions.

Source: `docs/protocol/wire.md#traps`.
"""

from __future__ import annotations

from typing import Any, Final, Self

from google.protobuf.message import DecodeError

from tubemq_client import _pb, errors
from tubemq_client._wire import native

__all__ = ["MOST_RECORDS", "FetchReply", "size_if_delivering", "whole"]

MOST_RECORDS: Final = 1 << 16
"""Upper bound of records in one reply. Brokers stop after 1 MiB, of which each record takes 52
bytes or more, so none sends half as many; a reply of empty ones would exhaust the memory."""

_DELIVERING: Final = b"\x08\x01\x10\xc8\x01"  # field 1 (success): true; field 2 (errCode): 200
_SUCCESS: Final = 200


class FetchReply:
    """Bytes of one `GetMessageResponseB2C`."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data

    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Self:  # noqa: N802 - as protobuf's classes
        """Return the reply in `data`, unparsed."""
        return cls(data)

    def IsInitialized(self) -> bool:  # noqa: N802 - as protobuf's classes
        """Return True; `parse` finds missing fields."""
        return True

    def __repr__(self) -> str:
        return f"<FetchReply of {len(self._data)} bytes>"

    @property
    def size_if_delivering(self) -> int:
        """Bytes of a reply that begins like one with records; 0 for any other."""
        return len(self._data) if self._data[: len(_DELIVERING)] == _DELIVERING else 0

    def parse(self) -> Any:
        """Return the protobuf message, or the compiled decoder's object with the same names.

        Raises `errors.ProtocolViolation` if it cannot be parsed, lacks a required field,
        contradicts its first bytes, or has more than `MOST_RECORDS`.
        """
        what = "reply to get messages (17)"
        if self.size_if_delivering and (scanned := native.scan(self._data)) is not None:
            if len(scanned.messages) > MOST_RECORDS:
                raise _too_many(what)
            return scanned
        if _may_have_more(bytes(self._data)):
            raise _too_many(what)
        try:
            message = _pb.GetMessageResponseB2C.FromString(self._data)
        except DecodeError as error:
            raise errors.ProtocolViolation(f"{what}: {error}") from error
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise errors.ProtocolViolation(f"{what}: required fields are missing: {missing}")
        if self.size_if_delivering and not (message.success and message.errCode == _SUCCESS):
            raise errors.ProtocolViolation(f"{what}: it takes back what its beginning said")
        return message


def size_if_delivering(reply: Any) -> int:
    """Return `FetchReply.size_if_delivering`; 0 for a message that was already parsed."""
    return reply.size_if_delivering if isinstance(reply, FetchReply) else 0


def whole(reply: Any) -> Any:
    """Return the message of a `FetchReply`, or the message itself."""
    return reply.parse() if isinstance(reply, FetchReply) else reply


def _too_many(what: str) -> errors.ProtocolViolation:
    return errors.ProtocolViolation(f"{what}: more than {MOST_RECORDS} records")


_RECORD: Final = 4 << 3 | 2
"""Tag of a record: field 4, length-delimited."""


def _may_have_more(data: bytes) -> bool:
    """Return whether a reply may have more than `MOST_RECORDS`, counting without parsing.

    Protobuf would create an object for each before they could be counted. True also for a reply
    that cannot be scanned.
    """
    # The tag's first byte, alone or with a continuation bit. Few bytes of it: few records.
    if data.count(_RECORD) + data.count(_RECORD | 0x80) <= MOST_RECORDS:
        return False
    pos = count = 0
    try:
        while pos < len(data):
            tag, pos = _varint(data, pos)
            match tag & 7:
                case 0:
                    _, pos = _varint(data, pos)
                case 1:
                    pos += 8
                case 2:
                    size, pos = _varint(data, pos)
                    pos += size
                case 5:
                    pos += 4
                case _:  # a group, which no server of this protocol writes, or an invalid type
                    return True
            count += tag & 0xFFFFFFFF == _RECORD
            if count > MOST_RECORDS:
                return True
    except IndexError:
        pass  # truncated: protobuf has the error text
    return False


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[pos]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        pos += 1
        if shift > 63:
            raise IndexError(pos)
    return value | byte << shift, pos + 1

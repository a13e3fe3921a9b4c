"""The reply to a fetch, left unparsed until a caller looks into it.

Taking a reply of half a megabyte apart takes a reader time in which the broker could already be
working on the next. The first bytes of a reply tell enough to ask for that: every known broker
writes `success` and `errCode` first, so a fetch that delivered begins with the same five bytes.
What begins otherwise is merely not recognised early.

`FetchReply` stands where `methods.Method` wants a message class. Drivers that hold messages already
(in memory, in tests) may answer with these instead, hence the two functions.

Source: `docs/protocol/wire.md#traps`.
"""

from __future__ import annotations

from typing import Any, Final, Self

from google.protobuf.message import DecodeError

from tubemq_client import _pb, errors
from tubemq_client._wire import native

__all__ = ["MOST_RECORDS", "FetchReply", "size_if_delivering", "whole"]

MOST_RECORDS: Final = 1 << 16
"""Records of one reply at most. Brokers stop after 1 MiB, of which each record takes 52 bytes or
more, so none sends half as many; a reply of empty ones would fill the memory."""

_DELIVERING: Final = b"\x08\x01\x10\xc8\x01"  # field 1 (success): true; field 2 (errCode): 200
_SUCCESS: Final = 200


class FetchReply:
    """The bytes of one `GetMessageResponseB2C`."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data

    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Self:  # noqa: N802 - as protobuf's classes
        """The reply in `data`, which is not looked at."""
        return cls(data)

    def IsInitialized(self) -> bool:  # noqa: N802 - as protobuf's classes
        """Nothing is known to be missing yet; `parse` finds out."""
        return True

    def __repr__(self) -> str:
        return f"<FetchReply of {len(self._data)} bytes>"

    @property
    def size_if_delivering(self) -> int:
        """Bytes of a reply that begins as one that brings records; 0 for any other."""
        return len(self._data) if self._data[: len(_DELIVERING)] == _DELIVERING else 0

    def parse(self) -> Any:
        """The protobuf message, or what the compiled decoder shows under the same names.

        Raises `errors.ProtocolViolation` if it cannot be read, lacks a required field, takes back
        what its first bytes said, or has more than `MOST_RECORDS`.
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
    """`FetchReply.size_if_delivering`; 0 for a message that was parsed already."""
    return reply.size_if_delivering if isinstance(reply, FetchReply) else 0


def whole(reply: Any) -> Any:
    """The message in a `FetchReply`, or the one that stands in its place."""
    return reply.parse() if isinstance(reply, FetchReply) else reply


def _too_many(what: str) -> errors.ProtocolViolation:
    return errors.ProtocolViolation(f"{what}: more than {MOST_RECORDS} records")


_RECORD: Final = 4 << 3 | 2
"""Tag of a record: field 4, with a length before it."""


def _may_have_more(data: bytes) -> bool:
    """Whether a reply has more than `MOST_RECORDS`, or cannot be walked through and might have:
    protobuf would make an object of each before anyone could count them."""
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
                case _:  # a group, which no server of this protocol writes, or nothing at all
                    return True
            count += tag & 0xFFFFFFFF == _RECORD
            if count > MOST_RECORDS:
                return True
    except IndexError:
        pass  # cut short: protobuf has the words
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

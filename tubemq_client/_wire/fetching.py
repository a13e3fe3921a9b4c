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

__all__ = ["FetchReply", "size_if_delivering", "whole"]

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

        Raises `errors.ProtocolViolation` if it cannot be read, lacks a required field, or takes
        back what its first bytes said.
        """
        if self.size_if_delivering and (scanned := native.scan(self._data)) is not None:
            return scanned
        what = "reply to get messages (17)"
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

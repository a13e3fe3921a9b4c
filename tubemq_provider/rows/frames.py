"""What comes before the data of a body: bytes to skip, or the frame of a schema registry.

The frame is a zero byte and the schema's id in four bytes, for Protobuf also the place of the
message in its file. This module must not know schemas.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final

__all__ = ["Frames"]

_LOG: Final = logging.getLogger(__name__)


class Frames:
    """Finds where data begin behind `skip` bytes.

    Five bytes that begin with zero are the frame of a schema registry. Avro is read by one schema,
    so the id of the first body is the only one that is read, and logged once. Protobuf is read by
    the numbers of its fields, whatever the id; the frame names the message by its `place` in its
    file, and only bodies of this place are read.
    """

    SIZE: ClassVar[int] = 5

    def __init__(self, skip: int, place: tuple[int, ...] | None = None) -> None:
        self._skip = skip
        self._first: int | None = None
        self._places = None if place is None else _place_forms(place)

    def start(self, body: bytes) -> int:
        """Return where the data begin. Raises `ValueError` for a body that is too short, and for
        one of another schema."""
        if len(body) < self._skip:
            raise ValueError(f"it has {len(body)} bytes, {self._skip} are to be skipped")
        if self._skip != self.SIZE or body[0]:
            return self._skip
        if self._places is not None:
            return self._message_start(body, self._places)
        self._check(self.id_of(body))
        return self._skip

    @classmethod
    def id_of(cls, body: bytes) -> int:
        """Return the schema id of the body's frame. Raises `ValueError` if it has none."""
        if len(body) < cls.SIZE or body[0]:
            raise ValueError("it does not begin with the frame of a schema registry")
        return int.from_bytes(body[1 : cls.SIZE], "big")

    def _message_start(self, body: bytes, places: tuple[bytes, ...]) -> int:
        """Behind the place of the message. No message begins with a byte below 8, the tag of a
        field 0, so that frames without a place are recognized, too."""
        for place in places:
            if body.startswith(place, self.SIZE):
                return self.SIZE + len(place)
        if len(body) > self.SIZE and body[self.SIZE] < 8:
            raise ValueError(
                "its frame names another message of the file: "
                f"{body[self.SIZE : self.SIZE + 8].hex(' ')}…, not {places[0].hex(' ')}"
            )
        return self.SIZE

    def _check(self, id_: int) -> None:
        if self._first is None:
            self._first = id_
            _LOG.warning(
                "bodies are framed with schema id %d; decode names no ids, so 'schema' is taken "
                "for the schema of that id: set schemas={'%d': …} to read each body by its own",
                id_,
                id_,
            )
        if id_ != self._first:
            raise ValueError(
                f"it is framed with schema id {id_}, others with {self._first}, and 'schema' is "
                "the schema of one; set 'schemas' to those of each id"
            )


def _place_forms(place: tuple[int, ...]) -> tuple[bytes, ...]:
    """The indexes as registries write them: their number and each, zigzag; one zero for the first
    message of a file, which has a long form, too."""
    long_form = b"".join(_varint(2 * number) for number in (len(place), *place))
    return (b"\0", long_form) if place == (0,) else (long_form,)


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])

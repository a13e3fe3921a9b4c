"""Prefix before the data of a body: bytes to skip, or the frame of a schema registry.

The frame is a zero byte and the schema's id in four bytes, for Protobuf also the indexes of the
message in its file. This module does not depend on schemas.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Frames"]


class Frames:
    """Finder of the start of the data after `skip` bytes.

    Five bytes that begin with zero are the frame of a schema registry. Protobuf is read by field
    numbers, whatever the id; the frame names the message by its `place` (indexes) in its file, and
    only bodies with this place are read. Avro is read with the schema of the id, which `id_of`
    returns.
    """

    SIZE: ClassVar[int] = 5

    def __init__(self, skip: int, place: tuple[int, ...] | None = None) -> None:
        self._skip = skip
        self._places = None if place is None else _place_forms(place)

    @property
    def places(self) -> tuple[bytes, ...]:
        """Encoded places that a frame may name; none where bodies have no frame."""
        return self._places if self._places and self._skip == self.SIZE else ()

    def start(self, body: bytes) -> int:
        """Return the position of the data. Raises `ValueError` for a body that is too short, and
        for one of another schema."""
        if len(body) < self._skip:
            raise ValueError(f"it has {len(body)} bytes, {self._skip} are to be skipped")
        if self._places is None or self._skip != self.SIZE or body[0]:
            return self._skip
        return self._message_start(body, self._places)

    @classmethod
    def id_of(cls, body: bytes) -> int:
        """Return the schema id of the body's frame. Raises `ValueError` if it has none."""
        if len(body) < cls.SIZE or body[0]:
            raise ValueError("it does not begin with the frame of a schema registry")
        return int.from_bytes(body[1 : cls.SIZE], "big")

    def _message_start(self, body: bytes, places: tuple[bytes, ...]) -> int:
        """Return the position after the indexes of the message. No message begins with a byte below
        8, the tag of field 0, so frames without indexes are recognised, too."""
        for place in places:
            if body.startswith(place, self.SIZE):
                return self.SIZE + len(place)
        if len(body) > self.SIZE and body[self.SIZE] < 8:
            raise ValueError(
                "its frame names another message of the file: "
                f"{body[self.SIZE : self.SIZE + 8].hex(' ')}…, not {places[0].hex(' ')}"
            )
        return self.SIZE


def _place_forms(place: tuple[int, ...]) -> tuple[bytes, ...]:
    """Encode the indexes as registries write them: their count and each index, zigzag. The first
    message of a file is a single zero, but its long form is accepted, too."""
    long_form = b"".join(_varint(2 * number) for number in (len(place), *place))
    return (b"\0", long_form) if place == (0,) else (long_form,)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])

"""What comes before the data of a body: bytes to skip, or the frame of a schema registry.

The frame is a zero byte and the schema's id in four bytes, for Protobuf also the place of the
message in its file. This module must not know schemas.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Frames"]


class Frames:
    """Finds where data begin behind `skip` bytes.

    Five bytes that begin with zero are the frame of a schema registry. Protobuf is read by the
    numbers of its fields, whatever the id; the frame names the message by its `place` in its file,
    and only bodies of this place are read. Avro is read by the schema of the id, which `id_of`
    returns.
    """

    SIZE: ClassVar[int] = 5

    def __init__(self, skip: int, place: tuple[int, ...] | None = None) -> None:
        self._skip = skip
        self._places = None if place is None else _place_forms(place)

    def start(self, body: bytes) -> int:
        """Return where the data begin. Raises `ValueError` for a body that is too short, and for
        one of another schema."""
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

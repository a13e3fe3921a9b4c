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

    Five bytes that begin with zero are the frame of a schema registry. Without `schemas` only one
    schema is known, so the id of the first body is the only one that is read, and logged once.
    """

    SIZE: ClassVar[int] = 5

    def __init__(self, skip: int) -> None:
        self._skip = skip
        self._first: int | None = None

    def start(self, body: bytes) -> int:
        """Return where the data begin. Raises `ValueError` for a body that is too short, and for
        one of another schema."""
        if len(body) < self._skip:
            raise ValueError(f"it has {len(body)} bytes, {self._skip} are to be skipped")
        if self._skip == self.SIZE and body[0] == 0:
            self._check(self.id_of(body))
        return self._skip

    @classmethod
    def id_of(cls, body: bytes) -> int:
        """Return the schema id of the body's frame. Raises `ValueError` if it has none."""
        if len(body) < cls.SIZE or body[0]:
            raise ValueError("it does not begin with the frame of a schema registry")
        return int.from_bytes(body[1 : cls.SIZE], "big")

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

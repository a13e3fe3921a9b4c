"""Raw snappy blocks, without framing or checksum: the one compression of packed bodies.

pyarrow does the work. It allocates what it is told, so the size that a block claims is read and
judged here first: against the caller's limit, and against what so few bytes can expand to.
"""

from __future__ import annotations

from typing import Any, Final

from tubemq_client import errors

__all__ = ["claimed_size", "compress", "decompress", "require_codec"]

_LONGEST_COPY: Final = 64
"""Bytes that the densest element can produce …"""
_COPY_BYTES: Final = 3
"""… and the bytes that such an element takes."""
_SIZE_BYTES: Final = 5


def claimed_size(block: memoryview) -> int:
    """Decompressed bytes that `block` announces. Raises `ValueError` if it cannot hold them."""
    size = shift = 0
    for used, byte in enumerate(block[:_SIZE_BYTES], start=1):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            if size * _COPY_BYTES > (len(block) - used) * _LONGEST_COPY:
                raise ValueError(f"snappy block of {len(block)} bytes claims to hold {size} bytes")
            return size
        shift += 7
    raise ValueError("snappy block without a readable size")


def decompress(block: memoryview, size: int) -> bytes:
    """The `size` bytes (as `claimed_size` tells) in `block`. Raises `ValueError` if damaged.

    Raises `errors.MissingExtraError` without pyarrow.
    """
    codec = require_codec()
    try:
        plain: bytes = codec.decompress(block, size, asbytes=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"damaged snappy block: {error}") from error
    return plain


def compress(data: bytes) -> bytes:
    """`data` as one block. Raises `errors.MissingExtraError` without pyarrow."""
    block: bytes = require_codec().compress(data, asbytes=True)
    return block


def require_codec() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise errors.require_extra("arrow", error) from error
    return pyarrow.Codec("snappy")

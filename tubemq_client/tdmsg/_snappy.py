"""Raw snappy blocks, without framing or checksum: the only compression of packed bodies.

pyarrow does the work. It allocates the size it is given, so the size that a block claims is checked
here first: against the caller's limit, and against the largest expansion of its bytes.
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
    """Return the decompressed size that `block` claims. Raises `ValueError` if it cannot
    hold that."""
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
    """Decompress `block` to `size` bytes (see `claimed_size`). Raises `ValueError` if damaged.

    Raises `errors.MissingExtraError` without pyarrow.
    """
    codec = require_codec()
    try:
        plain: bytes = codec.decompress(block, size, asbytes=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"damaged snappy block: {error}") from error
    return plain


def compress(data: bytes) -> bytes:
    """Compress `data` to one block. Raises `errors.MissingExtraError` without pyarrow."""
    block: bytes = require_codec().compress(data, asbytes=True)
    return block


def require_codec() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise errors.require_extra("arrow", error) from error
    return pyarrow.Codec("snappy")

"""Bodies that a producer compressed: zlib, LZ4 frames, zstd. Brokers never touch them.

Bits 8 to 10 of a record's sysFlag name the method (upstream's `CompressionType.java`); 0 is zlib of
producers that know no other. LZ4 and zstd come with pyarrow, imported when first needed. The
unpacked size is bounded, so that a few bytes cannot fill the memory.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from rocketmq_client import errors

__all__ = [
    "COMPRESSED",
    "MAX_BODY_BYTES",
    "compress",
    "compression_flags",
    "decompress",
]

COMPRESSED: Final = 0x1
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest body that is unpacked. Brokers store at most 4 MiB of packed ones by default."""

_BITS: Final = {"lz4": 1 << 8, "zstd": 2 << 8, "zlib": 3 << 8}
_METHODS: Final = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


def compression_flags(method: str) -> int:
    """Return the sysFlag bits for a body compressed with `method`."""
    return COMPRESSED | _BITS[method]


def compress(body: bytes, method: str) -> bytes:
    """Return the packed body. Raises `errors.MissingExtraError` if LZ4 or zstd need pyarrow."""
    if method == "zlib":
        return zlib.compress(body, 5)
    pa = _pyarrow()
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, method) as stream:
        stream.write(body)
    return bytes(sink.getvalue())


def decompress(body: bytes, sys_flag: int, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the body as its producer had it; unchanged if it is not compressed.

    Raises `ValueError` for damaged or unknown content, or more than `limit` bytes.
    """
    if not sys_flag & COMPRESSED:
        return body
    method = _METHODS.get(sys_flag >> 8 & 7)
    if method is None:
        raise ValueError(f"unknown compression {sys_flag >> 8 & 7}")
    return _unzlib(body, limit) if method == "zlib" else _unpack(body, method, limit)


def _unzlib(body: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(body, limit)
    except zlib.error as error:
        raise ValueError(f"damaged zlib content: {error}") from error
    if not unpacker.eof:
        raise ValueError(f"zlib content is cut short, or unpacks to more than {limit} bytes")
    return unpacked


def _unpack(body: bytes, method: str, limit: int) -> bytes:
    pa = _pyarrow()
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), method) as stream:
            unpacked: bytes = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"damaged {method} content: {error}") from error
    if len(unpacked) > limit:
        raise ValueError(f"{method} content unpacks to more than {limit} bytes")
    return unpacked


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise errors.require_extra("arrow", error) from error
    return pyarrow

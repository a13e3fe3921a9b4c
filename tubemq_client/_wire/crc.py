"""CRC-32 of records: with the processor's own instructions if isal is installed, else by zlib.

Python's zlib takes as long over the checksum of a small record as the rest of decoding it takes.
Both return the same numbers; the extra `fast` installs isal.

Source: `docs/protocol/wire.md#record-bytes-payload` (`checkSum`).
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]

"""CRC-32, which every record carries: by the processor's own instructions where isal is installed.

Python's zlib takes as long over the checksum of a small record as the rest of decoding it takes.
Both give the same numbers; the extra `fast` brings the quick one.

Source: `docs/protocol/wire.md#record-bytes-payload` (`checkSum`).
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]

"""Compiled decoder, where it is installed and enabled; `docs/adr/0011` has the reason for it.

It is optional and returns the same values as the Python code, so no other package needs to know
which one runs. It decodes regular replies; irregular ones are left to Python and protobuf, which
know all policies and have the error texts. Its tests compare it with Python's decoder
(`tests/client/core/test_decoders.py`).

The environment decides: `TUBEMQ_NATIVE=0` turns it off, with `TUBEMQ_NATIVE=1` its absence is an
error.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from tubemq_client._native import Decoded, Reply

__all__ = ["announce", "decode", "describe", "enabled", "find", "payload_bytes", "scan"]

_log = logging.getLogger(__name__)
_scan: Callable[[Any], Reply | None] | None = None
_records: Any = type("NoRecords", (), {})
_absence = "TUBEMQ_NATIVE=0"

if os.environ.get("TUBEMQ_NATIVE") != "0":
    try:
        from tubemq_client import _native
    except ImportError as error:
        if os.environ.get("TUBEMQ_NATIVE") == "1":
            raise
        _absence = f"not installed here ({error})"
    else:
        _scan, _records = _native.scan, _native.Records


def enabled() -> bool:
    """Return whether this process uses the compiled decoder."""
    return _scan is not None


def describe() -> str:
    """Return a text that names the decoder in use."""
    return "compiled" if enabled() else f"pure Python, the compiled one is {_absence}"


@lru_cache(maxsize=1)
def announce() -> None:
    """Log once per process which decoder is used: a slow reader must be explainable."""
    _log.info("decoder of records: %s", describe())


def scan(data: bytes | memoryview) -> Reply | None:
    """Return the reply in `data` (`bytes`, or a view of such), with a protobuf message's names.

    None if it has no records, is irregular in any way, or there is no compiled decoder.
    """
    return None if _scan is None else _scan(data)


def decode(messages: Any, count: int, wanted: AbstractSet[str]) -> Decoded | None:
    """Return the first `count` of a scanned reply's records, without other stream ids.

    `wanted` has the stream ids (empty: all). None for other records, and if one is corrupt.
    """
    if not isinstance(messages, _records):
        return None
    decoded: Decoded | None = messages.decode(count, wanted)
    return decoded


def payload_bytes(messages: Any) -> int:
    """Return the bytes of all records' data, attribute prefixes included, of either decoder."""
    if isinstance(messages, _records):
        size: int = messages.nbytes
        return size
    return sum(len(record.payLoadData) for record in messages)


def find(messages: Any, message_id: int, checksum: int) -> int | None:
    """Return the position of the first record with these two numbers, of either decoder."""
    if isinstance(messages, _records):
        position: int | None = messages.find(message_id, checksum)
        return position
    for index, record in enumerate(messages):
        if record.messageId == message_id and record.checkSum == checksum:
            return index
    return None

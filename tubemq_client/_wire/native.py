"""The compiled decoder, where it is installed and wanted; `docs/adr/0011` says why there is one.

It is optional and gives what the Python code gives, so nothing outside this room needs to know
which is at work. It takes sound replies apart; whatever is odd about one it leaves to Python and
protobuf, which know all policies and have the words for errors. Its tests hold it against Python's
decoder, beside that one's (`tests/client/core/test_decoders.py`).

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
    """Whether the compiled decoder is at work in this process."""
    return _scan is not None


def describe() -> str:
    """Which decoder is at work, for people."""
    return "compiled" if enabled() else f"pure Python, the compiled one is {_absence}"


@lru_cache(maxsize=1)
def announce() -> None:
    """One line in a process's log: the difference in speed must not come as a riddle."""
    _log.info("records are decoded by the decoder: %s", describe())


def scan(data: bytes | memoryview) -> Reply | None:
    """The reply in `data` (`bytes`, or a view of such), with a protobuf message's names.

    None if it brings no records, is odd in any way, or there is no compiled decoder.
    """
    return None if _scan is None else _scan(data)


def decode(messages: Any, count: int, wanted: AbstractSet[str]) -> Decoded | None:
    """The first `count` of a scanned reply's records, all sound, without those of stream ids that
    are not `wanted` (empty: all are). None for other records and where one is not sound."""
    if not isinstance(messages, _records):
        return None
    decoded: Decoded | None = messages.decode(count, wanted)
    return decoded


def payload_bytes(messages: Any) -> int:
    """Bytes of all records' data, attribute prefixes included, in whatever holds records."""
    if isinstance(messages, _records):
        size: int = messages.nbytes
        return size
    return sum(len(record.payLoadData) for record in messages)


def find(messages: Any, message_id: int, checksum: int) -> int | None:
    """Position of the first record with these two numbers, in whatever holds records."""
    if isinstance(messages, _records):
        position: int | None = messages.find(message_id, checksum)
        return position
    for index, record in enumerate(messages):
        if record.messageId == message_id and record.checkSum == checksum:
            return index
    return None

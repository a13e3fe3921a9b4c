"""Record data: optional attributes, then the body; and the numbers derived from them.

With flag bit 0 set the bytes are ``int32 length, attribute text, body``, else the body alone. The
attribute text is ``k=v,k=v`` in UTF-8 without any escaping; two reserved keys carry the stream id
(which filters match) and the producer's minute. Flag and prefix are derived from one condition
here: a flag without its prefix makes consumers misread the record.

Pure functions; the readers of records decide what happens to a wrong checksum or prefix.

Source: `docs/protocol/wire.md#record-bytes-payload`.
"""

from __future__ import annotations

import struct
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tubemq_client._wire.crc import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FLAG_ATTRIBUTES",
    "MSG_TIME_KEY",
    "STREAM_ID_KEY",
    "ParsedAttributes",
    "checksum",
    "encode_payload",
    "java_hash",
    "parse_attributes",
    "split_payload",
]

FLAG_ATTRIBUTES: Final = 1
"""Flag bit 0: an attribute prefix is present. The other bits are reserved and ignored."""

STREAM_ID_KEY: Final = "$msgType$"
MSG_TIME_KEY: Final = "$msgTime$"

_RESERVED: Final = (",", "=", STREAM_ID_KEY, MSG_TIME_KEY)
_LENGTH = struct.Struct(">i")
_MSG_TIME_DIGITS: Final = 12


class ParsedAttributes(NamedTuple):
    """Attributes of a record: the user's keys, and the two system items or None."""

    attributes: dict[str, str]
    stream_id: str | None
    msg_time: str | None


def encode_payload(
    body: bytes,
    attributes: Mapping[str, str] | None = None,
    *,
    stream_id: str | None = None,
    msg_time: str | None = None,
) -> tuple[bytes, int]:
    """Return the `data` bytes and `flag` of a record.

    `msg_time` is ``yyyyMMddHHmm`` (12 digits, a valid minute). Keys, values and the stream id must
    not be blank nor contain ``,``, ``=`` or a reserved key. Raises `ValueError` that names every
    problem at once.
    """
    if not (attributes or stream_id is not None or msg_time is not None):
        return body, 0
    pairs = dict(attributes or {})
    problems = [
        problem
        for key, value in pairs.items()
        for problem in (_problem("attribute key", key), _problem(f"value of {key!r}", value))
    ]
    system: dict[str, str] = {}
    if stream_id is not None:
        problems.append(_problem("stream_id", stream_id))
        system[STREAM_ID_KEY] = stream_id
    if msg_time is not None:
        problems.append(_msg_time_problem(msg_time))
        system[MSG_TIME_KEY] = msg_time
    reasons = [problem for problem in problems if problem]
    if reasons:
        raise ValueError("; ".join(reasons))
    # Servers and other clients expect the system keys first, the stream id before the time.
    raw = ",".join(f"{key}={value}" for key, value in (system | pairs).items()).encode()
    return b"".join((_LENGTH.pack(len(raw)), raw, body)), FLAG_ATTRIBUTES


def _problem(what: str, text: str) -> str | None:
    if not isinstance(text, str):
        return f"{what} is {text!r}, of type {type(text).__name__}, not text"
    if not text.strip():
        return f"{what} is blank"
    forbidden = [token for token in _RESERVED if token in text]
    if forbidden:
        return f"{what} {text!r} contains {' and '.join(map(repr, forbidden))}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{what} {text!r} is not valid Unicode"
    return None


def _msg_time_problem(text: str) -> str | None:
    if not isinstance(text, str):
        return f"msg_time is {text!r}, of type {type(text).__name__}, not text yyyyMMddHHmm"
    if len(text) != _MSG_TIME_DIGITS or not (text.isascii() and text.isdecimal()):
        return f"msg_time {text!r} is not 12 digits yyyyMMddHHmm"
    try:
        # Only the calendar is checked; the zone is the producer's own and not carried.
        datetime(int(text[:4]), int(text[4:6]), int(text[6:8]), int(text[8:10]), int(text[10:]))  # noqa: DTZ001
    except ValueError as error:
        return f"msg_time {text!r} is no date: {error}"
    return None


def split_payload(data: bytes, flag: int) -> tuple[bytes | None, bytes]:
    """Return attribute bytes (None if the record has none) and body.

    Raises `ValueError` when the flag promises a prefix that the data cannot hold.
    """
    if not flag & FLAG_ATTRIBUTES:
        return None, data
    if len(data) < _LENGTH.size:
        raise ValueError(f"record of {len(data)} bytes is too short for its attribute prefix")
    (size,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + size
    if size < 0 or start > len(data):
        raise ValueError(f"record of {len(data)} bytes announces {size} bytes of attributes")
    return (data[_LENGTH.size : start] or None), data[start:]


def parse_attributes(raw: bytes) -> ParsedAttributes:
    """Parse the attributes in `raw`; never fails, as other producers may write any bytes.

    Bytes that are not UTF-8 become U+FFFD, an item without ``=`` gets the value ``""``, and of a
    repeated key the last value counts. A system item is one that *contains* the reserved key and
    its value ends at the next ``=``, as upstream reads it.
    """
    attributes: dict[str, str] = {}
    stream_id = msg_time = None
    for item in raw.decode("utf-8", "replace").split(","):
        key, _, value = item.partition("=")
        if STREAM_ID_KEY in item:
            stream_id = stream_id or value.partition("=")[0] or None
        elif MSG_TIME_KEY in item:
            msg_time = msg_time or value.partition("=")[0] or None
        elif key.strip():
            attributes[key] = value
    return ParsedAttributes(attributes, stream_id, msg_time)


def checksum(data: bytes) -> int:
    """Return the CRC-32 of a record's complete `data`, top bit cleared: a non-negative int32."""
    return crc32(data) & 0x7FFFFFFF


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`, by which a broker compares filter items and stream ids.

    Different texts may share a hash, so a match must be checked again by text.
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value

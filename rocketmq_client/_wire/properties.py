"""A record's properties: text pairs, some with reserved names.

``key 0x01 value 0x02``, repeated; 4.x omits the last separator (upstream's `MessageDecoder.java`).
Reading never fails: a part that is not a pair is left out, as Java clients do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_client import errors
from rocketmq_client.message import KEYS, TAGS, UNIQ_KEY, decode_properties

__all__ = [
    "CLUSTER",
    "CORRELATION_ID",
    "DELAY",
    "KEYS",
    "MESSAGE_TYPE",
    "ORIGIN_MESSAGE_ID",
    "REPLY_TO_CLIENT",
    "RETRY_TOPIC",
    "TAGS",
    "TTL",
    "UNIQ_KEY",
    "WAIT",
    "decode_properties",
    "encode_properties",
    "find_property",
    "tag_hash",
]

DELAY: Final = "DELAY"
WAIT: Final = "WAIT"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
CLUSTER: Final = "CLUSTER"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
MESSAGE_TYPE: Final = "MSG_TYPE"
TTL: Final = "TTL"

_NAME_END, _VALUE_END = "\x01", "\x02"


def encode_properties(properties: Mapping[str, str]) -> str:
    """Return the text for a send. Raises `errors.ConfigError` for names and values with
    separators."""
    for name, value in properties.items():
        if {_NAME_END, _VALUE_END} & set(name + value):
            raise errors.ConfigError(
                f"property {name!r} holds a separator (0x01 or 0x02)", subject="record"
            )
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def find_property(raw: bytes, name: bytes) -> bytes | None:
    """Return one value without parsing the others; the hot path of a filter."""
    lead = name + b"\x01"
    if raw.startswith(lead):
        start = len(lead)
    else:
        at = raw.find(b"\x02" + lead)
        if at < 0:
            return None
        start = at + 1 + len(lead)
    stop = raw.find(b"\x02", start)
    return raw[start:] if stop < 0 else raw[start:stop]


def tag_hash(tag: str) -> int:
    """Return a tag's hash in brokers' indexes: Java's `String.hashCode`, over UTF-16 units."""
    value = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value

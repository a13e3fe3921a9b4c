"""A record's properties: text pairs, and the ones that everybody knows.

``key 0x01 value 0x02``, repeated; 4.x leaves the last separator away (upstream's
`MessageDecoder.java`). Reading never fails: what is no pair is left out, as Java clients do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_client import errors

__all__ = [
    "DELAY",
    "KEYS",
    "TAGS",
    "UNIQ_KEY",
    "WAIT",
    "decode_properties",
    "encode_properties",
    "find_property",
    "tag_hash",
]

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
WAIT: Final = "WAIT"

_NAME_END, _VALUE_END = "\x01", "\x02"


def encode_properties(properties: Mapping[str, str]) -> str:
    """The text for a send. Raises `errors.ConfigError` for names and values with separators."""
    for name, value in properties.items():
        if {_NAME_END, _VALUE_END} & set(name + value):
            raise errors.ConfigError(
                f"property {name!r} holds a separator (0x01 or 0x02)", subject="record"
            )
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def decode_properties(raw: bytes) -> dict[str, str]:
    """The pairs; bytes that are no UTF-8 are kept as replacement characters. Of a name that comes
    twice the first counts: 4.x brokers append a batch's own properties to those of its records."""
    found: dict[str, str] = {}
    for item in raw.decode("utf-8", "replace").split(_VALUE_END):
        name, separator, value = item.partition(_NAME_END)
        if separator:
            found.setdefault(name, value)
    return found


def find_property(raw: bytes, name: bytes) -> bytes | None:
    """One value without reading the others; the hot path of a filter."""
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
    """What brokers' indexes hold of a tag: Java's `String.hashCode`, over UTF-16 units."""
    value = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value

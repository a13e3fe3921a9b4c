"""Queue, and stored record as users get it, with properties that are decoded when asked for.

Made by the million, so a message is a tuple whose text is left as stored; most listeners read the
body and one or two properties, or none. No I/O. `model` publishes both; `_wire.records` makes
messages.

Source: `docs/rocketmq-protocol/records.md`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from tubemq_client.model import Address

__all__ = [
    "KEYS",
    "TAGS",
    "UNIQ_KEY",
    "Message",
    "Queue",
    "decode_properties",
    "host_bytes",
    "offset_id",
]

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"

_PORT = struct.Struct(">i")
_64_BITS: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """Message queue of a topic on one broker; RocketMQ's partition.

    Documents, options and columns use `key` (``"<broker name>:<queue id>"``); they carry the topic
    separately.
    """

    broker: str
    topic: str
    queue_id: int

    @property
    def key(self) -> str:
        """``"<broker name>:<queue id>"``, unique within a topic."""
        return f"{self.broker}:{self.queue_id}"

    @classmethod
    def from_key(cls, topic: str, key: str) -> Queue:
        """Return the queue of ``"broker-a:3"``; the last colon separates. Raises `ValueError`."""
        broker, _, number = key.rpartition(":")
        if not (broker and number.isascii() and number.isdecimal()):
            raise ValueError(f"queue key {key!r} is not '<broker name>:<queue id>'")
        return cls(broker, topic, int(number))

    def __str__(self) -> str:
        return f"{self.topic}@{self.key}"


class _StoredFields(NamedTuple):
    queue: Queue
    offset: int
    body: bytes
    property_bytes: bytes
    store_ms: int
    born_ms: int
    store_host: Address
    born_host: Address
    reconsume_times: int
    flag: int
    sys_flag: int
    physical_offset: int
    prepared_offset: int


class Message(_StoredFields):
    """One stored record with its unpacked body.

    Times are milliseconds since the epoch: `born_ms` the producer's clock, `store_ms` the broker's.
    `property_bytes` has the properties as stored; they are decoded when one is first asked for.
    """

    @cached_property
    def properties(self) -> dict[str, str]:
        """All properties by name, also tags, keys and the unique id."""
        return decode_properties(self.property_bytes)

    @property
    def tags(self) -> str | None:
        """Tag of the record, None without one."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys by which brokers find the record."""
        return tuple(filter(None, self.properties.get(KEYS, "").split(" ")))

    @property
    def message_id(self) -> str | None:
        """Unique id of the producer, None if it sent none."""
        return self.properties.get(UNIQ_KEY)

    @property
    def offset_id(self) -> str:
        """Id of the broker: its host, and the record's place in its log."""
        return offset_id(self.store_host, self.physical_offset)

    def __repr__(self) -> str:
        shown: dict[str, Any] = self._asdict()
        shown["property_bytes"] = self.properties
        fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"Message({fields.replace('property_bytes=', 'properties=', 1)})"


def decode_properties(raw: bytes) -> dict[str, str]:
    """Return the pairs of a record's properties, ``key 0x01 value 0x02`` repeated. Parts that are
    no pair are left out, and invalid UTF-8 becomes replacement characters. The first value of a
    repeated name counts: 4.x brokers append a batch's properties to those of its records."""
    properties: dict[str, str] = {}
    for item in raw.decode("utf-8", "replace").split("\x02"):
        name, separator, value = item.partition("\x01")
        if separator:
            properties.setdefault(name, value)
    return properties


def offset_id(store_host: Address, physical_offset: int) -> str:
    """Return the broker's message id: store host and physical offset, upper-case hex."""
    return f"{_host_hex(store_host)}{physical_offset & _64_BITS:016X}"


def host_bytes(host: Address) -> bytes:
    """Return the bytes of an address and a port of 4 bytes."""
    return ip_address(host[0]).packed + _PORT.pack(host[1])


@lru_cache(maxsize=1024)
def _host_hex(host: Address) -> str:
    return host_bytes(host).hex().upper()

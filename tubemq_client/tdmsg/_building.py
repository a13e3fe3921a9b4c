"""Builds messages of versions 0 to 3; helpers of both builders.

The output is readable by the published Java class: attributes in modified UTF-8, one block per
attribute string, no empty record where that class loses those. A refused record leaves the builder
unchanged. The size is known exactly before compression, and compression never makes it larger.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tubemq_client import errors
from tubemq_client.tdmsg import _snappy
from tubemq_client.tdmsg._attributes import encode_modified, encode_plain, format_attributes
from tubemq_client.tdmsg._values import DEFAULT_MAX_BYTES

__all__ = ["INT32", "LONGEST_MESSAGE", "TDMsgBuilder", "check_options", "sized", "smaller"]

INT32: Final = struct.Struct(">i")
LONGEST_MESSAGE: Final = 0x7FFF_FFFF
"""Limit of lengths, which are signed 32 bit."""

_INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")
_LONGEST_ATTRIBUTES: Final = 0xFFFF
_RAW, _SNAPPY = b"\x00", b"\x01"
_ENVELOPE_BYTES: Final = 2 + INT32.size + 2
"""Magic, block count, magic."""


def sized(data: bytes) -> bytes:
    """Return `data` with its length in front."""
    return INT32.pack(len(data)) + data


def smaller(plain: bytes, *, compress: bool) -> bytes | None:
    """Return `plain` as a snappy block if `compress` and it is shorter, else None."""
    block = _snappy.compress(plain) if compress else plain
    return block if len(block) < len(plain) else None


def check_options(problems: list[str], *, compress: bool, max_bytes: int, least: int) -> None:
    """Raise `errors.ConfigError` with all problems, `MissingExtraError` if snappy is missing.

    `least` are the bytes of a message without records.
    """
    if not least <= max_bytes <= LONGEST_MESSAGE:
        problems.append(f"max_bytes {max_bytes} is not between {least} and {LONGEST_MESSAGE}")
    if problems:
        raise errors.ConfigError(problems, subject="TDMsg builder")
    if compress:
        _snappy.require_codec()


@dataclass(slots=True)
class _Block:
    """Records with one attribute string, in their form in the payload."""

    payload: bytearray = field(default_factory=bytearray)
    count: int = 0


class TDMsgBuilder:
    """Collects records into one message of `version` 0, 1, 2 or 3 (proxies write 1 and 3).

    Records are grouped by attribute string in order of first use; a reader gets that order, not the
    order of adding. `compress` (needs pyarrow) uses snappy for each group that it makes smaller.
    `max_bytes` bounds the message before compression. Not thread-safe.
    """

    def __init__(
        self, version: int = 1, *, compress: bool = True, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        problems = []
        if version == 4:
            problems.append("version 4 wraps a packet: build it with TDMsgPacketBuilder")
        elif version not in {0, 1, 2, 3}:
            problems.append(f"version {version} is not 0, 1, 2 or 3")
        self._version = version
        self._compress = compress
        self._max_bytes = max_bytes
        self.reset()
        check_options(problems, compress=compress, max_bytes=max_bytes, least=self._size)

    def reset(self) -> None:
        """Drop all records; the options stay."""
        self._blocks: dict[bytes, _Block] = {}
        self._size = _ENVELOPE_BYTES
        self._size += _INT64.size * (self._version >= 1) + INT32.size * (self._version >= 2)

    def __len__(self) -> int:
        return sum(block.count for block in self._blocks.values())

    @property
    def size_bytes(self) -> int:
        """Exact bytes of the message without compression; with it, an upper bound."""
        return self._size

    def fits(
        self,
        attributes: str | Mapping[str, str],
        body: bytes,
        *,
        record_attributes: str | Mapping[str, str] | None = None,
    ) -> bool:
        """Return True if `add` stays within `max_bytes`. Raises `ValueError` for invalid
        records."""
        _, growth, _ = self._prepare(attributes, body, record_attributes)
        return self._size + growth <= self._max_bytes

    def add(
        self,
        attributes: str | Mapping[str, str],
        body: bytes,
        *,
        record_attributes: str | Mapping[str, str] | None = None,
    ) -> None:
        """Add a record with `attributes`, a text used as it is or pairs to be joined.

        Version 3 groups by `attributes` and needs `record_attributes` (those of this record alone)
        and a body, both not empty; the other versions take no `record_attributes`.

        Raises `ValueError`, and adds nothing, if the record does not fit or could not be read back.
        """
        key, growth, record = self._prepare(attributes, body, record_attributes)
        if self._size + growth > self._max_bytes:
            raise ValueError(
                f"message of {self._size} bytes has no room for {growth} more: "
                f"{self._max_bytes} are allowed"
            )
        block = self._blocks.setdefault(key, _Block())
        block.payload += record
        block.count += 1
        self._size += growth

    def _prepare(
        self,
        attributes: str | Mapping[str, str],
        body: bytes,
        record_attributes: str | Mapping[str, str] | None,
    ) -> tuple[bytes, int, bytes]:
        """Return the record's block key, the growth of the message in bytes, and the record's
        bytes."""
        key = encode_modified(_text(attributes))
        if len(key) > _LONGEST_ATTRIBUTES:
            raise ValueError(
                f"attributes of {len(key)} bytes; the format holds {_LONGEST_ATTRIBUTES}"
            )
        record = sized(body)
        if self._version == 3:
            own = encode_plain(_text(record_attributes or ""))
            if not body or not own:
                raise ValueError("version 3 loses records without body or own attributes")
            record += sized(own)
        elif record_attributes is not None:
            raise ValueError(f"version {self._version} has no attributes for single records")
        growth = len(record) + (0 if key in self._blocks else self._block_bytes(key))
        return key, growth, record

    def _block_bytes(self, key: bytes) -> int:
        """Return the size of a block without its records: lengths, attributes, count, flag."""
        counted = INT32.size * (self._version in {2, 3})
        return _UINT16.size + len(key) + counted + INT32.size + len(_RAW)

    def build(self, create_time_ms: int | None = None) -> bytes:
        """Return the message, packed at `create_time_ms` since the epoch (not in version 0).

        The builder keeps its records; see `reset`.
        """
        version = self._version
        if (create_time_ms is None) != (version == 0):
            raise ValueError(f"version {version}: create_time_ms is {create_time_ms}")
        magic = bytes((0x0F, version))
        parts = [magic]
        if create_time_ms is not None:
            if not -(1 << 63) <= create_time_ms < 1 << 63:
                raise ValueError(f"create_time_ms {create_time_ms} is no signed 64-bit number")
            parts.append(_INT64.pack(create_time_ms))
        if version >= 2:
            parts.append(INT32.pack(len(self)))
        parts.append(INT32.pack(len(self._blocks)))
        parts += (self._packed(key, block) for key, block in self._blocks.items())
        return b"".join((*parts, magic))

    def _packed(self, key: bytes, block: _Block) -> bytes:
        payload = bytes(block.payload)
        if self._version == 3:
            # One run for all records: the C++ parser would read a second one as a record.
            payload = sized(payload)
        shorter = smaller(payload, compress=self._compress)
        stored = _RAW + payload if shorter is None else _SNAPPY + shorter
        count = INT32.pack(block.count) if self._version == 2 else b""
        return b"".join((_UINT16.pack(len(key)), key, count, sized(stored)))


def _text(attributes: str | Mapping[str, str]) -> str:
    return attributes if isinstance(attributes, str) else format_attributes(attributes)

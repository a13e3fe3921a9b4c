"""Columns from the attribute texts of many records at once.

Texts of real producers differ from record to record (a time, an id), but have the same keys in the
same order. So the positions of stream id, time and the user's items are computed once per sequence
of keys, and a record costs a few operations that Python does in C. An irregular text is read by
`parse_attributes`, which is the reference.

The cache between batches is bounded in bytes, because producers choose the texts.

Source: `docs/protocol/wire.md#record-bytes-payload`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tubemq_client._wire.payload import (
    MSG_TIME_KEY,
    STREAM_ID_KEY,
    ParsedAttributes,
    parse_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NO_ATTRIBUTES", "AttributeCache", "AttributeColumns"]

NO_ATTRIBUTES: Final = ParsedAttributes({}, None, None)

_CACHED_TEXT: Final = 512
"""Longest attribute text, in bytes, that is cached: longer ones rarely repeat."""

_CACHE_BYTES: Final = 8 << 20
_ENTRY_BYTES, _ITEM_BYTES = 600, 150
"""Approximate memory of a parsed text besides its characters, and of each of its items."""

_SHAPES, _KEYS = 256, 64
"""Upper bounds of cached sequences of keys, and of the length of one."""

_OTHER: Final = bytes(byte for byte in range(256) if byte not in b"=,")
_REGULAR: Final = frozenset(b",".join([b"="] * count) for count in range(1, _KEYS + 1))
"""Remainder of a regular text after removing all other bytes."""

_SYSTEM: Final = "$msgT"
"""Prefix of both reserved keys."""


class AttributeCache:
    """Parsed attribute strings by their bytes, of about 8 MiB at most; then it is emptied.

    Producers choose number and length of the texts: the cache is limited in bytes of memory, and
    long texts are parsed on each access.
    """

    def __init__(self) -> None:
        self._parsed: dict[bytes, ParsedAttributes] = {}
        self._bytes = 0
        self.shapes: dict[tuple[str, ...], _Shape | None] = {}
        self.made: dict[str, tuple[tuple[bytes | None, ...], Any]] = {}
        """By column, the few texts of the last Arrow array, and that array."""

    def __getitem__(self, raw: bytes | None) -> ParsedAttributes:
        if raw is None:
            return NO_ATTRIBUTES
        parsed = self._parsed.get(raw)
        return self._parse(raw) if parsed is None else parsed

    def _parse(self, raw: bytes) -> ParsedAttributes:
        parsed = parse_attributes(raw)
        if len(raw) <= _CACHED_TEXT:
            self._bytes += _ENTRY_BYTES + 3 * len(raw) + _ITEM_BYTES * len(parsed.attributes)
            if self._bytes > _CACHE_BYTES:
                self._parsed.clear()
                self._bytes = 0
            else:
                self._parsed[raw] = parsed
        return parsed


class _Shape(NamedTuple):
    """Positions of the items of a sequence of keys.

    Positions of the system items (-1: none), the user's items as a slice with their keys, and the
    number of occurrences of `_SYSTEM` in the keys.
    """

    stream_id: int
    msg_time: int
    first: int
    last: int
    keys: tuple[str, ...]
    system: int


def _shape(keys: tuple[str, ...]) -> _Shape | None:
    """Return the shape of a sequence of keys.

    None where only `parse_attributes` is correct: repeated, blank or interleaved keys.
    """
    streams = [at for at, key in enumerate(keys) if STREAM_ID_KEY in key]
    times = [at for at, key in enumerate(keys) if MSG_TIME_KEY in key and at not in streams]
    own = [at for at in range(len(keys)) if at not in streams and at not in times]
    first, last = (own[0], own[-1] + 1) if own else (0, 0)
    own_keys = keys[first:last]
    if (
        len(streams) > 1
        or len(times) > 1
        or len(own) != len(own_keys)
        or len(set(own_keys)) != len(own_keys)
        or not all(key.strip() for key in own_keys)
    ):
        return None
    return _Shape(
        streams[0] if streams else -1,
        times[0] if times else -1,
        first,
        last,
        own_keys,
        sum(key.count(_SYSTEM) for key in keys),
    )


@dataclass(slots=True)
class AttributeColumns:
    """Columns over attribute texts, one row each.

    `ends` has one number more than there are rows: the bounds of each row's items in `keys` and
    `values`.
    """

    stream_ids: list[str | None] = field(default_factory=list)
    msg_times: list[str | None] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])

    def fill(self, texts: Iterable[bytes | None], cache: AttributeCache) -> None:
        """Add a row for each of `texts`, parsed with the help of `cache`."""
        add_stream, add_time = self.stream_ids.append, self.msg_times.append
        add_keys, add_values = self.keys.extend, self.values.extend
        add_end, keys, shapes = self.ends.append, self.keys, cache.shapes
        for raw in texts:
            # A regular text has items with one "=" each: it may be split at both signs.
            if raw is not None and raw.translate(None, _OTHER) in _REGULAR:
                text = raw.decode("utf-8", "replace")
                parts = text.replace("=", ",").split(",")
                values, names = parts[1::2], tuple(parts[::2])
                try:
                    shape = shapes[names]
                except KeyError:
                    shape = _learn(shapes, names, len(raw))
                if shape is not None and text.count(_SYSTEM) == shape.system:
                    add_stream((values[shape.stream_id] or None) if shape.stream_id >= 0 else None)
                    add_time((values[shape.msg_time] or None) if shape.msg_time >= 0 else None)
                    add_keys(shape.keys)
                    add_values(values[shape.first : shape.last])
                    add_end(len(keys))
                    continue
            self._add(cache[raw])

    def _add(self, parsed: ParsedAttributes) -> None:
        self.stream_ids.append(parsed.stream_id)
        self.msg_times.append(parsed.msg_time)
        self.keys += parsed.attributes
        self.values += parsed.attributes.values()
        self.ends.append(len(self.keys))


def _learn(
    shapes: dict[tuple[str, ...], _Shape | None], names: tuple[str, ...], size: int
) -> _Shape | None:
    if size > _CACHED_TEXT:
        return None
    if len(shapes) >= _SHAPES:
        shapes.clear()
    shape = shapes[names] = _shape(names)
    return shape

"""Anchors in documents: for each partition of a position, the record that identifies its log.

Offsets alone cannot tell a log from its replacement: a recreated topic counts from zero again. So a
document with a position also has the last record before it. Documents of earlier releases have
none and are still valid. Ids are stored as text, since not every JSON reader keeps 64 bits. Pure
values; this module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tubemq_client.model import Anchor
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["Anchors", "anchors_document", "read_anchors"]

Anchors = Mapping[str, Anchor]
"""Anchors by partition key."""


def anchors_document(anchors: Anchors) -> dict[str, list[Any]]:
    """Return ``{"1:0": [2772, "<message id>/<checksum>"]}``: offset and identity of the record."""
    return {
        key: [anchor.offset, f"{anchor.message_id}/{anchor.checksum}"]
        for key, anchor in anchors.items()
    }


def read_anchors(value: object, space: OffsetSpace) -> dict[str, Anchor]:
    """Return the anchors in a document. Raises `ValueError` or `TypeError` if it has others."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return {str(key): _anchor(pair, space) for key, pair in value.items()}


def _anchor(value: object, space: OffsetSpace) -> Anchor:
    if not isinstance(value, list) or len(value) != 2:
        raise TypeError(f"{value!r} is not [offset, record]")
    offset, record = value
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ValueError(f"offset {offset!r} is not an integer >= 0")
    if offset % space.step or not isinstance(record, str):
        raise ValueError(f"{value!r} is not an offset and a record")
    message_id, _, checksum = record.partition("/")
    return Anchor(offset, int(message_id), int(checksum))

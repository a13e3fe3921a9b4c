"""Anchors in documents: by which record a log is known again, for each partition of a position.

A position alone cannot tell a log from one that took its place: a topic made anew counts its
offsets from zero again. So documents that carry a position carry the last record before it as
well. Documents of earlier releases have none; they are read all the same. Ids are kept as text, as
64 bits do not survive every JSON reader. Pure values; this module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tubemq_client.model import Anchor
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["Anchors", "anchors_document", "read_anchors"]

Anchors = Mapping[str, Anchor]
"""By partition key."""


def anchors_document(anchors: Anchors) -> dict[str, list[Any]]:
    """``{"1:0": [2772, "<message id>/<checksum>"]}``: the offset to read from, and the record."""
    return {
        key: [found.offset, f"{found.message_id}/{found.checksum}"]
        for key, found in anchors.items()
    }


def read_anchors(value: object, space: OffsetSpace) -> dict[str, Anchor]:
    """The anchors in a document. Raises `ValueError` or `TypeError` for what is none."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return {str(key): _anchor(found, space) for key, found in value.items()}


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

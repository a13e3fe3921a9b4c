"""Keys ``p0``, ``p1`` …; each partition is a separate log, and offsets count lines."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tubemq_provider.windows.spaces import OffsetSpace


class Lines(NamedTuple):
    """A partition."""

    topic: str
    key: str


class LineRange(NamedTuple):
    """Lines `[start, end)` of a partition."""

    partition: Lines
    start: int
    end: int

    @property
    def entries(self) -> int:
        """Number of records."""
        return self.end - self.start


def _is_key(key: Any) -> bool:
    return isinstance(key, str) and re.fullmatch(r"p[0-9]+", key) is not None


def _partition(topic: str, key: str) -> Lines:
    if not _is_key(key):
        raise ValueError(f"{key!r} is not 'p<number>'")
    return Lines(topic, key)


SPACE = OffsetSpace(
    source="text_lines",
    key_form="'p<number>'",
    step=1,
    is_key=_is_key,
    order=lambda key: (int(key[1:]) if _is_key(key) else -1,),
    log_of=str,
    partition=_partition,
    range=LineRange,
    peer_of=str,
)

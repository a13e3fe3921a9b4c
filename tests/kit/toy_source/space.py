"""Keys such as ``north.0``; each partition has a separate log, and offsets count records."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["SPACE", "LineRange", "Lines"]

_KEY = re.compile(r"([a-z]+)\.(\d+)")


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
        """Return the number of records."""
        return self.end - self.start


def _order(name: str) -> tuple[str, int]:
    found = _KEY.fullmatch(name)
    return (found[1], int(found[2])) if found else ("", -1)


def _partition(topic: str, key: str) -> Lines:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not '<place>.<number>'")
    return Lines(topic, key)


def _is_key(key: Any) -> bool:
    return isinstance(key, str) and bool(_KEY.fullmatch(key))


SPACE = OffsetSpace(
    source="lines",
    key_form="'<place>.<number>'",
    step=1,
    is_key=_is_key,
    order=_order,
    log_of=str,
    partition=_partition,
    range=LineRange,
    peer_of=lambda name: name.partition(".")[0],
)

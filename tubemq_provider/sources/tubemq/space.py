"""Offsets and partition keys of TubeMQ.

An offset is a byte position in the index of a *store*, 28 bytes an entry, and all partitions of a
store share it (docs/protocol/offsets.md). A key is ``"<broker id>:<partition id>"``. Imported by
tasks on executors: this module must stay as light as the client's model.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tubemq_client.model import INDEX_ENTRY_BYTES, OffsetRange, Partition
from tubemq_provider.windows.spaces import FIRST_SOURCE, OffsetSpace

__all__ = ["SPACE"]


_REMEMBERED: Final = 1 << 16
"""Keys whose order is cached: a window needs the order of each partition some twenty times."""


@lru_cache(_REMEMBERED)
def _order(name: str) -> tuple[int, int]:
    """Return the numeric sort key of keys and names of logs; invalid ones come first."""
    if not Partition.is_key(name.replace("/", ":")):
        return -1, -1
    broker, partition = re.split("[:/]", name)
    return int(broker), int(partition)


@lru_cache(_REMEMBERED)
def _log_of(key: str) -> str:
    broker_id, store_id = Partition.from_key("", key).store_key
    return f"{broker_id}/{store_id}"


SPACE: Final = OffsetSpace(
    source=FIRST_SOURCE,
    key_form="'<broker id>:<partition id>'",
    step=INDEX_ENTRY_BYTES,
    is_key=Partition.is_key,
    order=_order,
    log_of=_log_of,
    partition=Partition.from_key,
    range=OffsetRange,
    peer_of=lambda name: re.split("[:/]", name)[0],
    resolvers=("history", "message_time"),
)
"""Meaning of TubeMQ's offsets and keys."""

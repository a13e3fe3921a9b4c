"""Offsets and partition keys of Kafka.

An offset is the number of an entry in its partition's log. Not every offset has a record: markers
of transactions, records of aborted transactions and what compaction removed leave holes, which are
no losses. A key is the partition's number, ``"0"``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["SPACE", "KafkaPartition", "KafkaRange"]

_KEY: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class KafkaPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    @property
    def key(self) -> str:
        """Its key in plans and in the column ``partition``."""
        return str(self.number)


class KafkaRange(NamedTuple):
    """Offsets `[start, end)` of a partition."""

    partition: KafkaPartition
    start: int
    end: int

    @property
    def entries(self) -> int:
        """Number of offsets: an upper bound on records."""
        return self.end - self.start


def _is_key(key: object) -> bool:
    return isinstance(key, str) and _KEY.fullmatch(key) is not None


def _partition(topic: str, key: str) -> KafkaPartition:
    if not _is_key(key):
        raise ValueError(f"{key!r} is not '<partition number>'")
    return KafkaPartition(topic, int(key))


def _name_problem(kind: str, name: str) -> str | None:
    if kind == "filter":
        return f"{name!r}: Kafka has no filters; every record of the topic is read"
    if kind == "topic" and (not _TOPIC.fullmatch(name) or name in (".", "..")):
        return f"{name!r} is no topic name: it must match {_TOPIC.pattern}"
    return None if name.strip() else f"a {kind} name may not be blank"


SPACE: Final = OffsetSpace(
    source="kafka",
    key_form="'<partition number>'",
    step=1,
    is_key=_is_key,
    order=lambda key: int(key) if _is_key(key) else -1,
    log_of=str,
    partition=_partition,
    range=KafkaRange,
    resolvers=("offsets_for_times",),
    name_problem=_name_problem,
)
"""Meaning of Kafka's offsets and keys."""

"""Offsets and partition keys of RocketMQ.

An offset is the number of a record in its queue, from 0 and without holes, and every queue is a
separate log (docs/rocketmq-protocol/exact-ranges.md). A key is ``"<broker name>:<queue id>"``; the
last colon separates. Imported by tasks on executors: this module must stay as light as the client's
model.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rocketmq_client.model import Queue, QueueRange
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["SPACE"]


_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_LONGEST: Final = {"topic": 127, "group": 255 - len("_reader")}
"""Limits of brokers, less the suffix of `reading.reader_group`."""


def _name_problem(kind: str, name: str) -> str | None:
    """Return the problem of a name, by the rules of brokers.

    A tag may be any text that is one tag, as it was sent: all records are read, and their tags
    compared.
    """
    if kind == "filter":
        if name == "*" or "||" in name or name != name.strip() or not name:
            return f"{name!r} is no tag: give each of several on its own, and none for all records"
        return f"{name!r} has a control character" if re.search(r"[\x00-\x1f]", name) else None
    longest = _LONGEST[kind]
    if _NAME.fullmatch(name) and len(name) <= longest:
        return None
    return (
        f"{name!r} is no {kind} name: it must match {_NAME.pattern} and have at most {longest} "
        f"characters"
    )


def _is_key(key: object) -> bool:
    if not isinstance(key, str):
        return False
    try:
        return Queue.from_key("", key).key == key  # "broker-a:03" is not an alias of "broker-a:3"
    except ValueError:
        return False


@lru_cache(1 << 16)
def _order(key: str) -> tuple[str, int]:
    """Return the sort key: by broker, then numeric; invalid keys come first."""
    if not _is_key(key):
        return "", -1
    broker, _, number = key.rpartition(":")
    return broker, int(number)


SPACE: Final = OffsetSpace(
    source="rocketmq",
    key_form="'<broker name>:<queue id>'",
    step=1,
    is_key=_is_key,
    order=_order,
    log_of=str,
    partition=Queue.from_key,
    range=QueueRange,
    peer_of=lambda key: key.rpartition(":")[0],
    resolvers=("store_time",),
    name_problem=_name_problem,
    forgets_brokers=True,
)
"""Meaning of RocketMQ's offsets and keys."""

"""From an instant to an offset: the first record whose store time is not before it.

On 4.x the brokers' search answers the nearest record or the last one, so it is offered unchanged
and not used here. `boundary_at` bisects by reading records: exact on both lines as long as the
broker's clock does not step back, because store times are set under the append lock
(`docs/rocketmq-protocol/exact-ranges.md`).

Records removed by retention were stored before all records that the broker's log still has. So a
queue whose first record is too young proves nothing about the records before it; an older first
record in its broker's log does.

Source: `docs/rocketmq-protocol/exact-ranges.md#time`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._core.ends import queue_ends, require_address
from rocketmq_client._core.one_record import pull_one
from rocketmq_client._core.pulling import number
from rocketmq_client._wire import codes
from rocketmq_client.model import TimeBoundary
from tubemq_client._core.effects import Sleep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import RuntimeInfo, TopicRoute
    from rocketmq_client.model import Address, Queue, QueueEnds
    from tubemq_client._core.effects import Conversation

__all__ = ["boundaries_at", "boundary_at", "check_final", "search_offset"]

_PAUSES_MS: Final = (10, 20, 50, 100, 200, 400)
"""Pauses between requests to a broker whose indexes are behind, mostly by some milliseconds."""


def check_final(
    cluster: Cluster, address: Address, broker: str, instant_ms: int, grace_ms: int
) -> Conversation[None]:
    """Raise `errors.TimeNotFinal` while a record before `instant_ms` may still be appended or
    become readable at this broker. Idle queues need no later record for it."""
    info = yield from cluster.runtime_info(address, broker)
    if info.clock_ms < instant_ms + grace_ms:
        why = f"its clock is {instant_ms + grace_ms - info.clock_ms} ms before that"
    elif info.append_lock_ms > grace_ms:
        why = f"an append has taken {info.append_lock_ms} ms"
    else:
        why = yield from _unindexed(cluster, address, broker, info)
    if why:
        raise errors.TimeNotFinal(
            f"{instant_ms} ms and {grace_ms} ms of grace are not over at the broker: {why}"
        )


def _unindexed(
    cluster: Cluster, address: Address, broker: str, info: RuntimeInfo
) -> Conversation[str]:
    """Wait for the indexes to reach the log's end as of `info`; return a text about the missing
    part, empty if none. A broker with constant writes always has something to index; later records
    do not matter."""
    log_end = info.log_end
    for pause_ms in _PAUSES_MS:
        if info.indexed_bytes >= log_end:
            break
        yield Sleep(pause_ms)
        info = yield from cluster.runtime_info(address, broker)
    lacking = log_end - info.indexed_bytes
    return f"its indexes lack {lacking} bytes" if lacking > 0 else ""


def boundaries_at(
    cluster: Cluster,
    route: TopicRoute,
    queues: Sequence[Queue],
    instant_ms: int,
    group: str,
    grace_ms: int,
) -> Conversation[dict[Queue, TimeBoundary]]:
    """Return `boundary_at` of each queue, once the instant is final at all their brokers. Raises
    `errors.TimeNotFinal`."""
    for broker in sorted({queue.broker for queue in queues}):
        address = require_address(route, broker)
        yield from check_final(cluster, address, broker, instant_ms, grace_ms)
    looked = yield from queue_ends(cluster, route, queues, group, stable=False)
    boundaries: dict[Queue, TimeBoundary] = {}
    for queue, ends in looked.items():
        boundaries[queue] = yield from boundary_at(cluster, route, ends, instant_ms, group)
    return boundaries


def boundary_at(
    cluster: Cluster, route: TopicRoute, ends: QueueEnds, instant_ms: int, group: str
) -> Conversation[TimeBoundary]:
    """Return the first offset in `[min_offset, latest_offset]` stored at or after `instant_ms`, and
    True if retention may have removed earlier ones of these. Costs about log2 of the records in
    pulls of one record."""
    queue = ends.queue
    address = require_address(route, queue.broker)
    low, high = ends.min_offset, ends.latest_offset
    proven_earlier = low == 0  # all below `low` is known to be earlier
    while low < high:
        middle = (low + high) // 2
        try:
            record = yield from pull_one(cluster, address, queue, group, middle)
        except errors.LogTruncated:
            high = middle  # lost in a crash after the ends were requested
            continue
        # Retention removes from the front: removed records are older than the rest.
        if record is None or record.store_ms < instant_ms:
            low, proven_earlier = middle + 1, record is not None
        else:
            high = middle
    if not proven_earlier:
        # Requested last: every record found removed is older than the log's present start.
        info = yield from cluster.runtime_info(address, queue.broker)
        proven_earlier = info.earliest_ms is not None and info.earliest_ms < instant_ms
    return TimeBoundary(low, lost_to_retention=not proven_earlier)


def search_offset(
    cluster: Cluster, address: Address, queue: Queue, instant_ms: int, boundary: str
) -> Conversation[int]:
    """Return the broker's own answer. `boundary` "lower" or "upper" works on 5.x only."""
    fields = {
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "timestamp": str(instant_ms),
        "boundaryType": boundary.upper(),
        "bname": queue.broker,
    }
    answer = yield from cluster.call(address, codes.SEARCH_OFFSET_BY_TIMESTAMP, fields)
    return number(answer, "offset")

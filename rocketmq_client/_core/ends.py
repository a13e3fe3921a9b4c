"""Ends of queues: first offset, readable end, and the end that is on disk.

Brokers answer 0 for queues they do not have, so the route decides which exist. The stable end is
derived: from one runtime info comes a lower bound of the fsynced position, and a record counts if
it ends at or before it. Ends are requested first, so a record appended in between is not counted as
stable. It is the stable end of one broker's disk; a replica may lack what it has
(`docs/rocketmq-protocol/exact-ranges.md`).

Source: `docs/rocketmq-protocol/exact-ranges.md#stable-ends`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rocketmq_client import errors
from rocketmq_client._core.empty_queues import emptied
from rocketmq_client._core.one_record import pull_one
from rocketmq_client._core.pulling import number
from rocketmq_client._wire import codes
from rocketmq_client.model import QueueEnds, Reachable
from tubemq_client._core.effects import Await, Post

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import TopicRoute
    from rocketmq_client._wire.codes import Method
    from rocketmq_client.model import Address, Queue
    from tubemq_client._core.effects import Conversation

__all__ = ["queue_ends", "reachable", "require_address", "select_queues"]

Found = TypeVar("Found")


def select_queues(route: TopicRoute, queues: Iterable[Queue] | None) -> list[Queue]:
    """Return `queues`, or all that can be read. Raises `errors.ConfigError` for queues that the
    route lacks: a broker would answer 0 for them."""
    readable = route.readable()
    if queues is None:
        return readable
    chosen = list(queues)
    missing = [queue for queue in chosen if queue not in set(readable)]
    if missing:
        raise errors.ConfigError(
            [
                f"{queue.key} is not a queue of topic {route.topic!r} that can be read now; known: "
                f"{', '.join(each.key for each in readable) or 'none'}"
                for queue in missing
            ],
            subject="queues",
        )
    return chosen


def require_address(route: TopicRoute, broker: str) -> Address:
    """Return the broker's master. Raises `errors.ConnectError` while there is none."""
    address = route.address(broker)
    if address is None:
        raise errors.ConnectError(
            f"broker {broker!r} is not in the route of topic {route.topic!r} now"
        )
    return address


def reachable(
    queues: Iterable[Queue], look: Callable[[Sequence[Queue]], Conversation[dict[Queue, Found]]]
) -> Conversation[Reachable[Found]]:
    """Return the results of `look`, called per broker: a broker of the route that is not available
    costs only its own queues. Raises the last broker's error if none answers, and at once any error
    that waiting for a broker cannot cure."""
    by_broker: dict[str, list[Queue]] = {}
    for queue in sorted(queues):
        by_broker.setdefault(queue.broker, []).append(queue)
    results: dict[Queue, Found] = {}
    missing: dict[Queue, str] = {}
    failure: errors.RocketMQError | None = None
    for mine in by_broker.values():
        try:
            results |= yield from look(mine)
        except errors.TimeNotFinal:
            raise
        except errors.RocketMQError as error:
            if not error.retriable:
                raise
            failure = error
            missing |= dict.fromkeys(mine, f"{type(error).__name__}: {error}")
    if failure is not None and not results:
        raise failure
    return Reachable(results, missing)


def queue_ends(
    cluster: Cluster, route: TopicRoute, queues: Sequence[Queue], group: str, *, stable: bool
) -> Conversation[dict[Queue, QueueEnds]]:
    """Return minimum and end of each queue; requests of one kind are in flight together. The
    minimum of a queue that retention has emptied is its end, whatever its broker reports."""
    firsts = yield from _offsets(cluster, route, queues, codes.GET_MIN_OFFSET)
    lasts = yield from _offsets(cluster, route, queues, codes.GET_MAX_OFFSET)
    ends = dict(lasts)
    for broker in sorted({queue.broker for queue in queues}):
        address = require_address(route, broker)
        if not stable and cluster.has_exact_minima(address, broker):
            continue
        try:
            info = yield from cluster.runtime_info(address, broker)
        except errors.ServerError:
            if stable:
                raise
            continue  # this account may not request it
        mine = [queue for queue in queues if queue.broker == broker]
        if info.has_stale_minima:
            held = [queue for queue in mine if firsts[queue] < lasts[queue]]
            for queue in (yield from emptied(cluster, address, held, lasts, group, info)):
                firsts[queue] = lasts[queue]
        for queue in mine if stable else ():
            bounds = firsts[queue], lasts[queue]
            ends[queue] = yield from _stable_end(
                cluster, address, queue, group, bounds, info.flushed_bytes
            )
    return {
        queue: QueueEnds(queue, min(firsts[queue], lasts[queue]), ends[queue], stable, lasts[queue])
        for queue in queues
    }


def _offsets(
    cluster: Cluster, route: TopicRoute, queues: Sequence[Queue], method: Method
) -> Conversation[dict[Queue, int]]:
    tickets = []
    for queue in queues:
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker}
        address, request = require_address(route, queue.broker), cluster.request(fields)
        tickets.append((queue, address, request, (yield Post(address, method, request))))
    offsets: dict[Queue, int] = {}
    for queue, address, request, ticket in tickets:
        try:
            answer = yield Await(ticket)
        except errors.ConnectionLost:
            answer = yield from cluster.ask(address, method, request)
        offsets[queue] = number(answer, "offset")
    return offsets


def _stable_end(
    cluster: Cluster,
    address: Address,
    queue: Queue,
    group: str,
    bounds: tuple[int, int],
    flushed: int,
) -> Conversation[int]:
    """Return the largest end whose last record lies below `flushed` (bytes) in the log: mostly the
    last, else found by bisection, because physical offsets grow with queue offsets. A record that
    retention has removed was flushed long ago."""
    low, high = bounds
    probe = high
    while low < high:
        try:
            record = yield from pull_one(cluster, address, queue, group, probe - 1)
        except errors.LogTruncated:
            high = probe - 1  # lost in a crash after the ends were requested
        else:
            if record is None or record.physical_offset + record.size <= flushed:
                low = probe
            else:
                high = probe - 1
        probe = (low + high + 1) // 2
    return high

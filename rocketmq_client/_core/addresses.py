"""Address of a range's broker: as the caller gave it, or from the route.

An executor receives addresses with its split and asks no name server. All other readers follow the
route. A broker leaves the route as soon as it dies: during a restart a topic may look unknown, and
a reader that resolved it before waits.

Source: `docs/rocketmq-protocol/exact-ranges.md#what-an-answer-means`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rocketmq_client import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import TopicRoute
    from rocketmq_client.model import Address, Queue
    from tubemq_client._core.effects import Conversation

__all__ = ["STALE", "AddressFinder", "on_route"]

Answer = TypeVar("Answer")

STALE = (
    errors.NetworkError,
    errors.NotLeader,
    errors.UnknownTopic,
    errors.TopicForbids,
    errors.ConfigError,
)
"""Errors of a request that used a stale route: no server at the address, a broker that does not
have the queue or refuses access to it, or a queue that the cached route lacks."""


def on_route(
    cluster: Cluster,
    topic: str,
    ask: Callable[[TopicRoute], Conversation[Answer]],
    stale: tuple[type[errors.RocketMQError], ...] = STALE,
) -> Conversation[Answer]:
    """Return the result of `ask` on the cached route; ask once more if that fails with an error of
    `stale` and the topic has moved. With all errors of `STALE`, `ask` must be idempotent."""
    route = yield from cluster.route(topic)
    try:
        return (yield from ask(route))
    except stale:
        try:
            now = yield from cluster.route(topic, fresh=True)
        except errors.RocketMQError:
            now = route
        if now == route:
            raise
    return (yield from ask(now))


class AddressFinder:
    """Finds the master of one queue's broker; one instance per read."""

    def __init__(self, cluster: Cluster, queue: Queue, fixed: Mapping[str, Address]) -> None:
        self._cluster = cluster
        self._queue = queue
        self._fixed = fixed.get(queue.broker)
        self._last: Address | None = None

    def find(self, fresh: bool) -> Conversation[Address]:  # noqa: FBT001 - the reader's callback
        """Return the address. Raises `errors.UnknownTopic` at the first look-up only, and
        `errors.ConnectError` while the broker is not available."""
        if self._fixed is not None:
            return self._fixed
        topic = self._queue.topic
        try:
            route = yield from self._cluster.route(topic, fresh=fresh)
        except errors.UnknownTopic as error:
            if self._last is None and not fresh:
                raise
            raise errors.ConnectError(f"no broker of topic {topic!r} is available now") from error
        except errors.NetworkError:
            if self._last is None:
                raise
            return self._last  # no name server answers: try the last address
        address = route.address(self._queue.broker)
        if address is None:
            raise errors.ConnectError(
                f"broker {self._queue.broker!r} of topic {topic!r} is not available now"
            )
        self._last = address
        return address

"""Sync pull consumer: single and long pulls, offsets and membership of a group.

For tools and applications that store their positions. Windows use `ranges`, which proves that no
record is missing. `aio.pulling` is the asyncio version.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, TypeVar

from rocketmq_client._core.addresses import on_route
from rocketmq_client._core.ends import require_address
from rocketmq_client._core.groups import (
    commit_offset,
    committed_offset,
    heartbeat,
    members,
    unregister,
)
from rocketmq_client._core.pulling import pull, subscription_of
from rocketmq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_client._wire.bodies import Subscription, TopicRoute
    from rocketmq_client.model import Address, ClientSettings, PullResult, Queue
    from tubemq_client._core.effects import Conversation

__all__ = ["PullConsumer"]

Answer = TypeVar("Answer")


class PullConsumer(BlockingClient):
    """Pulls from queues that the caller chooses. One per thread.

    Pulling needs no membership; `join` registers a member at the brokers, for tools that list
    members. Call it at least every 30 s: a registration lasts 120 s. A pull asks for `tags`
    (several: any of them) or for an `sql` expression over properties, which brokers evaluate only
    with `enablePropertyFilter=true`; **a malformed expression is not refused, everything is
    delivered**.
    """

    def __init__(self, settings: ClientSettings, *, group: str) -> None:
        super().__init__(settings)
        self.group = group
        self.client_id = f"{os.getpid()}@{secrets.token_hex(6)}"

    def queues(self, topic: str) -> list[Queue]:
        """Return the topic's queues that can be read now, ordered."""
        return self._route(topic, fresh=True).readable()

    def pull(
        self,
        queue: Queue,
        offset: int,
        *,
        max_records: int = 32,
        tags: str | Sequence[str] = (),
        sql: str | None = None,
        wait_ms: int = 0,
    ) -> PullResult:
        """Pull once from `offset`. With `wait_ms` the broker holds the pull at the queue's end
        until a record arrives, up to 5 s longer; then the status is "nothing" or "filtered"."""
        subscription = subscription_of(queue.topic, tags, sql)
        return self._asked(
            queue,
            lambda route: pull(
                self._cluster,
                require_address(route, queue.broker),
                queue,
                self.group,
                offset,
                max_records,
                subscription=subscription,
                wait_ms=wait_ms,
            ),
        )

    def committed(self, queue: Queue) -> int | None:
        """Return the group's committed offset, None without one (4.x: 0 on queues that begin at
        0)."""
        return self._asked(
            queue, lambda route: committed_offset(self._cluster, route, queue, self.group)
        )

    def commit(self, queue: Queue, offset: int) -> None:
        """Commit the group's `offset` at the broker; any number is accepted."""
        self._asked(
            queue, lambda route: commit_offset(self._cluster, route, queue, self.group, offset)
        )

    def join(self, subscriptions: Sequence[Subscription]) -> None:
        """Send a heartbeat to the brokers of these topics as a member of the group."""
        self._driver.run(
            heartbeat(
                self._cluster,
                self._masters(subscriptions),
                self.client_id,
                consumers={self.group: subscriptions},
            )
        )

    def leave(self, subscriptions: Sequence[Subscription]) -> None:
        """Unregister the member at the brokers of these topics."""
        addresses = self._masters(subscriptions)
        self._driver.run(unregister(self._cluster, addresses, self.client_id, self.group))

    def members(self, topic: str) -> list[str]:
        """Return the client ids of the group's members that one broker of the topic knows."""
        masters = self._route(topic).masters()
        address = masters[min(masters)]
        return self._driver.run(members(self._cluster, address, self.group))

    def _asked(self, queue: Queue, ask: Callable[[TopicRoute], Conversation[Answer]]) -> Answer:
        return self._driver.run(on_route(self._cluster, queue.topic, ask))

    def _route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        return self._driver.run(self._cluster.route(topic, fresh=fresh))

    def _masters(self, subscriptions: Sequence[Subscription]) -> list[Address]:
        addresses: dict[Address, None] = {}
        for item in subscriptions:
            addresses.update(dict.fromkeys(self._route(item.topic).masters().values()))
        return list(addresses)

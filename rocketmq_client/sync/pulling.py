"""The blocking pull consumer: single and long pulls, offsets and membership of a group.

For tools and applications that keep their own positions. Windows use `ranges`, which proves what it
delivers. `aio.pulling` is its twin.
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

    Pulling needs no membership; `join` tells brokers of a member all the same, for tools that list
    them. Call it at least every 30 s: a member counts for 120 s. A pull asks for `tags` (several:
    any of them) or for an `sql` expression over properties, which brokers obey only with
    `enablePropertyFilter=true`; **a malformed expression is not refused, everything is delivered**.
    """

    def __init__(self, settings: ClientSettings, *, group: str) -> None:
        super().__init__(settings)
        self.group = group
        self.client_id = f"{os.getpid()}@{secrets.token_hex(6)}"

    def queues(self, topic: str) -> list[Queue]:
        """The topic's queues that can be read now, ordered."""
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
        """One pull from `offset`. With `wait_ms` the broker holds it at the queue's end until a
        record arrives, up to 5 s longer than asked; then the status is "nothing" or "filtered"."""
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
        """What the group committed, None if it never did (4.x: 0 on queues that begin at 0)."""
        return self._asked(
            queue, lambda route: committed_offset(self._cluster, route, queue, self.group)
        )

    def commit(self, queue: Queue, offset: int) -> None:
        """Tell the broker that the group goes on at `offset`; any number is taken."""
        self._asked(
            queue, lambda route: commit_offset(self._cluster, route, queue, self.group, offset)
        )

    def join(self, subscriptions: Sequence[Subscription]) -> None:
        """Heartbeat to the brokers of these topics as a member of the group."""
        self._driver.run(
            heartbeat(
                self._cluster,
                self._masters(subscriptions),
                self.client_id,
                consumers={self.group: subscriptions},
            )
        )

    def leave(self, subscriptions: Sequence[Subscription]) -> None:
        """Tell the brokers of these topics that the member is gone."""
        addresses = self._masters(subscriptions)
        self._driver.run(unregister(self._cluster, addresses, self.client_id, self.group))

    def members(self, topic: str) -> list[str]:
        """Client ids of the group's members, as one broker of the topic knows them."""
        masters = self._route(topic).masters()
        address = masters[min(masters)]
        return self._driver.run(members(self._cluster, address, self.group))

    def _asked(self, queue: Queue, ask: Callable[[TopicRoute], Conversation[Answer]]) -> Answer:
        return self._driver.run(on_route(self._cluster, queue.topic, ask))

    def _route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        return self._driver.run(self._cluster.route(topic, fresh=fresh))

    def _masters(self, subscriptions: Sequence[Subscription]) -> list[Address]:
        found: dict[Address, None] = {}
        for item in subscriptions:
            found.update(dict.fromkeys(self._route(item.topic).masters().values()))
        return list(found)

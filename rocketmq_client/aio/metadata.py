"""Asyncio look-ups: queues of a topic, their ends, and offsets of instants.

Reads only; nothing is registered or committed. Used by sensors and planners. `sync.metadata` is the
sync version.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from rocketmq_client._core.ends import queue_ends, reachable, require_address, select_queues
from rocketmq_client._core.groups import committed_offset
from rocketmq_client._core.one_record import record_at
from rocketmq_client._core.times import boundaries_at, search_offset
from rocketmq_client._core.topics import check_kind
from rocketmq_client.aio._base import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_client._wire.bodies import TopicRoute
    from rocketmq_client.model import (
        ClientSettings,
        Queue,
        QueueEnds,
        Reachable,
        RecordMark,
        TimeBoundary,
    )

__all__ = ["Metadata"]

_GROUP = "rocketmq_client_meta"


class Metadata(AsyncClient):
    """Looks up queues, ends and times. Shared by any tasks of a loop.

    `group` is the name that brokers see in pulls of single records; it gets no offsets.
    """

    def __init__(self, settings: ClientSettings, *, group: str = _GROUP) -> None:
        super().__init__(settings)
        self._group = group

    async def topic(self, topic: str) -> TopicRoute:
        """Return brokers and queues of `topic` as the name server knows them now.

        Raises `errors.UnknownTopic`, and `errors.UnsupportedTopic` for kinds of topics whose
        offsets do not count one record each.
        """
        route = await self._driver.run(self._cluster.route(topic, fresh=True))
        await self._driver.run(check_kind(self._cluster, route))
        return route

    async def ends(
        self,
        topic: str,
        queues: Iterable[Queue] | None = None,
        *,
        stable: bool = True,
        route: TopicRoute | None = None,
    ) -> dict[Queue, QueueEnds]:
        """Return minimum and end offset of each queue.

        `stable` True gives the end that is on the broker's disk, searched with pulls of single
        records if the last one is not; it may decrease a little between two calls, so detect
        truncation with `latest_offset`. False gives the readable end, which may decrease when a
        host crashes. Raises `errors.ConfigError` for queues that the topic does not have.
        """
        current_route = route
        if current_route is None:
            current_route = await self._driver.run(self._cluster.route(topic, fresh=True))
        chosen = select_queues(current_route, queues)
        return await self._driver.run(
            queue_ends(self._cluster, current_route, chosen, self._group, stable=stable)
        )

    async def reachable_ends(
        self, topic: str, *, stable: bool = True, route: TopicRoute | None = None
    ) -> Reachable[QueueEnds]:
        """Return `ends` of all queues (of `route`, if given) whose brokers answer, and the queues
        that are away. Raises the error of a broker if none answers."""
        at = route
        if at is None:
            at = await self._driver.run(self._cluster.route(topic, fresh=True))
        look = partial(queue_ends, self._cluster, at, group=self._group, stable=stable)
        return await self._driver.run(reachable(at.readable(), look))

    async def offset_at(
        self,
        topic: str,
        instant_ms: int,
        queues: Iterable[Queue] | None = None,
        *,
        grace_ms: int = 2_000,
    ) -> dict[Queue, int]:
        """Return for each queue the first held offset whose record was stored at or after
        `instant_ms` by its broker's clock; earlier ones of these may be lost to retention, see
        `boundary_at`.

        Final: no later record gets a lower offset. Raises `errors.TimeNotFinal` before `grace_ms`
        have passed at every broker, or while the indexes of one are behind.
        """
        route = await self._driver.run(self._cluster.route(topic, fresh=True))
        chosen = select_queues(route, queues)
        boundaries = await self._driver.run(
            boundaries_at(self._cluster, route, chosen, instant_ms, self._group, grace_ms)
        )
        return {queue: boundary.offset for queue, boundary in boundaries.items()}

    async def boundary_at(
        self,
        topic: str,
        instant_ms: int,
        *,
        grace_ms: int = 2_000,
        route: TopicRoute | None = None,
    ) -> Reachable[TimeBoundary]:
        """Return the same as `offset_at`, with a flag if retention may have removed records stored
        at or after `instant_ms`; for the queues whose brokers answer, and the queues that are
        away."""
        at = route
        if at is None:
            at = await self._driver.run(self._cluster.route(topic, fresh=True))
        look = partial(
            boundaries_at,
            self._cluster,
            at,
            instant_ms=instant_ms,
            group=self._group,
            grace_ms=grace_ms,
        )
        return await self._driver.run(reachable(at.readable(), look))

    async def record_at(self, queue: Queue, offset: int) -> RecordMark | None:
        """Return the identity of the record at `offset`, damaged or not; None if retention has
        removed it. Raises `errors.LogTruncated` if the queue ends at `offset` or before."""
        return await self._driver.run(record_at(self._cluster, queue, self._group, offset))

    async def search_offset(
        self, queue: Queue, instant_ms: int, *, boundary: Literal["lower", "upper"] = "lower"
    ) -> int:
        """Return the broker's own answer for an instant: quick, and exact on 5.x only. A 4.x broker
        gives the nearest record, or the last one if there is none."""
        route = await self._driver.run(self._cluster.route(queue.topic))
        select_queues(route, [queue])
        address = require_address(route, queue.broker)
        return await self._driver.run(
            search_offset(self._cluster, address, queue, instant_ms, boundary)
        )

    async def group_offsets(self, topic: str, group: str) -> dict[Queue, int | None]:
        """Return the group's committed offset of each queue, None without one (4.x: 0 on queues
        that still begin at 0)."""
        route = await self._driver.run(self._cluster.route(topic, fresh=True))
        offsets: dict[Queue, int | None] = {}
        for queue in route.readable():
            offsets[queue] = await self._driver.run(
                committed_offset(self._cluster, route, queue, group)
            )
        return offsets

    async def clock_ms(self, topic: str, broker: str) -> int:
        """Return a lower bound of the broker's clock, up to a second behind it; ms since the
        epoch."""
        route = await self._driver.run(self._cluster.route(topic))
        address = require_address(route, broker)
        return (await self._driver.run(self._cluster.runtime_info(address, broker))).clock_ms

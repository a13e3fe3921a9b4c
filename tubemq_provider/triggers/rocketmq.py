"""`RocketMQOffsetTrigger`: waits in the triggerer for what a deferred sensor of RocketMQ waits for.

It asks on asyncio through the client's own event-loop shell, and only says when looking again is
worth a worker slot. Beside its kind nothing differs from the other source's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rocketmq_client import errors
from tubemq_provider.hooks.rocketmq import RocketMQAsyncHook
from tubemq_provider.sources.rocketmq.source import milliseconds_of
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.triggers._wait import WaitingTrigger, unpacked
from tubemq_provider.windows.lag import lag_between, regressed

if TYPE_CHECKING:
    from rocketmq_client.aio import Metadata
    from rocketmq_client.model import Queue, QueueEnds

__all__ = ["RocketMQOffsetTrigger"]


class RocketMQOffsetTrigger(WaitingTrigger):
    """Fire once when the queues of a topic are where a sensor wants them.

    :param topic: topic to look at.
    :param until: offsets by queue key that ends must reach.
    :param instant: RFC 3339: nothing stored before it may come any more, by every broker's clock,
        and ends must reach what was.
    :param group: whose offsets at the brokers `min_lag` counts from.
    :param min_lag: records that ends must be ahead of them; an end below them fires as well.
    :param stable: look at ends on the brokers' disks, or at what can be read.
    :param poll_interval: seconds between looks, a fifth more or less.
    :param wait_for_topic: False fires if the topic does not exist, and the sensor says so.
    :param rocketmq_conn_id: the connection.

    Brokers that do not answer are waited for. Fires ``{"status": "ready"}``, or ``{"status":
    "error", "message"}`` for what no waiting cures.
    """

    def __init__(
        self,
        *,
        topic: str,
        until: Mapping[str, int] | None = None,
        instant: str | None = None,
        group: str | None = None,
        min_lag: int = 0,
        stable: bool = True,
        poll_interval: float = 30.0,
        wait_for_topic: bool = True,
        rocketmq_conn_id: str = "rocketmq_default",
    ) -> None:
        super().__init__(topic=topic, poll_interval=poll_interval, wait_for_topic=wait_for_topic)
        self.until = unpacked(until)
        self.instant = instant
        self.group = group
        self.min_lag = min_lag
        self.stable = stable
        self.rocketmq_conn_id = rocketmq_conn_id

    def arguments(self) -> dict[str, Any]:
        """As given."""
        return {
            "topic": self.topic,
            "until": self.until,
            "instant": self.instant,
            "group": self.group,
            "min_lag": self.min_lag,
            "stable": self.stable,
            "poll_interval": self.poll_interval,
            "wait_for_topic": self.wait_for_topic,
            "rocketmq_conn_id": self.rocketmq_conn_id,
        }

    def make_hook(self) -> RocketMQAsyncHook:
        """For the connection."""
        return RocketMQAsyncHook(self.rocketmq_conn_id)

    async def is_ready(self, client: Metadata) -> bool:
        """One look at queues, ends and, if asked for, the brokers' clocks and a group's offsets."""
        wanted = dict(self.until)
        if self.instant is not None:
            before = await self._stored_before(client, self.instant)
            if before is None:
                return False
            wanted = {key: max(at, wanted.get(key, 0)) for key, at in {**wanted, **before}.items()}
        committed = None
        if self.group is not None:
            # Before the ends: what is committed meanwhile would else seem to lie beyond them.
            committed = await client.group_offsets(self.topic, self.group)
        ends = await client.ends(self.topic, stable=self.stable)
        at = {queue.key: found.max_offset for queue, found in ends.items()}
        if not at or any(at.get(key, -1) < offset for key, offset in wanted.items()):
            return False
        return committed is None or self._is_behind(ends, committed)

    async def _stored_before(self, client: Metadata, instant: str) -> dict[str, int] | None:
        """Up to which offsets of the queues; None while something may still come."""
        milliseconds = milliseconds_of(datetime.fromisoformat(instant))
        try:
            found = await client.offset_at(self.topic, milliseconds)
        except errors.TimeNotFinal:
            return None
        return {queue.key: offset for queue, offset in found.items()}

    def _is_behind(
        self, ends: Mapping[Queue, QueueEnds], committed: Mapping[Queue, int | None]
    ) -> bool:
        return (
            bool(regressed(ends, committed))
            or lag_between(ends, committed, SPACE).total >= self.min_lag
        )

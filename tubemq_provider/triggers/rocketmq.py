"""`RocketMQOffsetTrigger`: condition of a deferred RocketMQ sensor, polled in the triggerer.

It uses the client's asyncio API, and only decides when the sensor should resume, like the trigger
of TubeMQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rocketmq_client import errors
from tubemq_provider.hooks.rocketmq import RocketMQAsyncHook
from tubemq_provider.sources.rocketmq.source import milliseconds_of
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.triggers._firing import arguments_of
from tubemq_provider.triggers._wait import WaitingTrigger
from tubemq_provider.windows.lag import lag_between, regressed

if TYPE_CHECKING:
    from rocketmq_client.aio import Metadata
    from rocketmq_client.model import Queue, QueueEnds

__all__ = ["RocketMQOffsetTrigger"]


class RocketMQOffsetTrigger(WaitingTrigger):
    """Fire once when the queues of a topic meet a sensor's condition.

    :param topic: topic to check.
    :param until: offsets by queue key that ends must reach.
    :param instant: RFC 3339: no record with an earlier store time can arrive, by every broker's
        clock, and ends must reach all of them.
    :param group: group with the offsets at the brokers that `min_lag` counts from.
    :param min_lag: records that ends must be ahead of them; an end below them fires as well.
    :param stable: use ends on the brokers' disks, or all that can be read.
    :param poll_interval: seconds between polls, with a jitter of a fifth.
    :param wait_for_topic: False fires if the topic does not exist, and the sensor reports it.
    :param rocketmq_conn_id: the connection.
    :param consumer_config: options of the client.

    Brokers that do not answer are waited for. Fires ``{"status": "ready"}``, or ``{"status":
    "error", "message"}`` for a permanent error.
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
        consumer_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            topic=topic,
            until=until,
            min_lag=min_lag,
            stable=stable,
            poll_interval=poll_interval,
            wait_for_topic=wait_for_topic,
        )
        self.instant = instant
        self.group = group
        self.rocketmq_conn_id = rocketmq_conn_id
        self.consumer_config = dict(consumer_config or {})

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as passed."""
        return arguments_of(self, RocketMQOffsetTrigger)

    def make_hook(self) -> RocketMQAsyncHook:
        """Return a hook of the connection."""
        return RocketMQAsyncHook(self.rocketmq_conn_id, self.consumer_config)

    async def is_ready(self, client: Metadata) -> bool:
        """Check queues, ends and, if needed, the brokers' clocks and a group's offsets once."""
        offsets = dict(self.until)
        if self.instant is not None:
            before = await self._stored_before(client, self.instant)
            if before is None:
                return False
            offsets = {
                key: max(at, offsets.get(key, 0)) for key, at in {**offsets, **before}.items()
            }
        committed = None
        if self.group is not None:
            # Before the ends: otherwise later commits would seem to lie beyond them.
            committed = await client.group_offsets(self.topic, self.group)
        ends = await client.ends(self.topic, stable=self.stable)
        at = {queue.key: end.max_offset for queue, end in ends.items()}
        if not at or any(at.get(key, -1) < offset for key, offset in offsets.items()):
            return False
        return committed is None or self._is_behind(ends, committed)

    async def _stored_before(self, client: Metadata, instant: str) -> dict[str, int] | None:
        """Return the end of records stored before `instant`; None while some may still arrive."""
        milliseconds = milliseconds_of(datetime.fromisoformat(instant))
        try:
            offsets = await client.offset_at(self.topic, milliseconds)
        except errors.TimeNotFinal:
            return None
        return {queue.key: offset for queue, offset in offsets.items()}

    def _is_behind(
        self, ends: Mapping[Queue, QueueEnds], committed: Mapping[Queue, int | None]
    ) -> bool:
        return (
            bool(regressed(ends, committed))
            or lag_between(ends, committed, SPACE).total >= self.min_lag
        )

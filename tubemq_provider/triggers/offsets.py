"""`TubeMQOffsetTrigger`: condition of a deferred TubeMQ sensor, polled in the triggerer.

It only decides when the sensor should resume: the sensor then checks again with the current
position, and defers again if it was too early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tubemq_provider.hooks.aio import SHARE_OF_POLL, SourceAsyncHook, TubeMQAsyncHook, async_hook
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.triggers._firing import arguments_of
from tubemq_provider.triggers._wait import WaitingTrigger, unpacked
from tubemq_provider.windows.lag import lag_between
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from tubemq_provider.windows.spaces import Ends

__all__ = ["TubeMQOffsetTrigger"]


class TubeMQOffsetTrigger(WaitingTrigger):
    """Fire once when the ends of a topic meet a sensor's condition.

    :param topic: topic to check.
    :param group: consumer group for the look-ups (``<group>.e`` is used).
    :param until: offsets by partition key that ends must reach.
    :param partitions: partition keys that must be subscribable; default those of `until`, or else
        all that are announced, at least one.
    :param min_lag: index entries that ends must be ahead of `positions`.
    :param positions: offsets by partition key that lag counts from. An end below its position fires
        as well: waiting does not help with a log that was truncated or recreated.
    :param stable: use ends on the brokers' disks, or in their memory.
    :param poll_interval: seconds between polls, with a jitter of a fifth.
    :param first_look_after: seconds until the first poll, with a jitter of a fifth.
    :param look_again_after: seconds until it fires in any case, with a jitter of a fifth: for
        conditions that only the sensor can check. Default: never.
    :param wait_for_topic: False fires if the topic does not exist, and the sensor reports it.
    :param tubemq_conn_id: the connection.
    :param source: kind of the topic; ends of another kind are asked in a thread, by its own source.
    :param consumer_config: options of the client.

    Brokers that do not answer are waited for. Fires ``{"status": "ready"}``, or ``{"status":
    "error", "message"}`` for a permanent error.
    """

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        until: Mapping[str, int] | None = None,
        partitions: Sequence[str] | None = None,
        min_lag: int = 0,
        positions: Mapping[str, int] | None = None,
        stable: bool = True,
        poll_interval: float = 30.0,
        first_look_after: float = 0.0,
        look_again_after: float | None = None,
        wait_for_topic: bool = True,
        tubemq_conn_id: str = "tubemq_default",
        source: str = FIRST_SOURCE,
        consumer_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            topic=topic,
            until=until,
            min_lag=min_lag,
            stable=stable,
            poll_interval=poll_interval,
            first_look_after=first_look_after,
            look_again_after=look_again_after,
            wait_for_topic=wait_for_topic,
        )
        self.group = group
        self.partitions = list(partitions or ())
        self.positions = unpacked(positions)
        self.tubemq_conn_id = tubemq_conn_id
        self.source = source
        self.consumer_config = dict(consumer_config or {})

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as passed."""
        return arguments_of(self, TubeMQOffsetTrigger)

    def make_hook(self) -> TubeMQAsyncHook | SourceAsyncHook:
        """Return a hook of the connection."""
        return async_hook(self.source, self.tubemq_conn_id, self.consumer_config)

    async def is_ready(self, client: Any) -> bool:  # noqa: ARG002 - the look is shared
        """Check partitions and ends once."""
        # A broker that does not answer delays only its partitions.
        age = SHARE_OF_POLL * self.poll_interval
        hook = self._hook or self.make_hook()
        keys = {*self.partitions, *self.until}
        if self.min_lag or not isinstance(hook, TubeMQAsyncHook):
            reachable = await hook.shared_ends(
                self.topic, self.group, stable=self.stable, max_age_s=age
            )
            there = {partition.key for partition in reachable}
            return keys <= there and self._reached(reachable)
        needed = [SPACE.partition(self.topic, key) for key in sorted(keys)]
        metadata, ends = await hook.shared_look(
            self.topic, self.group, stable=self.stable, max_age_s=age, needed=needed
        )
        announced = needed or list(metadata.partitions)
        if not announced or any(not metadata.partitions.get(p) for p in announced):
            return False
        return all(partition in ends for partition in announced) and self._reached(ends)

    def _reached(self, ends: Mapping[Any, Ends]) -> bool:
        at = {partition.key: end.max_offset for partition, end in ends.items()}
        if any(at[key] < offset for key, offset in self.positions.items() if key in at):
            return True
        if any(at.get(key, 0) < offset for key, offset in self.until.items()):
            return False
        space = space_of(self.source)
        positions = {space.partition(self.topic, k): v for k, v in self.positions.items()}
        return bool(at) and lag_between(ends, positions, space).total >= self.min_lag
